//! Between columns and values.

use std::error::Error as StdError;

use bytes::{BufMut, Bytes, BytesMut};
use plimsoll_core::ids::Fingerprint;
use plimsoll_core::record::Fields;
use plimsoll_core::task::{Lane, Status};
use plimsoll_core::{Name, TaskId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::error::{Answer, Fault};

type Trouble = Box<dyn StdError + Sync + Send>;

/// Microseconds from 1970 to 2000, from where PostgreSQL counts.
const EPOCH: i64 = 946_684_800_000_000;

/// A moment in a `timestamptz`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct At(pub(crate) Timestamp);

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Trouble> {
        out.put_i64(self.0.as_micros() - EPOCH);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Trouble> {
        let micros = i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH);
        Ok(Self(Timestamp::from_micros(micros)?))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TIMESTAMPTZ
    }
}

/// A 128-bit id in a `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(pub(crate) u128);

impl Id {
    pub(crate) fn task(self) -> TaskId {
        TaskId::from_u128(self.0)
    }
}

impl From<TaskId> for Id {
    fn from(id: TaskId) -> Self {
        Self(id.as_u128())
    }
}

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Trouble> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Trouble> {
        Ok(Self(u128::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }
}

/// Where a row is in its table: a `tid`. It says nothing to us but that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place([u8; 6]);

impl ToSql for Place {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Trouble> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Place {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Trouble> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TID
    }
}

/// Bytes in a `bytea`.
#[derive(Clone, Debug)]
pub(crate) struct Blob(pub(crate) Bytes);

impl ToSql for Blob {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Trouble> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::BYTEA
    }

    to_sql_checked!();
}

/// A value in a `jsonb`.
#[derive(Clone, Debug)]
pub(crate) struct Json(pub(crate) String);

impl Json {
    pub(crate) fn of<T: Serialize>(value: &T) -> Answer<Self> {
        serde_json::to_string(value)
            .map(Self)
            .map_err(|error| Fault::Corrupt(format!("cannot encode: {error}")))
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, what: &str) -> Answer<T> {
        serde_json::from_str(&self.0).map_err(|error| Fault::Corrupt(format!("{what}: {error}")))
    }
}

impl ToSql for Json {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Trouble> {
        // The version of the format, then text.
        out.put_u8(1);
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::JSONB
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Trouble> {
        match raw.split_first() {
            Some((1, text)) => Ok(Self(std::str::from_utf8(text)?.to_owned())),
            _ => Err("jsonb of an unknown version".into()),
        }
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::JSONB
    }
}

/// The word for values that are not text.
const BASE64: &str = "base64";

/// Fields as people can read them: text as it is, everything else in base64.
pub(crate) fn fields_to_json(fields: &Fields) -> Answer<Json> {
    let shown = fields.iter().map(|(name, value)| {
        let value = match std::str::from_utf8(value) {
            Ok(text) if !text.contains('\0') => Value::String(text.to_owned()),
            Ok(_) | Err(_) => {
                let encoded = Value::String(base64::encode(value));
                Value::Object(Map::from_iter([(BASE64.to_owned(), encoded)]))
            }
        };
        (name.as_str().to_owned(), value)
    });
    Json::of(&Map::from_iter(shown))
}

pub(crate) fn fields_from_json(what: &str, json: &Json) -> Answer<Fields> {
    let corrupt = |problem: &str| Fault::Corrupt(format!("{what}: {problem}"));
    let shown: Map<String, Value> = json.read(what)?;
    (shown.into_iter())
        .map(|(name, value)| {
            let name = Name::new(name).map_err(|error| corrupt(&error.to_string()))?;
            let value = match value {
                Value::String(text) => Bytes::from(text),
                Value::Object(object) => {
                    let encoded = object.get(BASE64).and_then(Value::as_str);
                    let decoded = encoded.and_then(base64::decode);
                    decoded.ok_or_else(|| corrupt("a field is neither text nor base64"))?
                }
                _ => return Err(corrupt("a field is neither text nor base64")),
            };
            Ok((name, value))
        })
        .collect()
}

/// Base 64 as RFC 4648 has it, with padding.
mod base64 {
    use bytes::Bytes;

    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    pub(super) fn encode(bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
        for chunk in bytes.chunks(3) {
            let bits = (0..3).fold(0_u32, |bits, n| {
                bits << 8 | u32::from(chunk.get(n).copied().unwrap_or(0))
            });
            for n in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * n) & 63) as usize] as char;
                text.push(if n <= chunk.len() { digit } else { '=' });
            }
        }
        text
    }

    pub(super) fn decode(text: &str) -> Option<Bytes> {
        let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
        for chunk in text.as_bytes().chunks(4) {
            let digits = chunk.iter().take_while(|byte| **byte != b'=').count();
            if chunk.len() != 4 || digits < 2 {
                return None;
            }
            let mut bits = 0_u32;
            for byte in &chunk[..digits] {
                let digit = DIGITS.iter().position(|digit| digit == byte)?;
                bits = bits << 6 | digit as u32;
            }
            bits <<= 6 * (4 - digits);
            bytes.extend_from_slice(&bits.to_be_bytes()[1..digits]);
        }
        Some(bytes.into())
    }
}

/// A column of a row. One that does not hold what it should is a stored value that cannot be read.
pub(crate) fn column<'r, T: FromSql<'r>>(row: &'r Row, number: usize) -> Answer<T> {
    (row.try_get(number)).map_err(|error| Fault::Corrupt(error.to_string()))
}

/// The stored form of a body.
pub(crate) fn encode<T: Serialize>(value: &T) -> Answer<Vec<u8>> {
    rmp_serde::to_vec(value).map_err(|error| Fault::Corrupt(format!("cannot encode: {error}")))
}

/// The body in its stored form. What cannot be read is an error that names it.
pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Answer<T> {
    rmp_serde::from_slice(bytes).map_err(|error| Fault::Corrupt(format!("{what}: {error}")))
}

pub(crate) fn status_code(status: Status) -> i16 {
    match status {
        Status::Scheduled => 0,
        Status::Pending => 1,
        Status::Claimed => 2,
        Status::Completed => 3,
        Status::Failed => 4,
        Status::Cancelled => 5,
    }
}

pub(crate) fn status_from(code: i16) -> Answer<Status> {
    let found = Status::ALL.into_iter().find(|s| status_code(*s) == code);
    found.ok_or_else(|| Fault::Corrupt(format!("status {code} is unknown")))
}

/// A column that always has a value, for rows that are sent as arrays: only the first value, if all
/// are the same. The statement fills it in for the others, as the server takes no time for it.
pub(crate) fn same<T: PartialEq + Clone>(mut values: impl Iterator<Item = T>) -> Vec<T> {
    let Some(first) = values.next() else {
        return Vec::new();
    };
    let mut alike = 1;
    let Some(other) = values.find(|value| {
        alike += usize::from(*value == first);
        *value != first
    }) else {
        return vec![first];
    };
    let mut all = vec![first; alike];
    all.push(other);
    all.extend(values);
    all
}

/// The value that all have.
pub(crate) fn shared<T: PartialEq>(values: &[T]) -> Option<&T> {
    let (first, others) = values.split_first()?;
    others.iter().all(|other| other == first).then_some(first)
}

/// A column that few rows have a value for: nothing, if none has. The server takes what is missing
/// in an array for NULL.
pub(crate) fn rare<T>(values: Vec<Option<T>>) -> Vec<Option<T>> {
    match values.iter().any(Option::is_some) {
        true => values,
        false => Vec::new(),
    }
}

/// Counters fit signed integers for hundreds of years.
pub(crate) fn signed(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}

/// A counter from its column.
pub(crate) fn unsigned(column: i64) -> Answer<u64> {
    u64::try_from(column).map_err(|_| Fault::Corrupt(format!("counter {column} is negative")))
}

/// The number of a lane: the same in every process, without asking anybody.
pub(crate) fn lane_number(ns: i32, lane: &Lane) -> i64 {
    let text = format!("{ns}\0{}\0{}", lane.queue, lane.kind);
    (Fingerprint::of(text.as_bytes()).as_u128() >> 64) as i64
}

/// Numbers of lanes, one after another: tasks that are written together are mostly of one.
#[derive(Debug, Default)]
pub(crate) struct LaneNumbers {
    last: Option<(i32, Lane, i64)>,
}

impl LaneNumbers {
    pub(crate) fn of(&mut self, ns: i32, lane: &Lane) -> i64 {
        match &self.last {
            Some((of_ns, of, number)) if *of_ns == ns && of == lane => *number,
            _ => {
                let number = lane_number(ns, lane);
                self.last = Some((ns, lane.clone(), number));
                number
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use plimsoll_core::record::fields;

    #[test]
    fn only_a_column_of_equal_values_is_cut() {
        for length in 1..8_u32 {
            for bits in 0..1_u32 << length {
                let values: Vec<u32> = (0..length).map(|bit| bits >> bit & 1).collect();
                let equal = values.iter().all(|value| *value == values[0]);
                assert_eq!(shared(&values), equal.then_some(&values[0]));
                let cut = same(values.iter().copied());
                assert_eq!(
                    cut,
                    if equal {
                        vec![values[0]]
                    } else {
                        values.clone()
                    }
                );
                let some: Vec<_> = values
                    .iter()
                    .map(|value| (*value > 0).then_some(()))
                    .collect();
                assert_eq!(rare(some.clone()), if bits > 0 { some } else { Vec::new() });
            }
        }
    }

    #[test]
    fn fields_of_any_bytes_come_back() {
        for length in 0..10 {
            let odd = Bytes::from(vec![0xfe; length]);
            let pairs = [
                ("odd", odd),
                ("text", "ä\"\\".into()),
                ("nul", "a\0b".into()),
            ];
            let before = fields(pairs).expect("fields");
            let json = fields_to_json(&before).expect("json");
            assert_eq!(fields_from_json("record", &json).expect("fields"), before);
        }
    }

    #[test]
    fn text_is_readable_as_it_is() {
        let json = fields_to_json(&fields([("state", "pending")]).expect("fields"));
        assert_eq!(json.expect("json").0, r#"{"state":"pending"}"#);
    }

    #[test]
    fn lanes_have_numbers_of_their_own() {
        let number = |ns, queue, kind| lane_number(ns, &Lane::new(queue, kind).expect("a lane"));
        let all = [
            number(1, "a", "b"),
            number(2, "a", "b"),
            number(1, "ab", "b"),
            number(1, "a", "bb"),
        ];
        let mut numbers = LaneNumbers::default();
        for (ns, queue, kind) in [(1, "a", "b"), (1, "a", "b"), (2, "a", "b"), (1, "a", "bb")] {
            let lane = Lane::new(queue, kind).expect("a lane");
            assert_eq!(numbers.of(ns, &lane), number(ns, queue, kind));
        }
        let distinct = std::collections::BTreeSet::from(all);
        assert_eq!(distinct.len(), all.len());
        assert_eq!(all[0], number(1, "a", "b"));
    }
}
