//! What subscribers are told, many states at a time.

use std::ops::Range;
use std::sync::Arc;

use super::event::{Cursor, Point, StateEvent};
use super::portion::{LentState, Portion};
use crate::jobs::State;

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
    /// Changes may be missing: what was written since the cursor is not kept any more. What there is follows as another
    /// replay.
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
    portion: Arc<Portion>,
    /// Which of it, at least one.
    some: Range<usize>,
}

impl States {
    pub(super) fn new(portion: Arc<Portion>, some: Range<usize>) -> Self {
        Self { portion, some }
    }

    /// The states, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<State>> {
        self.portion
            .covered(self.some.clone())
            .map(|(_, state)| state)
    }

    /// The same as single events.
    pub fn events(&self) -> impl Iterator<Item = StateEvent<LentState<'_>>> {
        let told = self.portion.covered(self.some.clone());
        told.map(|(index, _)| StateEvent::State(LentState::new(&self.portion, index)))
    }

    /// Whether they were there before the subscription began.
    pub fn is_replay(&self) -> bool {
        self.portion.is_replay()
    }

    /// Goes on after the last of them; `None` during the replay, which can only begin again.
    pub fn cursor(&self) -> Option<Cursor> {
        let some = self.portion.all().get(self.some.clone());
        // Also after those of other scopes, which it passes.
        let last = some.and_then(<[_]>::last).filter(|_| !self.is_replay());
        last.map(|told| self.portion.cursor(told.place))
    }
}
