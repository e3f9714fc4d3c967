//! How far a sweeper is, and what it remembers of jobs that go on.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_core::store::Cursor;
use plimsoll_core::{Key, Name, Timestamp};

use super::walk::{Ages, Kept, Rule, Walk, Witness};
use crate::jobs::info::Phase;
use crate::jobs::stored::Keys;

/// How many things that keep jobs are remembered: some hundred bytes each. Any other jobs are looked at each time.
const WITNESSES_MAX: usize = 100_000;

/// How far a sweeper is with the jobs.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// In the list of jobs.
    pub(super) cursor: Option<Cursor>,
    /// What is to be done with those that were listed.
    pub(super) chores: VecDeque<Chore>,
    /// When they are over.
    ages: Ages,
    /// What keeps jobs, by each rule.
    kept: BTreeMap<(Name, Rule), Kept>,
}

#[derive(Debug)]
pub(super) enum Chore {
    /// Its states are to be removed.
    Remove(Keys),
    /// Its states are to be looked at.
    Walk(Box<Walk>),
}

impl Chore {
    pub(super) fn job(&self) -> &Name {
        match self {
            Self::Remove(keys) => &keys.name,
            Self::Walk(walk) => &walk.keys.name,
        }
    }
}

impl Rounds {
    /// What was listed while other ages held goes by those: it is listed anew.
    pub(super) fn go_by(&mut self, ages: Ages) {
        if self.ages != ages {
            self.ages = ages;
            self.cursor = None;
            self.chores.clear();
        }
    }

    /// Remembers what keeps a job.
    pub(super) fn remember(&mut self, walk: &Walk) {
        for term in &walk.terms {
            let Some(kept) = &term.kept else { continue };
            let place = (walk.keys.name.clone(), term.rule);
            if self.kept.len() < WITNESSES_MAX || self.kept.contains_key(&place) {
                self.kept.insert(place, kept.clone());
            }
        }
    }

    pub(super) fn forget(&mut self, job: &Name) {
        for rule in Rule::ALL {
            self.kept.remove(&(job.clone(), rule));
        }
    }

    fn kept(&self, walk: &Walk, rule: Rule) -> Option<&Kept> {
        self.kept.get(&(walk.keys.name.clone(), rule))
    }

    /// Takes over from the last time what keeps a job now, whatever has happened to it. One that is closing is
    /// looked at.
    pub(super) fn recall(&self, walk: &mut Walk, now: Timestamp) {
        if walk.job.phase != Phase::Open {
            return;
        }
        let name = walk.keys.name.clone();
        let created = Kept {
            by: Witness::Job,
            since: walk.job.info.created_at,
        };
        walk.kept_by(|term| {
            let kept = self.kept.get(&(name.clone(), term.rule));
            let created = (term.rule == Rule::Silent).then_some(&created);
            let mut all = kept.into_iter().chain(created);
            all.find(|kept| term.is_young(kept.since, now)).cloned()
        });
    }

    /// The states that kept a job the last time.
    pub(super) fn witnesses(&self, walk: &Walk) -> impl Iterator<Item = (Rule, &Key)> {
        let is_open = walk.job.phase == Phase::Open;
        let terms = walk.terms.iter().filter(move |_| is_open);
        terms.filter_map(|term| match &self.kept(walk, term.rule)?.by {
            Witness::State(key) => Some((term.rule, key)),
            Witness::Missing(_) | Witness::Job => None,
        })
    }

    /// The partition whose lack of a state kept a job the last time, if a walk that begins may still find that.
    pub(super) fn missing(&self, walk: &Walk) -> Option<u32> {
        if walk.cursor.is_some() || !walk.is_open(Rule::Finished) {
            return None;
        }
        match self.kept(walk, Rule::Finished)?.by {
            // The job may have been created again since, with fewer partitions.
            Witness::Missing(partition) => Some(partition).filter(|one| walk.has(*one)),
            Witness::State(_) | Witness::Job => None,
        }
    }

    /// Whether a job comes next that is closing.
    pub(super) fn closes(&self) -> bool {
        matches!(self.chores.front(), Some(Chore::Walk(walk)) if walk.job.phase == Phase::Closing)
    }
}
