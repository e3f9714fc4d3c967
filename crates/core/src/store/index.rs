//! Declared indexes: their parameters and answers, and the ranges that are read through them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::names::{Key, Name};
use crate::record::Index;

/// Declares an index, or takes further existing records into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclareIndex {
    /// The index.
    pub index: Index,
    /// How many existing records to look at, at most.
    pub limit: usize,
}

/// An index that is declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// The index.
    pub index: Index,
    /// Whether all records are in it, so that it can be read.
    pub ready: bool,
}

/// Drops an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIndex {
    /// The index.
    pub index: Index,
}

/// What became of an index that was to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Whether it was declared.
    pub existed: bool,
}

/// The records whose field is an integer of a range, read through a declared index.
///
/// ```
/// use plimsoll_core::Name;
/// use plimsoll_core::store::Range;
/// let stuck = Range::new(Name::new("updated_at")?).before(1_000);
/// assert!(stuck.contains(-7) && stuck.contains(999));
/// assert!(!stuck.contains(1_000));
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The field. The index is the one on this field of the prefix that is scanned.
    pub field: Name,
    /// The least value; `None`: any.
    pub from: Option<i64>,
    /// What is greater than all values; `None`: nothing is.
    pub before: Option<i64>,
}

impl Range {
    /// All integers.
    pub fn new(field: Name) -> Self {
        Self {
            field,
            from: None,
            before: None,
        }
    }

    /// Only integers that are not less.
    pub fn from(mut self, from: i64) -> Self {
        self.from = Some(from);
        self
    }

    /// Only integers that are less.
    pub fn before(mut self, before: i64) -> Self {
        self.before = Some(before);
        self
    }

    /// Whether the value belongs to it.
    pub fn contains(&self, value: i64) -> bool {
        self.values().contains(&value)
    }

    /// The values that belong to it; there may be none.
    pub fn values(&self) -> RangeInclusive<i64> {
        let first = self.from.unwrap_or(i64::MIN);
        match self.before.map(|before| before.checked_sub(1)) {
            None => first..=i64::MAX,
            Some(Some(last)) => first..=last,
            // Nothing is less than the least integer.
            Some(None) => RangeInclusive::new(1, 0),
        }
    }

    /// The place of a record, as the text of a cursor.
    pub fn place(value: i64, key: &Key) -> String {
        format!("{value} {key}")
    }

    /// The value and key of a place; `None`: there is no such place in this range.
    pub fn read_place(&self, text: &str) -> Option<(i64, Key)> {
        let (value, key) = text.split_once(' ')?;
        let value = value.parse().ok().filter(|value| self.contains(*value))?;
        Some((value, Key::new(key).ok()?))
    }
}
