//! Deletes jobs that have been over for long enough, and removes the states of those that were marked as
//! deleted.
//!
//! A job is over by one of two rules: all its partitions have a state, and all its states are finished; or it has not
//! finished, and nobody has set a state of it. To be sure of that, a sweeper first takes the job out of the hands of
//! its writers, by the mark `closing`, and looks at all states again. A writer that comes meanwhile takes that mark
//! away, and the job stays.
//!
//! Jobs that go on cost little: of each, and for each rule, it is remembered what keeps it, and since when.
//! Before a job could be over, nothing of it is looked at; then that, before anything else.

mod rounds;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::record::Record;
use plimsoll_core::store::{Get, Scan};
use plimsoll_core::{Error, Key, Prefix, Result, Timestamp};

pub(crate) use rounds::Rounds;
pub(crate) use walk::Ages;

use self::rounds::Chore;
use self::walk::{Kept, Next, Rule, Walk, Witness};
use super::Jobs;
use super::delete::Removed;
use super::info::{Job, Phase};
use super::stored::{JOBS, Keys, job_of};

/// How many steps of a page each are made in one pass.
const STEPS_MAX: usize = 100;
/// Of how many jobs that which keeps them is read at once: each may be a large state.
const LOOKS_MAX: usize = 32;

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    /// Jobs that were over for long enough.
    pub(crate) jobs: u64,
    /// States that were removed.
    pub(crate) states: u64,
    /// What could not be done, and with which job.
    pub(crate) troubles: Vec<(String, Error)>,
    /// Whether there is more to look at.
    pub(crate) more: bool,
}

impl Jobs {
    /// Looks at some jobs, and deletes those that were over for this long, or for as long as they say
    /// themselves.
    pub(crate) async fn retire(
        &self,
        rounds: &mut Rounds,
        ages: Ages,
        retired: &mut Retired,
    ) -> Result<()> {
        let (mut now, mut steps) = (None, 0);
        rounds.go_by(ages);
        // A job that was taken out of the hands of its writers does not stay that way.
        while steps < STEPS_MAX || rounds.closes() {
            steps += 1;
            let Some(chore) = rounds.chores.pop_front() else {
                if steps > 1 && rounds.cursor.is_none() {
                    return Ok(());
                }
                self.list_chores(rounds, ages, &mut now, retired).await?;
                continue;
            };
            let job = chore.job().to_string();
            match self.chore(chore, rounds, &mut now, retired).await {
                Ok(()) => {}
                Err(error @ (Error::Unavailable(_) | Error::Closed)) => return Err(error),
                Err(error) => retired.troubles.push((job, error)),
            }
        }
        retired.more = !rounds.chores.is_empty() || rounds.cursor.is_some();
        Ok(())
    }

    /// Lists a page of jobs, and what is to be done with them.
    async fn list_chores(
        &self,
        rounds: &mut Rounds,
        ages: Ages,
        now: &mut Option<Timestamp>,
        retired: &mut Retired,
    ) -> Result<()> {
        let limit = self.engine.store().limits().page_max;
        let scan = Scan {
            cursor: rounds.cursor.take(),
            ..Scan::new(Prefix::new(JOBS)?, limit)
        };
        let page = self.scan(scan).await?;
        rounds.cursor = page.next;
        let mut walks = Vec::new();
        for record in &page.rows {
            let read =
                Job::read(record).and_then(|job| Ok((Keys::of(job.info.name.clone())?, job)));
            match read {
                Err(error) => {
                    let key = &record.key;
                    let name = job_of(key).map_or_else(|| key.to_string(), |job| job.to_string());
                    retired.troubles.push((name, error));
                }
                Ok((keys, job)) if job.phase == Phase::Deleted => {
                    rounds.forget(&keys.name);
                    if !job.expires {
                        rounds.chores.push_back(Chore::Remove(keys));
                    }
                }
                Ok((keys, job)) => walks.extend(Walk::new(keys, job, ages)),
            }
        }
        if !walks.is_empty() {
            let now = self.now(now).await?;
            let walks = self.not_kept(walks, rounds, now).await?;
            let walks = walks.into_iter().map(Box::new);
            rounds.chores.extend(walks.map(Chore::Walk));
        }
        Ok(())
    }

    /// Those that may be over by now, and are not kept by what kept them the last time.
    async fn not_kept(
        &self,
        mut walks: Vec<Walk>,
        rounds: &mut Rounds,
        now: Timestamp,
    ) -> Result<Vec<Walk>> {
        for walk in &mut walks {
            rounds.recall(walk, now);
        }
        walks.retain(|walk| !walk.is_kept());
        for walks in walks.chunks_mut(LOOKS_MAX) {
            let witnesses = walks.iter().flat_map(|walk| rounds.witnesses(walk));
            let witnesses: BTreeSet<Key> = witnesses.map(|(_, key)| key.clone()).collect();
            let states = self.states_at(witnesses.into_iter().collect()).await?;
            for walk in walks {
                let witnesses = rounds.witnesses(walk);
                let states = witnesses.filter_map(|(rule, key)| Some((rule, states.get(key)?)));
                let states: Vec<(Rule, &Record)> = states.collect();
                walk.kept_by(|term| {
                    let state = states.iter().find(|(rule, _)| *rule == term.rule);
                    state.and_then(|(_, state)| term.keeps(state, now))
                });
                rounds.remember(walk);
            }
        }
        walks.retain(|walk| !walk.is_kept());
        Ok(walks)
    }

    /// Those of these states that are there.
    async fn states_at(&self, keys: Vec<Key>) -> Result<BTreeMap<Key, Record>> {
        let store = self.engine.store();
        let mut found = BTreeMap::new();
        for keys in keys.chunks(store.limits().page_max) {
            let get = Get {
                keys: keys.to_vec(),
            };
            let states = self.patiently(|| store.get(get.clone())).await?;
            let states = states.into_iter().flatten();
            found.extend(states.map(|state| (state.key.clone(), state)));
        }
        Ok(found)
    }

    async fn chore(
        &self,
        chore: Chore,
        rounds: &mut Rounds,
        now: &mut Option<Timestamp>,
        retired: &mut Retired,
    ) -> Result<()> {
        let mut walk = match chore {
            Chore::Remove(keys) => {
                let mut states = 0;
                let removed = self.remove_some(&keys, &mut states).await;
                retired.states += states;
                self.engine.telemetry().states_removed(states);
                if removed? == Removed::Some {
                    rounds.chores.push_front(Chore::Remove(keys));
                }
                return Ok(());
            }
            Chore::Walk(walk) => walk,
        };
        if let Some(partition) = rounds.missing(&walk) {
            let scan = Scan::new(walk.keys.partition(partition)?, 1);
            if self.scan(scan).await?.rows.is_empty() {
                let (by, since) = (Witness::Missing(partition), self.now(now).await?);
                let kept = Kept { by, since };
                walk.kept_by(|term| (term.rule == Rule::Finished).then(|| kept.clone()));
            }
        }
        let next = match walk.is_kept() {
            true => Next::Kept,
            false => {
                let limit = self.engine.store().limits().page_max;
                let scan = Scan {
                    cursor: walk.cursor.clone(),
                    ..Scan::new(walk.keys.states.clone(), limit)
                };
                let page = self.scan(scan).await?;
                walk.page(&page.rows, page.next, self.now(now).await?)
            }
        };
        match next {
            Next::Walk => rounds.chores.push_front(Chore::Walk(walk)),
            Next::Kept => {
                rounds.remember(&walk);
                self.keep(&walk).await?;
            }
            Next::Over => {
                rounds.forget(&walk.keys.name);
                self.close(walk, rounds, retired).await?;
            }
        }
        Ok(())
    }

    /// Lets a job go on that was about to be deleted.
    async fn keep(&self, walk: &Walk) -> Result<()> {
        match walk.job.phase {
            Phase::Closing => (self.move_to(&walk.keys, &walk.job, Phase::Open).await).map(drop),
            Phase::Open | Phase::Deleted => Ok(()),
        }
    }

    /// Nothing keeps the job: takes it out of the hands of its writers, and looks again; or deletes it, if
    /// it was out of their hands all the time.
    async fn close(
        &self,
        walk: Box<Walk>,
        rounds: &mut Rounds,
        retired: &mut Retired,
    ) -> Result<()> {
        let to = match walk.job.phase {
            Phase::Open => Phase::Closing,
            Phase::Closing | Phase::Deleted => Phase::Deleted,
        };
        // Otherwise it goes on, or somebody else was faster.
        if let Some(revision) = self.move_to(&walk.keys, &walk.job, to).await? {
            rounds.chores.push_front(match to {
                Phase::Deleted => {
                    retired.jobs += 1;
                    self.engine.telemetry().retired();
                    let (job, rule) = (&walk.keys.name, walk.over_by().map_or("", Rule::as_str));
                    tracing::info!(jobID = %job, rule, "job is over, and deleted");
                    Chore::Remove(walk.keys)
                }
                phase @ (Phase::Open | Phase::Closing) => {
                    let job = Job {
                        phase,
                        revision,
                        ..walk.job.clone()
                    };
                    Chore::Walk(Box::new(walk.again(job)))
                }
            });
        }
        Ok(())
    }

    /// What the clock of the store says, asked once in a pass.
    async fn now(&self, now: &mut Option<Timestamp>) -> Result<Timestamp> {
        match *now {
            Some(now) => Ok(now),
            None => {
                let store = self.engine.store();
                Ok(*now.insert(self.patiently(|| store.ping()).await?))
            }
        }
    }
}
