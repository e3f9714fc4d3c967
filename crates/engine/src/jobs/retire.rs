//! Deletes jobs that have been over for long enough, and removes the states of those that were marked as
//! deleted.
//!
//! A job is over when all its partitions have a state, and all its states are finished. To be sure of that,
//! a sweeper first takes the job out of the hands of its writers, by the mark `closing`, and looks at all
//! states again. A writer that comes meanwhile takes that mark away, and the job stays.
//!
//! Jobs that go on cost little: of each, one state is remembered that keeps it, and since when. Before a job
//! could be over, nothing of it is looked at; then that state, before any other.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use plimsoll_core::record::Record;
use plimsoll_core::store::{Cursor, Get, Scan};
use plimsoll_core::{Error, Key, Name, Prefix, Result, Timestamp};

use super::Jobs;
use super::info::{Job, Phase};
use super::state::FINISHED;
use super::stored::{JOBS, Keys, STATUS};
use crate::fields::Reader;

/// How many steps of a page each are made in one pass.
const STEPS_MAX: usize = 100;
/// Of how many jobs it is remembered what keeps them: some hundred bytes each. Any others are looked at each
/// time.
const WITNESSES_MAX: usize = 100_000;

/// How far a sweeper is with the jobs.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// In the list of jobs.
    cursor: Option<Cursor>,
    /// What is to be done with those that were listed.
    chores: VecDeque<Chore>,
    /// What keeps jobs.
    kept: BTreeMap<Name, Kept>,
}

/// That a job is kept.
#[derive(Clone, Debug)]
struct Kept {
    by: Witness,
    /// It cannot have been over before this.
    since: Timestamp,
}

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

/// What keeps a job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Witness {
    /// This state is not finished, or not for long enough.
    State(Key),
    /// This partition has no state.
    Missing(u32),
}

#[derive(Debug)]
enum Chore {
    /// Its states are to be removed.
    Remove(Keys),
    /// Its states are to be looked at.
    Walk(Box<Walk>),
}

/// A walk through the states of a job.
#[derive(Debug)]
struct Walk {
    keys: Keys,
    job: Job,
    age: Duration,
    cursor: Option<Cursor>,
    /// Which partitions have a state.
    seen: Vec<bool>,
}

/// How a walk goes on.
enum Next {
    Walk,
    /// It ended: the job is kept.
    Kept(Kept),
    /// It ended: nothing keeps the job.
    Over,
}

impl Walk {
    fn new(keys: Keys, job: Job, age: Duration) -> Self {
        Self {
            keys,
            job,
            age,
            cursor: None,
            seen: Vec::new(),
        }
    }

    /// Takes in a page of states.
    fn page(&mut self, states: &[Record], next: Option<Cursor>, now: Timestamp) -> Next {
        // Not before: many walks may wait.
        self.seen.resize(self.job.info.partitions as usize, false);
        for state in states {
            if let Some(kept) = keeps(state, now, self.age) {
                return Next::Kept(kept);
            }
            let partition = self.keys.parse(&state.key).map(|(partition, _)| partition);
            let seen = partition.and_then(|partition| self.seen.get_mut(partition as usize));
            seen.into_iter().for_each(|seen| *seen = true);
        }
        self.cursor = next;
        let missing = self.seen.iter().zip(0..).find(|(seen, _)| !**seen);
        match (&self.cursor, missing) {
            (Some(_), _) => Next::Walk,
            (None, Some((_, partition))) => Next::Kept(Kept {
                by: Witness::Missing(partition),
                since: now,
            }),
            (None, None) => Next::Over,
        }
    }
}

/// Whether a state keeps its job: it is not finished, or not for long enough, or nobody can tell.
fn keeps(state: &Record, now: Timestamp, age: Duration) -> Option<Kept> {
    let by = || Witness::State(state.key.clone());
    match Reader(state).number::<i32>(STATUS) == Ok(FINISHED) {
        false => Some((by(), now)),
        true if state.modified_at > now.saturating_minus(age) => Some((by(), state.modified_at)),
        true => None,
    }
    .map(|(by, since)| Kept { by, since })
}

impl Jobs {
    /// Looks at some jobs, and deletes those that were over for this long, or for as long as they say
    /// themselves.
    pub(crate) async fn retire(
        &self,
        rounds: &mut Rounds,
        kept: Option<Duration>,
    ) -> Result<Retired> {
        let mut retired = Retired::default();
        let (mut now, mut steps) = (None, 0);
        // A job that was taken out of the hands of its writers does not stay that way.
        while steps < STEPS_MAX || rounds.closes() {
            steps += 1;
            let Some(chore) = rounds.chores.pop_front() else {
                if steps > 1 && rounds.cursor.is_none() {
                    return Ok(retired);
                }
                self.list_chores(rounds, kept, &mut now, &mut retired)
                    .await?;
                continue;
            };
            let job = chore.job().to_string();
            match self.chore(chore, rounds, &mut now, &mut retired).await {
                Ok(()) => {}
                Err(error @ (Error::Unavailable(_) | Error::Closed)) => return Err(error),
                Err(error) => retired.troubles.push((job, error)),
            }
        }
        retired.more = !rounds.chores.is_empty() || rounds.cursor.is_some();
        Ok(retired)
    }

    /// Lists a page of jobs, and what is to be done with them.
    async fn list_chores(
        &self,
        rounds: &mut Rounds,
        kept: Option<Duration>,
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
                Err(error) => retired.troubles.push((record.key.to_string(), error)),
                Ok((keys, job)) if job.phase == Phase::Deleted => {
                    rounds.kept.remove(&keys.name);
                    if !job.expires {
                        rounds.chores.push_back(Chore::Remove(keys));
                    }
                }
                Ok((keys, job)) => {
                    if let Some(age) = job.info.retain.or(kept) {
                        walks.push(Walk::new(keys, job, age));
                    }
                }
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
        walks.retain(|walk| !rounds.still_keeps(walk, now));
        let keys = walks.iter().filter_map(|walk| rounds.witness(walk));
        let keys: Vec<Key> = keys.cloned().collect();
        if keys.is_empty() {
            return Ok(walks);
        }
        let store = self.engine.store();
        let get = Get { keys };
        let states = self.patiently(|| store.get(get.clone())).await?;
        let states = states.into_iter().flatten();
        let states: BTreeMap<Key, Record> =
            states.map(|state| (state.key.clone(), state)).collect();
        walks.retain(|walk| {
            let state = rounds.witness(walk).and_then(|key| states.get(key));
            match state.and_then(|state| keeps(state, now, walk.age)) {
                Some(kept) => {
                    rounds.remember(&walk.keys.name, kept);
                    false
                }
                None => true,
            }
        });
        Ok(walks)
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
                let removed = self.remove_some(&keys).await?;
                retired.states += removed.states;
                if !removed.all {
                    rounds.chores.push_front(Chore::Remove(keys));
                }
                return Ok(());
            }
            Chore::Walk(walk) => walk,
        };
        let missing = match rounds.kept.get(&walk.keys.name).map(|kept| &kept.by) {
            Some(Witness::Missing(partition)) if walk.cursor.is_none() => Some(*partition),
            Some(_) | None => None,
        };
        if let Some(partition) = missing {
            let scan = Scan::new(walk.keys.partition(partition)?, 1);
            if self.scan(scan).await?.rows.is_empty() {
                let (by, since) = (Witness::Missing(partition), self.now(now).await?);
                rounds.remember(&walk.keys.name, Kept { by, since });
                return self.keep(&walk).await;
            }
        }
        let limit = self.engine.store().limits().page_max;
        let scan = Scan {
            cursor: walk.cursor.clone(),
            ..Scan::new(walk.keys.states.clone(), limit)
        };
        let page = self.scan(scan).await?;
        match walk.page(&page.rows, page.next, self.now(now).await?) {
            Next::Walk => rounds.chores.push_front(Chore::Walk(walk)),
            Next::Kept(kept) => {
                rounds.remember(&walk.keys.name, kept);
                self.keep(&walk).await?;
            }
            Next::Over => {
                rounds.kept.remove(&walk.keys.name);
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
        let Walk {
            keys, mut job, age, ..
        } = *walk;
        let to = match job.phase {
            Phase::Open => Phase::Closing,
            Phase::Closing | Phase::Deleted => Phase::Deleted,
        };
        // Otherwise it goes on, or somebody else was faster.
        if let Some(revision) = self.move_to(&keys, &job, to).await? {
            (job.phase, job.revision) = (to, revision);
            rounds.chores.push_front(match to {
                Phase::Deleted => {
                    retired.jobs += 1;
                    Chore::Remove(keys)
                }
                Phase::Open | Phase::Closing => Chore::Walk(Box::new(Walk::new(keys, job, age))),
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

impl Chore {
    fn job(&self) -> &Name {
        match self {
            Self::Remove(keys) => &keys.name,
            Self::Walk(walk) => &walk.keys.name,
        }
    }
}

impl Rounds {
    fn remember(&mut self, job: &Name, kept: Kept) {
        if self.kept.len() < WITNESSES_MAX || self.kept.contains_key(job) {
            self.kept.insert(job.clone(), kept);
        }
    }

    /// Whether a job cannot be over yet, whatever has happened to it. One that is closing is looked at.
    fn still_keeps(&self, walk: &Walk, now: Timestamp) -> bool {
        let kept = self.kept.get(&walk.keys.name);
        walk.job.phase == Phase::Open
            && kept.is_some_and(|kept| kept.since > now.saturating_minus(walk.age))
    }

    /// The state that kept a job the last time.
    fn witness(&self, walk: &Walk) -> Option<&Key> {
        match &self.kept.get(&walk.keys.name)?.by {
            Witness::State(key) => Some(key),
            Witness::Missing(_) => None,
        }
    }

    /// Whether a job comes next that is closing.
    fn closes(&self) -> bool {
        matches!(self.chores.front(), Some(Chore::Walk(walk)) if walk.job.phase == Phase::Closing)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::record::fields;
    use plimsoll_core::{Invalid, Revision};

    use super::*;

    #[test]
    fn only_a_state_that_has_been_finished_for_long_enough_does_not_keep_its_job()
    -> Result<(), Invalid> {
        let now = Timestamp::from_micros(1_000)?;
        let statuses = [
            "0",
            "1",
            "-1",
            "2147483646",
            "2147483647",
            "2147483648",
            "x",
            "",
        ];
        for status in statuses {
            for micros in [0, 899, 900, 901, 1_000, 2_000] {
                let state = Record {
                    key: Key::new("plimsoll.states.import.0-a")?,
                    fields: fields([("status", status)])?,
                    revision: Revision::new(1),
                    modified_at: Timestamp::from_micros(micros)?,
                    expires_at: None,
                };
                let over = status == "2147483647" && micros <= 900;
                let kept = keeps(&state, now, Duration::from_micros(100));
                assert_eq!(kept.is_some(), !over, "{status} at {micros}");
                // One that is not finished may be from now on.
                let since = if status == "2147483647" {
                    micros
                } else {
                    1_000
                };
                let since = Timestamp::from_micros(since)?;
                assert!(kept.is_none_or(|kept| kept.since == since));
            }
        }
        Ok(())
    }
}
