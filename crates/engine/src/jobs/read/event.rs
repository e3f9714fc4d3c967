//! What subscribers ask for and are told.

use std::fmt;
use std::str::FromStr;

use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::{Name, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::Place;
use crate::jobs::info::Life;
use crate::jobs::{LentState, ToldState};

/// How to subscribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// How many events are buffered at most: 64, and never less than 4. One who is slower than that lags
    /// and loses nothing.
    pub depth: usize,
    /// Goes on after the event that had this cursor, instead of beginning with what there is. No
    /// [`ReplayComplete`](StateEvent::ReplayComplete) comes then. If the history does not reach back so
    /// far any more, it begins with [`Restarted`](StateEvent::Restarted) and what there is.
    pub after: Option<Cursor>,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self {
            depth: 64,
            after: None,
        }
    }
}

/// Where a subscription was in the history of a job. Its text can be kept.
///
/// ```
/// use plimsoll_engine::jobs::Cursor;
/// let cursor: Cursor = "17.2:1.1767225600000000@import".parse()?;
/// assert_eq!(cursor.to_string(), "17.2:1.1767225600000000@import");
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor {
    // Behind a pointer, so that an event has room for a state that is told and no more: it is moved for each who takes
    // it, whole.
    at: Box<At>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    job: Name,
    /// Of the job: one that was created again has another.
    life: Life,
    place: Place,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let At { job, life, place } = self.at.as_ref();
        let (generation, created_at) = (life.generation, life.created_at.as_micros());
        write!(f, "{place}:{generation}.{created_at}@{job}")
    }
}

impl FromStr for Cursor {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (place, job) = text.split_once('@').ok_or_else(malformed)?;
        let (place, life) = place.split_once(':').ok_or_else(malformed)?;
        let (generation, created_at) = life.split_once('.').ok_or_else(malformed)?;
        let created_at = created_at.parse().map_err(|_| malformed())?;
        let life = Life {
            generation: generation.parse().map_err(|_| malformed())?,
            created_at: Timestamp::from_micros(created_at).map_err(|_| malformed())?,
        };
        let job = Name::for_field("cursor", job)?;
        Ok(Self::new(job, life, place.parse()?))
    }
}

impl TryFrom<String> for Cursor {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

impl Cursor {
    pub(crate) fn new(job: Name, life: Life, place: Place) -> Self {
        let at = Box::new(At { job, life, place });
        Self { at }
    }

    /// Where it is, if it is one of this job; `None`: what it belongs to is over.
    pub(crate) fn of(&self, job: &Name, life: Life) -> Result<Option<Place>, Invalid> {
        match self.at.job == *job {
            true => Ok((self.at.life == life).then_some(self.at.place)),
            false => Err(foreign()),
        }
    }
}

fn malformed() -> Invalid {
    let expected = "a cursor of a subscription, like 17.2:1.1767225600000000@import".into();
    Invalid::new("cursor", Problem::Malformed { expected })
}

fn foreign() -> Invalid {
    let expected = "a cursor of a subscription to the same job".into();
    Invalid::new("cursor", Problem::Malformed { expected })
}

/// What a subscription tells between states.
#[derive(Debug)]
pub(crate) enum Point {
    ReplayComplete(Cursor),
    Restarted,
}

impl<S> From<Point> for StateEvent<S> {
    fn from(point: Point) -> Self {
        match point {
            Point::ReplayComplete(cursor) => Self::ReplayComplete { cursor },
            Point::Restarted => Self::Restarted,
        }
    }
}

/// What a subscription tells: [`Subscription::next`](crate::jobs::Subscription::next) with a state that is lent, its
/// `Stream` with one that is one's own.
#[derive(Clone, Debug, PartialEq)]
pub enum StateEvent<S = ToldState> {
    /// A state.
    State(S),
    /// Everything that was there has been told. What follows is what changes.
    ReplayComplete {
        /// Goes on from here.
        cursor: Cursor,
    },
    /// Changes may be missing: what was written since the cursor is not kept any more. What there is follows as another
    /// replay, up to another [`ReplayComplete`](Self::ReplayComplete).
    Restarted,
}

impl<S> StateEvent<S> {
    fn cursor_by(&self, of: impl FnOnce(&S) -> Option<Cursor>) -> Option<Cursor> {
        match self {
            Self::State(state) => of(state),
            Self::ReplayComplete { cursor } => Some(cursor.clone()),
            Self::Restarted => None,
        }
    }
}

impl StateEvent {
    /// Goes on after this event; `None` during the replay, which can only begin again.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor_by(ToldState::cursor)
    }
}

impl StateEvent<LentState<'_>> {
    /// Goes on after this event; `None` during the replay, which can only begin again.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor_by(|state| state.cursor())
    }

    /// It as one's own, whatever the subscription tells next.
    #[inline]
    pub fn keep(self) -> StateEvent {
        match self {
            Self::State(state) => StateEvent::State(state.keep()),
            Self::ReplayComplete { cursor } => StateEvent::ReplayComplete { cursor },
            Self::Restarted => StateEvent::Restarted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_no_larger_than_a_state_that_is_told_and_what_it_is() {
        assert!(size_of::<StateEvent>() <= size_of::<ToldState>() + size_of::<usize>());
    }
}
