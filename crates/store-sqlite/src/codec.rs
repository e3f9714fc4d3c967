//! Between rows and values.

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod golden;

use std::fmt::Display;

use plimsoll_core::TaskId;
use plimsoll_core::Timestamp;
use plimsoll_core::task::Status;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Answer, Fault};

/// Most bodies need no more room.
const BODY_BYTES: usize = 512;

/// The stored form of a body.
pub(crate) fn encode<T: Serialize>(value: &T) -> Answer<Vec<u8>> {
    let mut body = Vec::with_capacity(BODY_BYTES);
    rmp_serde::encode::write(&mut body, value)
        .map_err(|error| Fault::Corrupt(format!("cannot encode: {error}")))?;
    Ok(body)
}

/// The body in its stored form. What cannot be read is an error that names it; the name is written out only then.
pub(crate) fn decode<T: DeserializeOwned>(what: impl Display, bytes: &[u8]) -> Answer<T> {
    rmp_serde::from_slice(bytes).map_err(|error| Fault::Corrupt(format!("{what}: {error}")))
}

pub(crate) fn status_code(status: Status) -> i64 {
    match status {
        Status::Scheduled => 0,
        Status::Pending => 1,
        Status::Claimed => 2,
        Status::Completed => 3,
        Status::Failed => 4,
        Status::Cancelled => 5,
    }
}

pub(crate) fn status_from(code: i64) -> Answer<Status> {
    let found = Status::ALL.into_iter().find(|s| status_code(*s) == code);
    found.ok_or_else(|| Fault::Corrupt(format!("status {code} is unknown")))
}

/// A 128-bit id as a blob that sorts as the id does.
pub(crate) struct Id(pub(crate) u128);

impl From<TaskId> for Id {
    fn from(id: TaskId) -> Self {
        Self(id.as_u128())
    }
}

impl From<Id> for Value {
    fn from(id: Id) -> Self {
        Self::Blob(id.0.to_be_bytes().to_vec())
    }
}

impl ToSql for Id {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_be_bytes().to_vec().into())
    }
}

impl FromSql for Id {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = value.as_blob()?;
        let bytes: [u8; 16] = bytes
            .try_into()
            .map_err(|_| FromSqlError::InvalidBlobSize {
                expected_size: 16,
                blob_size: bytes.len(),
            })?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }
}

impl Id {
    pub(crate) fn task(self) -> TaskId {
        TaskId::from_u128(self.0)
    }
}

/// A moment from its column.
pub(crate) fn timestamp(micros: i64) -> Answer<Timestamp> {
    Timestamp::from_micros(micros).map_err(|error| Fault::Corrupt(error.to_string()))
}

/// Counters fit SQLite's signed integers for hundreds of years.
pub(crate) fn signed(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}

/// A counter from its column.
pub(crate) fn unsigned(column: i64) -> Answer<u64> {
    u64::try_from(column).map_err(|_| Fault::Corrupt(format!("counter {column} is negative")))
}
