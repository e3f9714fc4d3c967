//! Whether a job is over: decided by its states, page by page.

use std::time::Duration;

use plimsoll_core::record::Record;
use plimsoll_core::store::Cursor;
use plimsoll_core::{Key, Timestamp};

use crate::fields::Reader;
use crate::jobs::info::Job;
use crate::jobs::state::FINISHED;
use crate::jobs::stored::{Keys, STATUS};

/// When jobs are over; `None`: never, unless a job says so itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ages {
    /// So long after all of it has finished.
    pub(crate) finished: Option<Duration>,
    /// When it has not, and nobody has set a state of it for so long.
    pub(crate) silent: Option<Duration>,
}

/// When a job is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// All its partitions have finished.
    Finished,
    /// They have not, and nobody sets a state of it.
    Silent,
}

impl Rule {
    pub(super) const ALL: [Self; 2] = [Self::Finished, Self::Silent];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Silent => "silent",
        }
    }
}

/// That a job is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) by: Witness,
    /// It cannot have been over before this.
    pub(super) since: Timestamp,
}

/// What keeps a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Witness {
    /// This state is not finished, or too young.
    State(Key),
    /// This partition has no state.
    Missing(u32),
    /// The job itself: it is too young, or it has finished.
    Job,
}

/// A walk through the states of a job.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) keys: Keys,
    pub(super) job: Job,
    /// By which it may be over.
    pub(super) terms: Vec<Term>,
    pub(super) cursor: Option<Cursor>,
    /// Which partitions have a state.
    seen: Vec<bool>,
    /// Whether a state has not finished.
    unfinished: bool,
}

/// A rule by which a job goes.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) rule: Rule,
    /// For how long it must hold.
    age: Duration,
    /// What keeps the job by this rule, once that is known.
    pub(super) kept: Option<Kept>,
}

/// How a walk goes on.
pub(super) enum Next {
    Walk,
    /// It ended: the job is kept by each rule.
    Kept,
    /// It ended: by one rule, nothing keeps the job.
    Over,
}

impl Term {
    /// Whether a state keeps its job: it is not finished, or not for long enough, or nobody can tell; or it was
    /// written lately.
    pub(super) fn keeps(&self, state: &Record, now: Timestamp) -> Option<Kept> {
        let since = match self.rule {
            Rule::Finished if !is_finished(state) => now,
            Rule::Finished | Rule::Silent if self.is_young(state.modified_at, now) => {
                state.modified_at
            }
            Rule::Finished | Rule::Silent => return None,
        };
        let by = Witness::State(state.key.clone());
        Some(Kept { by, since })
    }

    pub(super) fn is_young(&self, at: Timestamp, now: Timestamp) -> bool {
        at > now.saturating_minus(self.age)
    }
}

fn is_finished(state: &Record) -> bool {
    Reader(state).number::<i32>(STATUS) == Ok(FINISHED)
}

impl Walk {
    /// One through a job that may be over at these ages, or at its own; `None`: it never is.
    pub(super) fn new(keys: Keys, job: Job, ages: Ages) -> Option<Self> {
        let age = |rule| match rule {
            Rule::Finished => job.info.retain.or(ages.finished),
            Rule::Silent => ages.silent,
        };
        let term = |rule| {
            let (age, kept) = (age(rule)?, None);
            Some(Term { rule, age, kept })
        };
        let terms: Vec<Term> = Rule::ALL.into_iter().filter_map(term).collect();
        (!terms.is_empty()).then(|| Self::of(keys, job, terms))
    }

    fn of(keys: Keys, job: Job, terms: Vec<Term>) -> Self {
        Self {
            keys,
            job,
            terms,
            cursor: None,
            seen: Vec::new(),
            unfinished: false,
        }
    }

    /// Takes in a page of states.
    pub(super) fn page(&mut self, states: &[Record], next: Option<Cursor>, now: Timestamp) -> Next {
        // Not before: many walks may wait.
        self.seen.resize(self.job.info.partitions as usize, false);
        for state in states {
            self.kept_by(|term| term.keeps(state, now));
            if self.is_kept() {
                return Next::Kept;
            }
            self.unfinished |= !is_finished(state);
            let partition = self.keys.parse(&state.key).map(|(partition, _)| partition);
            let seen = partition.and_then(|partition| self.seen.get_mut(partition as usize));
            seen.into_iter().for_each(|seen| *seen = true);
        }
        self.cursor = next;
        if self.cursor.is_some() {
            return Next::Walk;
        }
        self.end(now);
        match self.is_kept() {
            true => Next::Kept,
            false => Next::Over,
        }
    }

    /// What keeps the job when no state does.
    fn end(&mut self, now: Timestamp) {
        let missing = self.seen.iter().zip(0..).find(|(seen, _)| !**seen);
        let missing = missing.map(|(_, partition)| Witness::Missing(partition));
        let has_finished = !self.unfinished && missing.is_none();
        // A job without states is as old as itself.
        let created_at = self.job.info.created_at;
        let by_itself = |since| {
            let by = Witness::Job;
            Kept { by, since }
        };
        self.kept_by(|term| match term.rule {
            Rule::Finished => missing.clone().map(|by| Kept { by, since: now }),
            Rule::Silent if has_finished => Some(by_itself(now)),
            Rule::Silent => (term.is_young(created_at, now)).then(|| by_itself(created_at)),
        });
    }

    /// Notes what keeps the job by rules by which nothing did so far.
    pub(super) fn kept_by(&mut self, keeps: impl Fn(&Term) -> Option<Kept>) {
        for term in &mut self.terms {
            if term.kept.is_none() {
                term.kept = keeps(term);
            }
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.terms.iter().all(|term| term.kept.is_some())
    }

    pub(super) fn has(&self, partition: u32) -> bool {
        partition < self.job.info.partitions
    }

    /// Why nothing keeps the job, if nothing does.
    pub(super) fn over_by(&self) -> Option<Rule> {
        let open = self.terms.iter().find(|term| term.kept.is_none());
        open.map(|term| term.rule)
    }

    /// Whether nothing keeps the job by this rule so far.
    pub(super) fn is_open(&self, rule: Rule) -> bool {
        let mut terms = self.terms.iter();
        terms.any(|term| term.rule == rule && term.kept.is_none())
    }

    /// The same once more.
    pub(super) fn again(self, job: Job) -> Self {
        let terms = self.terms.into_iter();
        let terms = terms.map(|term| Term { kept: None, ..term }).collect();
        Self::of(self.keys, job, terms)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_core::record::fields;
    use plimsoll_core::{Invalid, Name, Result, Revision};

    use super::*;
    use crate::jobs::JobInfo;
    use crate::jobs::info::Phase;

    const AGE: Duration = Duration::from_micros(100);

    fn at(micros: i64) -> Result<Timestamp, Invalid> {
        Timestamp::from_micros(micros)
    }

    fn term(rule: Rule) -> Term {
        let (age, kept) = (AGE, None);
        Term { rule, age, kept }
    }

    /// Through a job with two partitions.
    fn walk(rule: Rule, created_at: i64) -> Result<Walk> {
        let name = Name::new("import")?;
        let info = JobInfo {
            name: name.clone(),
            partitions: 2,
            created_at: at(created_at)?,
            generation: 1,
            deleted_at: None,
            retain: None,
            about: BTreeMap::new(),
        };
        let job = Job {
            info,
            phase: Phase::Closing,
            floor: 0,
            revision: Revision::new(1),
            expires: false,
        };
        Ok(Walk::of(Keys::of(name)?, job, vec![term(rule)]))
    }

    fn state(partition: u32, status: &'static str, micros: i64) -> Result<Record, Invalid> {
        Ok(Record {
            key: Key::new(format!("plimsoll.states.import.{partition}-a"))?,
            fields: fields([("status", status)])?,
            revision: Revision::new(1),
            modified_at: at(micros)?,
            expires_at: None,
        })
    }

    const DONE: &str = "2147483647";
    const STATUSES: [&str; 8] = ["0", "1", "-1", "2147483646", DONE, "2147483648", "x", ""];

    #[test]
    fn only_a_state_that_has_been_finished_for_long_enough_does_not_keep_its_job() -> Result<()> {
        let (term, now) = (term(Rule::Finished), at(1_000)?);
        for status in STATUSES {
            for micros in [0, 899, 900, 901, 1_000, 2_000] {
                let kept = term.keeps(&state(0, status, micros)?, now);
                let over = status == DONE && micros <= 900;
                assert_eq!(kept.is_some(), !over, "{status} at {micros}");
                // One that is not finished may be from now on.
                let since = at(if status == DONE { micros } else { 1_000 })?;
                assert!(kept.is_none_or(|kept| kept.since == since));
            }
        }
        Ok(())
    }

    #[test]
    fn a_state_that_nobody_has_written_for_long_enough_does_not_keep_a_silent_job() -> Result<()> {
        let (term, now) = (term(Rule::Silent), at(1_000)?);
        for status in STATUSES {
            for micros in [0, 899, 900, 901, 1_000, 2_000] {
                let kept = term.keeps(&state(0, status, micros)?, now);
                let since = (micros > 900).then(|| at(micros));
                assert_eq!(kept.map(|kept| kept.since), since.transpose()?, "{status}");
            }
        }
        Ok(())
    }

    /// Which rules end a job that was created then and has these states, all of them old.
    #[test]
    fn a_job_is_over_by_the_rule_that_is_meant_for_it() -> Result<()> {
        let done = || Ok::<_, Invalid>(vec![state(0, DONE, 0)?, state(1, DONE, 0)?]);
        let failed = || Ok::<_, Invalid>(vec![state(0, DONE, 0)?, state(1, "-1", 0)?]);
        let missing = || Ok::<_, Invalid>(vec![state(1, DONE, 0)?]);
        for (created_at, states, finished, silent) in [
            (0, done()?, true, false),
            (0, failed()?, false, true),
            (0, missing()?, false, true),
            (0, vec![], false, true),
            (901, vec![], false, false),
            (901, done()?, true, false),
        ] {
            for (rule, expected) in [(Rule::Finished, finished), (Rule::Silent, silent)] {
                let mut walk = walk(rule, created_at)?;
                let next = walk.page(&states, None, at(1_000)?);
                let over = matches!(next, Next::Over);
                assert_eq!(over, expected, "{rule:?}, {created_at}: {states:?}");
            }
        }
        Ok(())
    }
}
