//! What readers of job states are answered: never older than they may rely on, and the lowest status
//! of what there is. What barriers answer: what was true at some moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::error::Conflict;
use plimsoll_core::{Error, Name, Position, Result};
use plimsoll_engine::jobs::{NOT_STARTED, Scope, State};

use super::Checker;
use super::states::JobModel;

/// Who speaks for a scope, with its status and version; of two, the lower.
type Speaker = (i32, u32, Option<Name>, u64);

/// What a reader was answered at one moment.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) partitions: u32,
    pub(crate) states: Vec<Arc<State>>,
    pub(crate) spoke: Vec<(Scope, State)>,
}

/// What a barrier waited for.
#[derive(Debug)]
pub(crate) struct Awaited<'a> {
    pub(crate) job: &'a str,
    pub(crate) tag: &'a Name,
    pub(crate) wanted: i32,
}

impl Checker {
    /// From here on, whatever somebody reads must be at least as new.
    pub(crate) fn reads(&self) -> Position {
        self.newest()
    }

    /// Somebody has read a job, after everything that had happened up to a position was told.
    pub(crate) fn read(&mut self, name: &str, since: Position, view: &View) {
        let Some(job) = self.states.jobs.get(name) else {
            return;
        };
        let wrong = stale(job, since, view).or_else(|| {
            let spoke = view.spoke.iter();
            let mut wrong = spoke.filter(|(scope, state)| speaker(state) != naive(view, scope));
            wrong.next().map(|(scope, state)| {
                let (got, lowest) = (speaker(state), naive(view, scope));
                format!("{scope:?}: {got:?} speaks, but {lowest:?} is lowest")
            })
        });
        self.figures.aggregates_read += 1;
        if let Some(wrong) = wrong {
            self.blame("aggregate", format!("{name}: {wrong}"));
        }
    }

    /// A barrier was answered.
    pub(crate) fn waited_at(&mut self, awaited: &Awaited<'_>, answer: &Result<State>) {
        let Awaited {
            job: name,
            tag,
            wanted,
            ..
        } = awaited;
        let Some(job) = self.states.jobs.get(*name) else {
            return;
        };
        let wrong = match answer {
            Ok(state) => {
                self.figures.barriers_reached += 1;
                let reached = held(job, awaited, state);
                (!reached).then(|| format!("{tag} was never at {wanted} with {state:?}"))
            }
            Err(Error::Conflict(conflict)) => match conflict.as_ref() {
                Conflict::PartitionFailed {
                    partition, status, ..
                } => {
                    self.figures.barriers_failed += 1;
                    let slot = (*partition, Name::clone(tag));
                    let failed = (job.said.iter())
                        .any(|said| said.slot == slot && said.status == *status && *status < 0);
                    (!failed).then(|| format!("{slot:?} never had {status}"))
                }
                _ => None,
            },
            Err(_) => None,
        };
        if let Some(wrong) = wrong {
            self.blame("barriers", format!("{name}: {wrong}"));
        }
    }
}

/// What is older than it may be, or was never there.
fn stale(job: &JobModel, since: Position, view: &View) -> Option<String> {
    for state in &view.states {
        let slot = (state.partition, state.tag.clone()?);
        let said = job.version(&slot, state.version);
        if !said.is_some_and(|said| said.is(state)) {
            return Some(format!("{state:?} was never there"));
        }
    }
    if job.ended_after(since) {
        return None;
    }
    let there = job.all_at(&Scope::all(), since);
    let gone = view.states.iter().find(|state| {
        let slot = (state.partition, state.tag.clone());
        let said = slot.1.map(|tag| (slot.0, tag));
        let said = said.and_then(|slot| job.version(&slot, state.version));
        said.is_some_and(|said| {
            said.position <= since
                && there.get(&said.slot).map(|now| now.version) != Some(state.version)
        })
    });
    if let Some(gone) = gone {
        return Some(format!("{gone:?} is not what there was at {since}"));
    }
    let shown = |said: &&super::states::Said| {
        let mut states = view.states.iter();
        !states
            .any(|state| (state.partition, state.tag.as_ref()) == (said.slot.0, Some(&said.slot.1)))
    };
    // Of a job that was deleted before, what is left may go, and another may begin.
    let mut there = (there.into_values()).filter(|said| !job.removed_after(&said.slot, since));
    let missing = there.find(shown);
    missing.map(|said| format!("{said:?} is not shown"))
}

fn speaker(state: &State) -> Speaker {
    (
        state.status,
        state.partition,
        state.tag.clone(),
        state.version,
    )
}

/// Who has the lowest status, found by looking at everybody.
fn naive(view: &View, scope: &Scope) -> Speaker {
    let said = view.states.iter().filter(|state| scope.covers(state));
    let said = said.filter(|state| state.partition < view.partitions);
    let mut all: Vec<Speaker> = said.map(|state| speaker(state)).collect();
    let spoken: BTreeSet<u32> = all.iter().map(|(_, partition, ..)| *partition).collect();
    let partitions = (0..view.partitions).filter(|p| scope.partition.is_none_or(|of| of == *p));
    let silent = partitions.filter(|partition| !spoken.contains(partition));
    all.extend(silent.map(|partition| (NOT_STARTED, partition, scope.tag.clone(), 0)));
    all.sort();
    all.into_iter().next().unwrap_or_default()
}

/// Whether all partitions had at least this status at some moment, and this was the lowest then.
fn held(job: &JobModel, awaited: &Awaited<'_>, lowest: &State) -> bool {
    job.said.iter().any(|moment| {
        let at = |partition: u32| job.at(&(partition, awaited.tag.clone()), moment.position);
        let status = |partition| at(partition).map_or(NOT_STARTED, |said| said.status);
        let there = |partition: u32| status(partition) >= awaited.wanted;
        let version = at(lowest.partition).map_or(0, |said| said.version);
        (0..moment.partitions).all(there)
            && version == lowest.version
            && lowest.status >= awaited.wanted
    })
}
