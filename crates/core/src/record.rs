//! State: records of fields.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::Revision;
use crate::names::{Key, Name, Prefix};
use crate::time::Timestamp;

/// The fields of a record: names and raw bytes, in name order.
pub type Fields = BTreeMap<Name, Bytes>;

/// Fields from pairs of names and values.
///
/// ```
/// use plimsoll_core::record::fields;
/// let fields = fields([("state", "pending"), ("worker", "")])?;
/// assert_eq!(fields.len(), 2);
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
pub fn fields<V: Into<Bytes>>(
    pairs: impl IntoIterator<Item = (&'static str, V)>,
) -> Result<Fields, crate::error::Invalid> {
    pairs
        .into_iter()
        .map(|(name, value)| Ok((Name::for_field("field", name)?, value.into())))
        .collect()
}

/// How many bytes the names and values of these fields take.
pub fn fields_size(fields: &Fields) -> usize {
    fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum()
}

/// The integer that these bytes spell in decimal, exactly as `add` and `raise` write it: no plus
/// sign, no leading zeros.
pub fn integer(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = !digits.starts_with(['0', '+']) || text == "0";
    canonical.then(|| text.parse().ok()).flatten()
}

/// A key, its fields, and what the store knows about them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The key.
    pub key: Key,
    /// The fields.
    pub fields: Fields,
    /// Grows with every write.
    pub revision: Revision,
    /// When the store wrote it last, by the store's clock.
    pub modified_at: Timestamp,
    /// When it expires, if it does.
    pub expires_at: Option<Timestamp>,
}

impl Record {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&Bytes> {
        self.fields.get(name)
    }

    /// Whether it has expired at `now`. Reads never show it then, swept or not.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// How long it has to live at `now`, if it does not live for ever.
    pub fn ttl(&self, now: Timestamp) -> Option<Duration> {
        self.expires_at.map(|at| at.since(now))
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        self.key.as_str().len() + fields_size(&self.fields)
    }
}

/// What a declared index is on: an integer field of the records whose keys begin alike. Records
/// whose field is absent or not an [`integer`] are not in it.
///
/// ```
/// use plimsoll_core::record::{Index, fields};
/// use plimsoll_core::{Key, Name, Prefix};
/// let index = Index {
///     prefix: Prefix::new("gbe.state.tasks.")?,
///     field: Name::new("updated_at")?,
/// };
/// let key = Key::new("gbe.state.tasks.email-send.job_123")?;
/// assert_eq!(index.value(&key, &fields([("updated_at", "999")])?), Some(999));
/// assert_eq!(index.value(&key, &fields([("updated_at", "soon")])?), None);
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Index {
    /// What the keys begin with.
    pub prefix: Prefix,
    /// The field.
    pub field: Name,
}

impl Index {
    /// What a record with this key and these fields is sorted by; `None`: it is not in the index.
    pub fn value(&self, key: &Key, fields: &Fields) -> Option<i64> {
        let field = fields.get(&self.field)?;
        self.prefix
            .matches(key.as_str())
            .then(|| integer(field))
            .flatten()
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}*", self.field, self.prefix)
    }
}

/// A condition on one field. A field that is absent, or not of the declared type, does not meet
/// any comparison.
///
/// ```
/// use plimsoll_core::record::{Filter, Operator, Value, fields};
/// use plimsoll_core::Name;
/// let stuck = Filter {
///     field: Name::new("updated_at")?,
///     operator: Operator::Less,
///     value: Value::Integer(1_000),
/// };
/// assert!(stuck.matches(&fields([("updated_at", "999")])?));
/// assert!(!stuck.matches(&fields([("updated_at", "1000")])?));
/// assert!(!stuck.matches(&fields([("updated_at", "soon")])?));
/// assert!(!stuck.matches(&fields([("state", "claimed")])?));
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The field.
    pub field: Name,
    /// How to compare it.
    pub operator: Operator,
    /// With what, and as which type.
    pub value: Value,
}

/// How a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// The field equals the value.
    Equal,
    /// The field is there and differs from the value.
    NotEqual,
    /// The field is less than the value.
    Less,
    /// The field is greater than the value.
    Greater,
}

/// A value with the type it is compared as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// UTF-8 text, in code point order.
    Text(String),
    /// A decimal integer, in numeric order.
    Integer(i64),
    /// Raw bytes, in byte order.
    Bytes(Bytes),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// The type of a number that says no other.
impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// How a field holds it: text in UTF-8, integers in decimal.
///
/// ```
/// use bytes::Bytes;
/// use plimsoll_core::record::Value;
/// assert_eq!(Bytes::from(Value::from(-7)), "-7");
/// assert_eq!(Bytes::from(Value::from("pending")), "pending");
/// ```
impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        match value {
            Value::Text(text) => text.into(),
            Value::Integer(number) => number.to_string().into(),
            Value::Bytes(bytes) => bytes,
        }
    }
}

impl Filter {
    /// Whether the fields meet the condition.
    pub fn matches(&self, fields: &Fields) -> bool {
        let Some(found) = fields.get(&self.field) else {
            return false;
        };
        let order = match &self.value {
            Value::Text(text) => std::str::from_utf8(found).ok().map(|f| f.cmp(text)),
            Value::Integer(number) => integer(found).map(|f| f.cmp(number)),
            Value::Bytes(bytes) => Some(found.cmp(bytes)),
        };
        order.is_some_and(|order| match self.operator {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::Greater => order.is_gt(),
        })
    }
}
