//! What a write makes of a record.

use bytes::Bytes;

use crate::decide::Moment;
use crate::error::{Conflict, Error, NotFound, Result};
use crate::names::{Key, Name};
use crate::record::{Record, integer};
use crate::store::check::Check;
use crate::store::{Merge, Put};
use std::time::Duration;

/// The record that is there for readers and writers: one that has expired is not.
pub fn live<'a>(record: Option<&'a Record>, moment: &Moment<'_>) -> Option<&'a Record> {
    record.filter(|record| !record.is_expired(moment.now))
}

/// The record that a `Put` leaves.
pub fn put(put: &Put, moment: &Moment<'_>) -> Result<Record> {
    let expires_at = match put.ttl {
        Some(ttl) => Some(moment.now.plus("ttl", ttl)?),
        None => None,
    };
    Ok(Record {
        key: put.key.clone(),
        fields: put.fields.clone(),
        revision: moment.revision,
        modified_at: moment.now,
        expires_at,
    })
}

/// The record that a `Merge` leaves of `before`, which must be live.
pub fn merge(before: Option<&Record>, merge: &Merge, moment: &Moment<'_>) -> Result<Record> {
    let mut record = before.cloned().unwrap_or_else(|| Record {
        key: merge.key.clone(),
        fields: Default::default(),
        revision: moment.revision,
        modified_at: moment.now,
        expires_at: None,
    });
    record.revision = moment.revision;
    record.modified_at = moment.now;
    for (field, value) in &merge.set {
        record.fields.insert(field.clone(), value.clone());
    }
    for field in &merge.unset {
        record.fields.remove(field);
    }
    for (field, number) in &merge.add {
        let sum = number_in(&record, field)?.unwrap_or(0).checked_add(*number);
        let sum = sum.ok_or_else(|| Conflict::Overflow {
            key: merge.key.clone(),
            field: field.clone(),
        })?;
        record.fields.insert(field.clone(), decimal(sum));
    }
    for (field, number) in &merge.raise {
        let raised = number_in(&record, field)?.map_or(*number, |found| found.max(*number));
        record.fields.insert(field.clone(), decimal(raised));
    }
    match record.fields.check(moment.limits) {
        Ok(()) => Ok(record),
        Err(invalid) => Err(Error::from(Conflict::TooLarge {
            key: record.key,
            problem: invalid.problem,
        })),
    }
}

/// The record that a `Touch` leaves of `before`, which must be live.
pub fn touch(
    before: Option<&Record>,
    key: &Key,
    ttl: Option<Duration>,
    moment: &Moment<'_>,
) -> Result<Record> {
    let before = before.ok_or_else(|| NotFound::Record(key.clone()))?;
    let expires_at = match ttl {
        Some(ttl) => Some(moment.now.plus("ttl", ttl)?),
        None => None,
    };
    Ok(Record {
        revision: moment.revision,
        expires_at,
        ..before.clone()
    })
}

fn number_in(record: &Record, field: &Name) -> Result<Option<i64>> {
    let Some(value) = record.fields.get(field) else {
        return Ok(None);
    };
    let number = integer(value).ok_or_else(|| Conflict::NotInteger {
        key: record.key.clone(),
        field: field.clone(),
    })?;
    Ok(Some(number))
}

fn decimal(number: i64) -> Bytes {
    Bytes::from(number.to_string())
}
