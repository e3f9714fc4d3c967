//! What subscribers of job states are told: what there was at one moment, a marker, then everything
//! that followed, in order, once.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::store::Changes;
use plimsoll_core::{Error, Position, Revision, Store, Timestamp};
use plimsoll_engine::jobs::{Cursor, Scope, State, StateEvent};

use super::Checker;
use super::sight::Sight;
use super::states::{JobModel, Slot};

/// What a subscriber was told so far. It survives crashes, as its cursor does.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    job: &'static str,
    scope: Scope,
    /// While what there is is told: that.
    replay: Option<BTreeMap<Slot, u64>>,
    /// When the last of it was set.
    newest: Option<(Timestamp, Revision)>,
    /// It would go on with what follows this.
    reads_after: Position,
    /// Of everything that was ever written, the first that it has not been told of.
    next: usize,
}

/// How a subscription began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began<'a> {
    /// In which process.
    pub(crate) who: &'a str,
    pub(crate) at: Duration,
    /// What whoever began it knew of the job.
    pub(crate) sight: Sight,
}

impl Telling {
    /// Nothing was told.
    pub(crate) fn new(job: &'static str, scope: Scope) -> Self {
        Self {
            job,
            scope,
            replay: Some(BTreeMap::new()),
            newest: None,
            reads_after: Position::ZERO,
            next: 0,
        }
    }

    /// Whether the marker has yet to come.
    pub(crate) fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }
}

impl Checker {
    /// A subscriber was told something.
    pub(crate) fn told(&mut self, telling: &mut Telling, event: &StateEvent) {
        let empty = JobModel::default();
        let job = self.states.jobs.get(telling.job).unwrap_or(&empty);
        let told = match event {
            StateEvent::State(state) => match (state.is_replay(), state.cursor()) {
                (true, None) => told_of_past(job, telling, state),
                (false, Some(at)) => told_of_change(job, telling, state, position_of(&at)),
                _ => Err("a cursor belongs to what is new, and only to that".into()),
            },
            StateEvent::ReplayComplete { cursor } => {
                told_of_marker(job, telling, position_of(cursor))
            }
            StateEvent::Restarted if telling.replay.is_some() => {
                Err("it begins again before it was told everything".into())
            }
            // A cursor does not lead on into a job that was created again.
            StateEvent::Restarted
                if !self.is_removed_after(telling.reads_after)
                    && !job.ended_after(told_of(job, telling)) =>
            {
                Err("it begins again, though nothing is missing".into())
            }
            StateEvent::Restarted => {
                telling.replay = Some(BTreeMap::new());
                telling.newest = None;
                self.figures.replays_again += 1;
                Ok(())
            }
        };
        if let Err(wrong) = told {
            self.blame(
                "replay",
                format!("{} {:?}: {wrong}", telling.job, telling.scope),
            );
        }
    }

    /// A subscription ended: because the job did, after everything before that was told; or because the
    /// store was out of reach for longer than it is patient.
    pub(crate) fn told_of_end(&mut self, telling: &Telling, began: Began<'_>, end: Option<&Error>) {
        let Began { who, at, sight } = began;
        if matches!(end, Some(Error::Unavailable(_))) {
            self.figures.gave_up += 1;
        }
        let Some(job) = self.states.jobs.get(telling.job) else {
            return;
        };
        let wrong = match end {
            Some(Error::Unavailable(_)) if self.may_give_up(who, at) => None,
            Some(error @ Error::Unavailable(_)) => Some(format!("{who} gave up early: {error}")),
            Some(error) if error.code() == "job_deleted" => {
                let left = untold(job, telling).map(|left| job.said[left].position);
                let told_of = told_of(job, telling);
                let fits =
                    |ended: &Position| left.is_none_or(|left| left > *ended) && told_of < *ended;
                // What follows something that is not kept any more cannot be told either.
                let untellable = telling.replay.is_some() || self.is_removed_after(told_of);
                let mut since = job.ended.iter().filter(|ended| **ended > sight.since);
                let over = since.any(|ended| untellable || fits(ended));
                let wrong =
                    "it ended, and the job did not since, or not everything before was told";
                (!over).then(|| format!("{wrong}: {}", sight.since))
            }
            Some(error) => Some(format!("it ended: {error}")),
            None => Some("it ended without a word".to_owned()),
        };
        if let Some(wrong) = wrong {
            self.blame(
                "replay",
                format!("{} {:?}: {wrong}", telling.job, telling.scope),
            );
        }
    }

    /// Whether something after this position is not kept any more.
    pub(super) fn is_removed_after(&self, position: Position) -> bool {
        let after = Changes::after(position, 1);
        let page = (self.source.live()).and_then(|store| store.changes(after).now_or_never());
        matches!(page, Some(Err(Error::NotFound(_))))
    }

    /// Whether a subscriber knows everything about a job that there is.
    pub(crate) fn is_told_all(&self, telling: &Telling) -> bool {
        let Some(job) = self.states.jobs.get(telling.job) else {
            return true;
        };
        !job.is_alive() || (telling.replay.is_none() && untold(job, telling).is_none())
    }
}

/// Where the last state is that it was told, or need not be.
fn told_of(job: &JobModel, telling: &Telling) -> Position {
    let last = telling.next.checked_sub(1);
    last.map_or(Position::ZERO, |last| job.said[last].position)
}

/// The next state that it has to be told.
fn untold(job: &JobModel, telling: &Telling) -> Option<usize> {
    let mut said = job.said.iter().enumerate().skip(telling.next);
    let next = said.find(|(_, said)| said.is_in(&telling.scope));
    next.map(|(number, _)| number)
}

fn told_of_past(job: &JobModel, telling: &mut Telling, state: &State) -> Result<(), String> {
    let Some(tag) = state.tag.clone() else {
        return Err("a state without a tag".into());
    };
    let slot = (state.partition, tag);
    let said = job.version(&slot, state.version);
    let of_scope = said.filter(|said| said.is(state) && said.is_in(&telling.scope));
    let Some(said) = of_scope else {
        return Err(format!("{state:?} was {said:?}"));
    };
    let (at, before) = ((said.at, said.revision), telling.newest);
    if before.is_some_and(|before| before > at) {
        return Err(format!("{slot:?} was set before what was told before"));
    }
    telling.newest = Some(at);
    match &mut telling.replay {
        Some(replay) => match replay.insert(slot, state.version) {
            None => Ok(()),
            Some(_) => Err("one state twice".into()),
        },
        None => Err(format!("{slot:?} is told as past after the marker")),
    }
}

fn told_of_marker(job: &JobModel, telling: &mut Telling, at: Position) -> Result<(), String> {
    let Some(told) = telling.replay.take() else {
        return Err("a second marker".into());
    };
    let there = job.all_at(&telling.scope, at).into_iter();
    let there: BTreeMap<Slot, u64> = there.map(|(slot, said)| (slot, said.version)).collect();
    telling.next = job.said.partition_point(|said| said.position <= at);
    telling.reads_after = at;
    match told == there {
        true => Ok(()),
        false => Err(format!("told {told:?}, but at {at} there was {there:?}")),
    }
}

fn told_of_change(
    job: &JobModel,
    telling: &mut Telling,
    state: &State,
    at: Position,
) -> Result<(), String> {
    if telling.replay.is_some() {
        return Err("something new before the marker".into());
    }
    let Some(next) = untold(job, telling) else {
        return Err(format!("{state:?} is told again"));
    };
    let said = &job.said[next];
    if !said.is(state) || said.position != at {
        return Err(format!("{state:?} at {at}, but {said:?} comes next"));
    }
    telling.next = next + 1;
    // More may have changed in the same entry.
    telling.reads_after = Position::new(at.get().saturating_sub(1));
    Ok(())
}

/// How far the history had come when a subscriber was told this, if that says so.
pub(crate) fn place_of(event: &StateEvent) -> Option<Position> {
    event.cursor().as_ref().map(position_of)
}

/// The position of a cursor, which its text begins with.
fn position_of(cursor: &Cursor) -> Position {
    let text = cursor.to_string();
    let digits = text.split(|c: char| !c.is_ascii_digit()).next();
    Position::new(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
}
