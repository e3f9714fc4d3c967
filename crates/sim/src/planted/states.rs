//! Bugs in job states, and in records that users keep.

use std::time::Duration;

use plimsoll_core::change::{Change, Interest};
use plimsoll_core::error::Conflict;
use plimsoll_core::record::Record;
use plimsoll_core::store::{ChangePage, Changes, Commit, Guard, Page, Write};
use plimsoll_core::{Error, Key, Name, Result};
use plimsoll_engine::jobs::{NOT_STARTED, State, StateEvent};

use super::Planted;
use crate::check::{Awaited, JOBS, SHELF, STATES, View};
use crate::dice::Dice;

impl Planted {
    /// What the store sees instead of this commit.
    pub(super) fn spoil_states(self, commit: &mut Commit) {
        let ignored = |guard: &Guard| match (self, guard) {
            (Self::UnguardedVersion, Guard::Field(key, name, _)) => {
                is_state(key) && ["version", "nonce"].contains(&name.as_str())
            }
            (Self::Unbound, Guard::Field(key, name, _)) => {
                is_state(key) && name.as_str() == "nonce"
            }
            (Self::LateManager, Guard::Field(key, ..)) => key.as_str().starts_with(JOBS),
            (Self::UnguardedSwap, Guard::Field(key, ..) | Guard::RecordAbsent(key)) => {
                key.as_str().starts_with(SHELF)
            }
            _ => false,
        };
        // A commit of guards alone would be none without them.
        if !commit.writes.is_empty() {
            commit.guards.retain(|guard| !ignored(guard));
        } else if self == Self::LateRepeat {
            let nobody = Key::new("nobody").map(Guard::RecordAbsent);
            commit.guards = nobody.into_iter().collect();
        }
        if self == Self::ForgottenEvent {
            for write in &mut commit.writes {
                let Write::Merge(merge) = write else { continue };
                let events = merge
                    .set
                    .iter_mut()
                    .find(|(name, _)| name.as_str() == "events");
                if let Some((_, events)) = events.filter(|_| is_state(&merge.key)) {
                    *events = "[]".into();
                }
            }
        }
    }

    /// What a reader of all states of a job is shown instead of these.
    pub(super) fn spoil_rows(self, rows: &mut Vec<Record>, prefix: &str, dice: &Dice) {
        let all = prefix.starts_with(STATES) && prefix.ends_with('.');
        if self == Self::LostAtSwitch && all && dice.chance(200) {
            rows.pop();
        }
    }

    /// What somebody is shown instead of these records.
    pub(crate) fn aged(self, mut page: Page<Record>, prefix: &str, who: &str) -> Page<Record> {
        let hour = Duration::from_secs(3_600);
        if self == Self::AgedStates && prefix.starts_with(STATES) && who.starts_with("sweeper") {
            for state in &mut page.rows {
                state.modified_at = state.modified_at.saturating_minus(hour);
            }
        }
        page
    }

    /// What a reader of a job is answered instead of this.
    pub(crate) fn view(self, view: &mut View) {
        match self {
            Self::HighestWins => {
                for (scope, spoke) in &mut view.spoke {
                    let said = view.states.iter().filter(|state| scope.covers(state));
                    if let Some(highest) = said.max_by_key(|state| state.status) {
                        *spoke = State::clone(highest);
                    }
                }
            }
            Self::OneTooMany => {
                let more = view.partitions;
                view.partitions += 1;
                // It has said nothing, and so it speaks where all others have.
                for (scope, spoke) in &mut view.spoke {
                    if scope.partition.is_none() && spoke.status > NOT_STARTED {
                        *spoke = State::not_started(spoke.job.clone(), more, scope.tag.clone());
                    }
                }
            }
            _ => {}
        }
    }

    /// What a reader of a job is answered instead of this.
    pub(crate) fn hides<T>(
        self,
        job: &str,
        answer: Result<T>,
        dice: &Dice,
        permille: u64,
    ) -> Result<T> {
        if self != Self::HiddenJob || answer.is_err() || !dice.chance(permille) {
            return answer;
        }
        let job = Name::new(job)?;
        Err(Conflict::JobDeleted { job }.into())
    }

    /// What a subscriber is told instead of these events.
    pub(crate) fn tells(self, events: &[StateEvent]) -> Vec<StateEvent> {
        let mut told = Vec::new();
        if self == Self::TurnedMoment {
            let moment = |event: &StateEvent| match event {
                StateEvent::State(state) if state.is_replay() => state.timestamp,
                _ => None,
            };
            for together in events.chunk_by(|one, other| moment(one) == moment(other)) {
                match moment(&together[0]) {
                    Some(_) => told.extend(together.iter().rev().cloned()),
                    None => told.extend_from_slice(together),
                }
            }
            return told;
        }
        for (number, event) in events.iter().enumerate() {
            let times = match (self, event) {
                (Self::NoMarker, StateEvent::ReplayComplete { .. }) => 0,
                (Self::SecondMarker, StateEvent::ReplayComplete { .. }) => 2,
                _ => 1,
            };
            told.extend(std::iter::repeat_n(event, times).cloned());
            let of_same = |other: &&StateEvent| slot(other).is_some() && slot(other) == slot(event);
            let before = events[..number].iter().rfind(of_same);
            told.extend(before.filter(|_| self == Self::FallingVersion).cloned());
        }
        told
    }

    /// Whether a subscriber goes on from here, and not from the start without being asked.
    pub(crate) fn resumes(self, history_is_removed: bool) -> bool {
        // Where everything is kept, nobody ever begins again.
        self != Self::NeedlessRestart || !history_is_removed
    }

    /// What somebody is told of those who are behind.
    pub(crate) fn late(self, answer: &mut Result<State>) {
        if let (Self::OverlookedLaggard, Err(Error::Conflict(conflict))) = (self, answer)
            && let Conflict::BarrierNotReached { behind, .. } = conflict.as_mut()
        {
            *behind -= 1;
        }
    }

    /// Whether a barrier that was answered this waits on.
    pub(crate) fn forgives(self, answer: &Option<Result<State>>) -> bool {
        let failed = |answer: &Result<State>| {
            let error = answer.as_ref().err();
            error.is_some_and(|error| error.code() == "partition_failed")
        };
        match self {
            Self::ForgivingBarrier => answer.as_ref().is_some_and(failed),
            Self::UnopenedBarrier => answer.as_ref().is_some_and(Result::is_ok),
            _ => false,
        }
    }

    /// What a barrier that waits is answered, if a partition had failed before.
    pub(crate) fn past_error(
        self,
        before: Option<(u32, i32)>,
        awaited: &Awaited<'_>,
    ) -> Option<Result<State>> {
        let (partition, status) = before.filter(|_| self == Self::PastError)?;
        let failed = Conflict::PartitionFailed {
            job: Name::new(awaited.job).ok()?,
            tag: awaited.tag.clone(),
            partition,
            status,
            message: String::new(),
        };
        Some(Err(failed.into()))
    }

    /// What a manager is answered that waits, if all partitions were there before it took that back.
    pub(crate) fn reopens(self, answer: &mut Result<State>, before: Option<State>) {
        if let (Self::ReopenedBarrier, Some(before)) = (self, before) {
            *answer = Ok(before);
        }
    }

    /// What one who follows states or records is shown instead of this page.
    pub(super) fn spoil_changes(self, page: &mut ChangePage, asked: &Changes, dice: &Dice) {
        let follows = |prefix: &str| {
            asked.interests.iter().any(|interest| {
                matches!(interest, Interest::Records(records) if records.as_str().starts_with(prefix))
            })
        };
        let hidden = |change: &Change| match (self, change) {
            (Self::LostState, Change::Put(record)) => is_state(&record.key),
            (Self::LostRemoval, Change::Removed { key, .. }) => key.as_str().starts_with(SHELF),
            _ => false,
        };
        if !follows(STATES) && !follows(SHELF) {
            return;
        }
        for entry in &mut page.entries {
            if entry.changes.iter().any(hidden) && dice.chance(100) {
                entry.changes.retain(|change| !hidden(change));
            }
        }
    }
}

/// Of what the version is that is told.
fn slot(event: &StateEvent) -> Option<(u32, Option<&Name>)> {
    match event {
        StateEvent::State(state) if !state.is_replay() => {
            Some((state.partition, state.tag.as_ref()))
        }
        StateEvent::State(_) | StateEvent::ReplayComplete { .. } | StateEvent::Restarted => None,
    }
}

pub(super) fn is_state(key: &Key) -> bool {
    key.as_str().starts_with(STATES)
}
