//! Records as rows.

use plimsoll_core::record::Record;
use plimsoll_core::{Key, Revision};
use tokio_postgres::Row;

use crate::codec::{At, Json, column, fields_from_json, unsigned};
use crate::error::{Answer, Fault};

/// The columns that [`record_from`] reads.
pub(crate) const RECORD_COLUMNS: &str = "r.key, r.fields, r.revision, r.modified_at, r.expires_at";

/// The record in [`RECORD_COLUMNS`], which begin at `first`.
pub(crate) fn record_from(row: &Row, first: usize) -> Answer<Record> {
    let key: &str = column(row, first)?;
    let what = format!("record {key}");
    let gone = || Fault::Corrupt(format!("{what} is in an index, and not among the records"));
    let fields = column::<Option<Json>>(row, first + 1)?.ok_or_else(gone)?;
    let fields = fields_from_json(&what, &fields)?;
    Ok(Record {
        key: Key::new(key).map_err(|error| Fault::Corrupt(error.to_string()))?,
        fields,
        revision: Revision::new(unsigned(column(row, first + 2)?)?),
        modified_at: column::<At>(row, first + 3)?.0,
        expires_at: column::<Option<At>>(row, first + 4)?.map(|at| at.0),
    })
}
