//! Where a change is in the history.

use std::fmt;
use std::str::FromStr;

use plimsoll_core::change::{Change, Interest};
use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::store::{Changes, Start};
use plimsoll_core::{Position, Result, Store, Timestamp};

/// After a change: the entry that it is in, and which of those changes of the entry that the reader wants
/// to see. Its text means something to whoever reads the same changes again.
///
/// ```
/// use plimsoll_engine::history::Place;
/// let place: Place = "17.2".parse()?;
/// assert_eq!(place.to_string(), "17.2");
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    position: Position,
    /// Counted from 0; the highest number is after all of them.
    index: u32,
}

impl Place {
    /// Before everything.
    pub(crate) const START: Self = Self {
        position: Position::new(0),
        index: 0,
    };

    /// After everything that is in the history up to this position.
    pub(crate) fn after(position: Position) -> Self {
        Self {
            position,
            index: u32::MAX,
        }
    }

    /// Where a reader has to begin to find what comes after this.
    fn start(self) -> Start {
        match self.index {
            u32::MAX => Start::After(self.position),
            // The rest of the same entry has yet to come.
            _ => Start::After(Position::new(self.position.get().saturating_sub(1))),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            u32::MAX => write!(f, "{}", self.position),
            index => write!(f, "{}.{index}", self.position),
        }
    }
}

impl FromStr for Place {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (position, index) = match text.split_once('.') {
            Some((position, index)) => (position, index.parse().ok()),
            None => (text, Some(u32::MAX)),
        };
        let position = position.parse().ok().map(Position::new);
        match position.zip(index) {
            Some((position, index)) => Ok(Self { position, index }),
            None => {
                let expected = "a cursor that was answered for the same question".into();
                Err(Invalid::new("cursor", Problem::Malformed { expected }))
            }
        }
    }
}

/// A change that was seen, and the place to go on from.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// What changed.
    pub change: Change,
    /// When the store wrote it.
    pub at: Timestamp,
    /// A watch after this place goes on with the next change.
    pub place: Place,
}

/// Of these entries, the changes that somebody is interested in, after this place.
pub(crate) fn placed<'a>(
    entries: impl IntoIterator<Item = &'a plimsoll_core::change::Entry>,
    interest: &Interest,
    after: Place,
) -> Vec<Seen> {
    let mut placed = Vec::new();
    for entry in entries {
        let shown = entry
            .changes
            .iter()
            .filter(|change| interest.matches(change));
        for (index, change) in (0..).zip(shown) {
            let position = entry.position;
            let place = Place { position, index };
            if place > after {
                placed.push(Seen {
                    place,
                    at: entry.at,
                    change: change.clone(),
                });
            }
        }
    }
    placed
}

/// A part of the history.
pub(crate) struct Part {
    pub(crate) changes: Vec<Seen>,
    /// Everything up to here was read.
    pub(crate) upto: Place,
}

/// Reads what comes after a place, about as many changes as asked.
pub(crate) async fn read(
    store: &dyn Store,
    interest: &Interest,
    after: Place,
    limit: usize,
) -> Result<Part> {
    let page = store
        .changes(Changes {
            start: after.start(),
            interests: vec![interest.clone()],
            limit: limit.clamp(1, store.limits().page_max),
        })
        .await?;
    Ok(Part {
        changes: placed(&page.entries, interest, after),
        upto: Place::after(page.next).max(after),
    })
}

/// Where the history ends now.
pub(crate) async fn newest(store: &dyn Store) -> Result<Place> {
    let newest = store.changes(Changes {
        start: Start::Newest,
        interests: Vec::new(),
        limit: 1,
    });
    Ok(Place::after(newest.await?.next))
}
