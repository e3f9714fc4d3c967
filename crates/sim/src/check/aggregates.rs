//! What readers of job states are answered: never older than they may rely on, and the lowest status
//! of what there is. What barriers answer: what was true at some moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::error::Conflict;
use plimsoll_core::{Error, Name, Position, Result};
use plimsoll_engine::jobs::{NOT_STARTED, Scope, State, WARNING};

use super::Checker;
use super::sight::{Sight, wrongly_refused};
use super::states::{JobModel, Said};

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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited<'a> {
    pub(crate) job: &'a str,
    pub(crate) tag: &'a Name,
    pub(crate) wanted: i32,
    pub(crate) despite_warnings: bool,
    pub(crate) by: Waiter<'a>,
}

/// Who waits at a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter<'a> {
    /// Whose process writes nothing itself: since when.
    Onlooker(Since<'a>),
    /// A manager, which may see what it has written before others do.
    Manager {
        /// Its number.
        number: usize,
        /// When it had last set the tag back: what was before that does not count for it.
        set_back: Position,
    },
}

/// When a barrier began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since<'a> {
    /// In which process, and how often that had been overtaken by the end of the history.
    pub(crate) who: &'a str,
    pub(crate) overtaken: u32,
    /// Its process had been told of everything up to here.
    pub(crate) told: Position,
    /// Whatever comes after this is told while it waits.
    pub(crate) begun: Position,
}

impl<'a> Awaited<'a> {
    /// Since when, if its process writes nothing itself.
    fn since(&self) -> Option<Since<'a>> {
        match self.by {
            Waiter::Onlooker(since) => Some(since),
            Waiter::Manager { .. } => None,
        }
    }

    /// Only what there was after this, or came then, opens it.
    fn opens_after(&self, since: Option<Since<'_>>) -> Position {
        match self.by {
            Waiter::Onlooker(_) => since.map_or(Position::ZERO, |since| since.told),
            Waiter::Manager { set_back, .. } => set_back,
        }
    }

    /// Whether a partition with this status fails it.
    fn is_failed_by(&self, status: i32) -> bool {
        status < NOT_STARTED && !(self.despite_warnings && status == WARNING)
    }
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
        let wrong = miscounted(job, since, view).or_else(|| stale(job, since, view));
        let wrong = wrong.or_else(|| {
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
        let Some(job) = self.states.jobs.get(awaited.job) else {
            return;
        };
        let since = self.unbroken(job, awaited);
        let wrong = match answer {
            Ok(state) => {
                self.figures.barriers_reached += 1;
                never_there(job, awaited, since, state)
            }
            Err(Error::Conflict(conflict)) => match conflict.as_ref() {
                Conflict::PartitionFailed {
                    partition, status, ..
                } => {
                    self.figures.barriers_failed += 1;
                    never_failed(job, awaited, since, (*partition, *status))
                }
                Conflict::BarrierNotReached {
                    behind,
                    partition,
                    status,
                    ..
                } => {
                    self.figures.barriers_late += 1;
                    let late = Late {
                        behind: *behind,
                        first: (*status, *partition),
                    };
                    never_behind(job, awaited, late)
                }
                _ => self.wrongly_over(awaited, answer.as_ref().err()),
            },
            Err(error) => self.wrongly_over(awaited, Some(error)),
        };
        if let Some(wrong) = wrong {
            self.blame("barriers", format!("{awaited:?}: {wrong}"));
        }
    }

    /// What is wrong with an error that has nothing to do with how far the partitions are.
    fn wrongly_over(&self, awaited: &Awaited<'_>, error: Option<&Error>) -> Option<String> {
        let error = error?;
        match awaited.by {
            Waiter::Onlooker(since) => {
                let job = self.states.jobs.get(awaited.job);
                wrongly_refused(job, Sight::found(since.told), error)
            }
            Waiter::Manager { number, .. } => {
                let deleted = error.code() == "job_deleted";
                let right = deleted && self.is_over_for(number);
                let right = right || matches!(error, Error::Unavailable(_));
                (!right).then(|| format!("{error}, which is not so"))
            }
        }
    }

    /// A barrier still waits, although its process was told of everything up to this position.
    pub(crate) fn still_waits(&mut self, awaited: &Awaited<'_>, upto: Position) {
        let Some(job) = self.states.jobs.get(awaited.job) else {
            return;
        };
        let Some(since) = self.unbroken(job, awaited) else {
            return;
        };
        let between = |moment: &&Said| since.begun < moment.position && moment.position <= upto;
        let waited = (job.said.iter().filter(between)).any(|said| said.slot.1 == *awaited.tag);
        let decisive = |moment: &&Said| {
            let fails = moment.slot.1 == *awaited.tag && awaited.is_failed_by(moment.status);
            fails || lowest_at(job, awaited, moment) >= awaited.wanted
        };
        let moment = job.said.iter().filter(between).find(decisive);
        let wrong = moment.map(|moment| format!("{awaited:?}: waits in spite of {moment:?}"));
        self.figures.barriers_waiting += u64::from(waited);
        if let Some(wrong) = wrong {
            self.blame("barriers", wrong);
        }
    }

    /// An error that a barrier has nothing to do with: it was over when that began.
    pub(crate) fn error_before(&self, awaited: &Awaited<'_>) -> Option<(u32, i32)> {
        let (job, since) = (self.states.jobs.get(awaited.job)?, awaited.since()?);
        let errors = (job.said.iter())
            .filter(|said| said.slot.1 == *awaited.tag && awaited.is_failed_by(said.status));
        let mut over = errors.filter(|said| {
            let then = job.at(&said.slot, since.told);
            then.is_some_and(|then| then.position > said.position)
        });
        over.next().map(|said| (said.slot.0, said.status))
    }

    /// How all partitions once stood that were there, before the manager that waits for that set it back.
    pub(crate) fn taken_back(&self, awaited: &Awaited<'_>) -> Option<State> {
        let (job, set_back) = (
            self.states.jobs.get(awaited.job)?,
            awaited.opens_after(None),
        );
        let before = job.said.iter().filter(|said| said.position < set_back);
        let lowest = |moment: &Said| {
            let at = |partition| job.at(&(partition, awaited.tag.clone()), moment.position);
            let said = (0..moment.partitions).filter_map(at);
            said.min_by_key(|said| (said.status, said.slot.0))
        };
        let mut there = before
            .rev()
            .filter(|moment| lowest_at(job, awaited, moment) >= awaited.wanted);
        let lowest = there.next().and_then(lowest)?;
        let name = Name::new(awaited.job).ok()?;
        Some(State {
            status: lowest.status,
            version: lowest.version,
            ..State::not_started(name, lowest.slot.0, Some(awaited.tag.clone()))
        })
    }

    /// When it began, if its process was told of all changes since then, one after the other.
    fn unbroken<'a>(&self, job: &JobModel, awaited: &Awaited<'a>) -> Option<Since<'a>> {
        let since = awaited.since()?;
        let ended = job.ended_after(since.told) || job.loses_after(since.told);
        let overtaken = self.times_overtaken(since.who) > since.overtaken;
        (!ended && !overtaken).then_some(since)
    }
}

/// A number of partitions that the job did not have since then.
fn miscounted(job: &JobModel, since: Position, view: &View) -> Option<String> {
    let mut sizes = job.moments_since(since).map(|at| job.partitions_at(at));
    let had = sizes.any(|partitions| partitions == view.partitions);
    (!had).then(|| format!("it never had {} partitions", view.partitions))
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
    let shown = |said: &&Said| {
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

/// What is wrong with the lowest state that a barrier answered: all partitions must have been there at some moment since
/// it began, and none may have failed before that.
fn never_there(
    job: &JobModel,
    awaited: &Awaited<'_>,
    since: Option<Since<'_>>,
    lowest: &State,
) -> Option<String> {
    let told = awaited.opens_after(since);
    let held = |number: usize, moment: &Said| {
        let next = job.said.get(number + 1);
        let then = job.at(&(lowest.partition, awaited.tag.clone()), moment.position);
        let version = then.map_or(0, |said| said.version);
        let lowest_then = lowest_at(job, awaited, moment);
        lowest_then >= awaited.wanted
            && lowest_then == lowest.status
            && version == lowest.version
            && next.is_none_or(|next| next.position > told)
    };
    let mut moments = job.said.iter().enumerate();
    let Some((_, moment)) = moments.find(|(number, moment)| held(*number, moment)) else {
        return Some(format!("it was never there with {lowest:?}"));
    };
    let begun = since?.begun;
    let mut before = job.said.iter().filter(|said| {
        begun < said.position && said.position < moment.position && said.slot.1 == *awaited.tag
    });
    let failed = before.find(|said| awaited.is_failed_by(said.status))?;
    Some(format!("{failed:?} came before {moment:?}"))
}

/// What is wrong with the partition that a barrier was failed by: it must have had that status when it began, or since,
/// and not all may have been there in between.
fn never_failed(
    job: &JobModel,
    awaited: &Awaited<'_>,
    since: Option<Since<'_>>,
    (partition, status): (u32, i32),
) -> Option<String> {
    let slot = (partition, awaited.tag.clone());
    let told = since.map_or(Position::ZERO, |since| since.told);
    let failed = job.said.iter().find(|said| {
        let is_it = said.slot == slot && said.status == status;
        is_it && awaited.is_failed_by(status) && job.is_there_since(said, told)
    });
    let Some(failed) = failed else {
        return Some(format!("{slot:?} did not have {status}"));
    };
    let begun = since?.begun;
    let mut before = (job.said.iter())
        .filter(|moment| begun < moment.position && moment.position < failed.position);
    let there = before.find(|moment| lowest_at(job, awaited, moment) >= awaited.wanted)?;
    Some(format!(
        "{there:?}, when all were there, came before {failed:?}"
    ))
}

/// Who was not there in time.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// How many.
    behind: u32,
    /// The status and the partition of the one that is furthest behind.
    first: (i32, u32),
}

/// What is wrong with who was not there in time: so it must have stood at some moment that the process of the barrier
/// had been told of since it began.
fn never_behind(job: &JobModel, awaited: &Awaited<'_>, late: Late) -> Option<String> {
    let (status, partition) = late.first;
    if status >= awaited.wanted || awaited.is_failed_by(status) {
        return Some(format!("{late:?} is not behind"));
    }
    let slot = |partition| (partition, awaited.tag.clone());
    let at = |position, partition| {
        let said = job.at(&slot(partition), position);
        said.map_or(NOT_STARTED, |said| said.status)
    };
    let Some(since) = awaited.since() else {
        // It sees what it has written itself beside older states of others: each of these was there at some moment.
        let all = job.moments_since(Position::ZERO);
        let mut then = all.map(|moment| (job.partitions_at(moment), at(moment, partition)));
        let was = then.any(|(partitions, was)| {
            partition < partitions && (1..=partitions).contains(&late.behind) && was == status
        });
        return (!was).then(|| format!("{:?} never had {late:?}", slot(partition)));
    };
    let mut moments = job.moments_since(since.told);
    let stood = moments.any(|moment| {
        let statuses = (0..job.partitions_at(moment)).map(|one| (at(moment, one), one));
        let behind = statuses.clone().filter(|(one, _)| *one < awaited.wanted);
        statuses.min() == Some(late.first) && behind.count() == late.behind as usize
    });
    (!stood).then(|| format!("it never stood so that {late:?}"))
}

/// The lowest status of all partitions when this was said.
fn lowest_at(job: &JobModel, awaited: &Awaited<'_>, moment: &Said) -> i32 {
    let at = |partition: u32| job.at(&(partition, awaited.tag.clone()), moment.position);
    let status = |partition| at(partition).map_or(NOT_STARTED, |said| said.status);
    let lowest = (0..moment.partitions).map(status).min();
    lowest.unwrap_or(NOT_STARTED)
}
