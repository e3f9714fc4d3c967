//! Where a change is in the history.

use std::fmt;
use std::str::FromStr;

use plimsoll_core::change::{Change, Entry, Interest};
use plimsoll_core::error::{Invalid, NotFound, Problem};
use plimsoll_core::ids::Fingerprint;
use plimsoll_core::store::{Changes, Start};
use plimsoll_core::{Error, Position, Result, Store, Timestamp};

/// After a change: the entry that it is in, and which of those changes of the entry that the reader wants
/// to see. Its text can be kept. One between the changes of an entry carries a mark of what was watched,
/// and is refused by those who watch something else.
///
/// ```
/// use plimsoll_engine::history::Place;
/// let place: Place = "17.2-00c0ffee".parse()?;
/// assert_eq!(place.to_string(), "17.2-00c0ffee");
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    position: Position,
    /// Counted from 0; the highest number is after all of them.
    index: u32,
    /// Inside the engine, where it is clear what is watched, there is none.
    mark: Option<Mark>,
}

/// Tells what is watched from other things: long enough to tell a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark(u32);

impl Mark {
    pub(crate) fn of(interest: &Interest) -> Self {
        // An interest is text and numbers, which always have such a form.
        let text = serde_json::to_vec(interest).unwrap_or_default();
        let bits = Fingerprint::of(&text).as_u128().to_be_bytes();
        Self(u32::from_be_bytes([bits[0], bits[1], bits[2], bits[3]]))
    }
}

impl Place {
    /// Before everything.
    pub(crate) const START: Self = Self {
        position: Position::new(0),
        index: 0,
        mark: None,
    };

    /// After everything that is in the history up to this position.
    pub(crate) fn after(position: Position) -> Self {
        Self {
            position,
            index: u32::MAX,
            mark: None,
        }
    }

    /// Places for so many changes that the history has left out: one after the other, behind all changes of the entry, up to
    /// this one after it.
    pub(crate) fn unheard(self, count: usize) -> impl Iterator<Item = Self> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        (0..count).rev().map(move |before| Self {
            index: self.index.saturating_sub(before),
            ..self
        })
    }

    /// Whether what follows may be something that the history has left out.
    fn is_unheard(self) -> bool {
        // No entry has so many changes.
        (u32::MAX / 2..u32::MAX).contains(&self.index)
    }

    /// As it is told to those who watch this. What is after a whole entry is the same for everybody.
    pub(crate) fn marked(self, mark: Mark) -> Self {
        Self {
            mark: (self.index != u32::MAX).then_some(mark),
            ..self
        }
    }

    /// As it was before it was told to those who watch this; `Invalid`, if it was told to others.
    pub(crate) fn unmarked(self, mark: Mark) -> Result<Self, Invalid> {
        let unmarked = Self { mark: None, ..self };
        match unmarked.marked(mark) == self {
            true => Ok(unmarked),
            false => Err(foreign()),
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
        write!(f, "{}", self.position)?;
        if self.index != u32::MAX {
            write!(f, ".{}", self.index)?;
        }
        match self.mark {
            Some(Mark(mark)) => write!(f, "-{mark:08x}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Place {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse(text).ok_or_else(foreign)
    }
}

fn parse(text: &str) -> Option<Place> {
    let Some((position, rest)) = text.split_once('.') else {
        return Some(Place::after(Position::new(text.parse().ok()?)));
    };
    let (index, mark) = match rest.split_once('-') {
        Some((index, mark)) => (index, Some(Mark(u32::from_str_radix(mark, 16).ok()?))),
        None => (rest, None),
    };
    Some(Place {
        position: Position::new(position.parse().ok()?),
        index: index.parse().ok()?,
        mark,
    })
}

fn foreign() -> Invalid {
    let expected = "a cursor that was answered for the same question".into();
    Invalid::new("cursor", Problem::Malformed { expected })
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
    entries: impl IntoIterator<Item = &'a Entry>,
    interest: &Interest,
    after: Place,
) -> Vec<Seen> {
    let seen = |entry: &'a Entry| {
        places(entry, interest)
            .filter(|(place, _)| *place > after)
            .map(|(place, change)| Seen {
                place,
                at: entry.at,
                change: change.clone(),
            })
    };
    entries.into_iter().flat_map(seen).collect()
}

/// Of this entry, the changes that somebody is interested in, and where they are.
pub(crate) fn places<'a>(
    entry: &'a Entry,
    interest: &Interest,
) -> impl Iterator<Item = (Place, &'a Change)> {
    let position = entry.position;
    let shown = (entry.changes.iter()).filter(|change| interest.matches(change));
    let place = move |index| Place {
        position,
        index,
        mark: None,
    };
    shown
        .zip(0..)
        .map(move |(change, index)| (place(index), change))
}

/// A part of the history.
pub(crate) struct Part {
    pub(crate) changes: Vec<Seen>,
    /// Everything up to here was read.
    pub(crate) upto: Place,
}

/// Reads what comes after a place, about as many changes as asked. `NotFound::History`: that is not kept
/// any more, or this history never had such a place.
pub(crate) async fn read(
    store: &dyn Store,
    interest: &Interest,
    after: Place,
    limit: usize,
) -> Result<Part> {
    if after.is_unheard() {
        let oldest = after.position;
        return Err(NotFound::History { oldest }.into());
    }
    let page = store
        .changes(Changes {
            start: after.start(),
            interests: vec![interest.clone()],
            limit: limit.clamp(1, store.limits().page_max),
        })
        .await?;
    let upto = Place::after(page.next);
    if upto < after {
        // Not even the entry that it is in was ever written.
        let oldest = page.next;
        return Err(NotFound::History { oldest }.into());
    }
    Ok(Part {
        changes: placed(&page.entries, interest, after),
        upto,
    })
}

/// Whoever goes on from a place needs a history that is in one order for all.
pub(crate) fn in_order(store: &dyn Store) -> Result<()> {
    match store.capabilities().total_order {
        true => Ok(()),
        false => Err(Error::Unsupported(
            "this store has no order of all changes (total_order), so that nobody can watch them"
                .into(),
        )),
    }
}

/// Where the history ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Up to here it can be read: everything before has happened, or never will. Whoever watches from here on, and looks
    /// then, misses nothing.
    pub(crate) readable: Place,
    /// The newest entry there is. Whoever was told up to here knows whatever could be read before.
    pub(crate) newest: Place,
}

/// Where the history ends now.
pub(crate) async fn end(store: &dyn Store) -> Result<End> {
    in_order(store)?;
    let page = store.changes(Changes {
        start: Start::Newest,
        interests: Vec::new(),
        limit: 1,
    });
    let page = page.await?;
    Ok(End {
        readable: Place::after(page.next),
        newest: Place::after(page.newest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Prefix;

    fn mark(prefix: &str) -> Mark {
        Mark::of(&Interest::Records(Prefix::new(prefix).unwrap()))
    }

    fn place(index: u32) -> Place {
        Place {
            position: Position::new(17),
            index,
            mark: None,
        }
    }

    #[test]
    fn a_place_within_an_entry_belongs_to_what_was_watched() {
        for index in [0, 2, u32::MAX - 1] {
            let told = place(index).marked(mark("a."));
            assert_eq!(told.unmarked(mark("a.")), Ok(place(index)));
            assert_eq!(told.unmarked(mark("b.")), Err(foreign()));
            assert_eq!(place(index).unmarked(mark("a.")), Err(foreign()));
        }
        let told = place(u32::MAX).marked(mark("a."));
        assert_eq!(told.unmarked(mark("b.")), Ok(place(u32::MAX)));
    }

    /// Places are kept by users: their marks must stay the same.
    #[test]
    fn a_place_is_what_its_text_says() {
        let told = place(2).marked(mark("a."));
        assert_eq!(told.to_string(), "17.2-5b440226");
        for told in [told, place(2), place(u32::MAX)] {
            assert_eq!(told.to_string().parse(), Ok(told));
        }
        for text in [
            "",
            "x",
            "17.",
            "17.x",
            "17.2-",
            "17.2-x",
            "17-2",
            "-17",
            "17.2-123456789",
        ] {
            assert_eq!(text.parse::<Place>(), Err(foreign()), "{text}");
        }
    }
}
