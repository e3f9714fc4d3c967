//! What subscribers are told, many states at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::{Cursor, Point};
use crate::history::{Place, Share};
use crate::jobs::{Scope, State};

/// What a subscription tells at once: see
/// [`Subscription::next_batch`](crate::jobs::Subscription::next_batch).
#[derive(Debug)]
pub enum StateBatch {
    /// Some states, at least one.
    States(States),
    /// Everything that was there has been told. What follows is what changes.
    ReplayComplete {
        /// Goes on from here.
        cursor: Cursor,
    },
    /// Changes are missing: they were not kept long enough. What there is follows as another replay.
    Restarted,
}

impl From<Point> for StateBatch {
    fn from(point: Point) -> Self {
        match point {
            Point::ReplayComplete(cursor) => Self::ReplayComplete { cursor },
            Point::Restarted => Self::Restarted,
        }
    }
}

/// States in the order in which they are told. All subscribers share those that are live: whoever only looks
/// at them holds none of them.
#[derive(Debug)]
pub struct States {
    told: Told,
}

#[derive(Debug)]
enum Told {
    Replay(VecDeque<Arc<State>>),
    Live {
        /// Also of other scopes.
        share: Share<Place, Arc<State>>,
        scope: Scope,
        cursor: Cursor,
    },
}

impl States {
    pub(super) fn replay(states: VecDeque<Arc<State>>) -> Self {
        let told = Told::Replay(states);
        Self { told }
    }

    /// Those of a scope; the cursor is after all of them.
    pub(super) fn live(share: Share<Place, Arc<State>>, scope: Scope, cursor: Cursor) -> Self {
        let told = Told::Live {
            share,
            scope,
            cursor,
        };
        Self { told }
    }

    /// The states, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<State>> {
        let (replay, live) = match &self.told {
            Told::Replay(states) => (Some(states), None),
            Told::Live { share, scope, .. } => (None, Some(covered(share, scope))),
        };
        replay
            .into_iter()
            .flatten()
            .chain(live.into_iter().flatten())
    }

    /// Whether they were there before the subscription began.
    pub fn is_replay(&self) -> bool {
        matches!(self.told, Told::Replay(_))
    }

    /// Goes on after the last of them; `None` during the replay, which can only begin again.
    pub fn cursor(&self) -> Option<&Cursor> {
        match &self.told {
            Told::Replay(_) => None,
            Told::Live { cursor, .. } => Some(cursor),
        }
    }
}

/// What is left of a share, as far as it is of a scope.
pub(super) fn covered<'a>(
    share: &'a Share<Place, Arc<State>>,
    scope: &'a Scope,
) -> impl Iterator<Item = &'a Arc<State>> {
    let states = share.left().iter().map(|told| &told.event);
    states.filter(|state| scope.covers(state))
}
