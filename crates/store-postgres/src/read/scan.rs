//! Records by prefix, or in the order of a declared index.

use plimsoll_core::error::{Conflict, NotFound};
use plimsoll_core::record::{Index, Record};
use plimsoll_core::store::{Cursor, Page, Pager, Range, Scan};
use plimsoll_core::{Error, Key, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::{Places, page};
use crate::call::{Call, Sql, params};
use crate::codec::column;
use crate::error::{Answer, Fault};
use crate::record_row::record_from;
use crate::session::Session;
use crate::statement::sql_file;

pub(crate) static RECORDS: Sql = Sql {
    text: "SELECT {record_columns} FROM plimsoll.records r \
           WHERE r.ns = $1 AND r.key >= $2 AND r.key < $3 ORDER BY r.key LIMIT $4",
    types: &[Type::INT4, Type::TEXT, Type::TEXT, Type::INT8],
};
/// Records in the order of a declared index.
pub(crate) static RANGE: Sql = Sql {
    text: sql_file!("read/range"),
    types: &[
        Type::INT4,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
    ],
};

pub(crate) async fn scan(
    session: &mut Session,
    ns: i32,
    scan: &Scan,
    now: Timestamp,
) -> Answer<Page<Record>> {
    if let Some(wanted) = &scan.range {
        return range(session, ns, scan, wanted, now).await;
    }
    let read = |text: &str| Key::new(text).ok();
    let last = Cursor::place(scan.cursor.as_ref(), &scan.scope(), read).map_err(Error::from)?;
    let records = ByPrefix { ns, scan, now };
    let pager = Pager::new(scan.scope(), scan.limit);
    page(session, &records, last, pager, scan.limit).await
}

struct ByPrefix<'s> {
    ns: i32,
    scan: &'s Scan,
    now: Timestamp,
}

impl Places for ByPrefix<'_> {
    type Place = Key;
    type Shown = Record;

    fn call(&self, last: Option<&Key>, rows: i64) -> Option<Call> {
        let prefix = self.scan.prefix.as_str();
        let from = last.map_or(prefix.to_owned(), |key| after(key.as_str()));
        Some(Call::new(
            &RECORDS,
            params![self.ns, from, end_of(prefix), rows],
        ))
    }

    fn place(&self, row: &Row) -> Answer<Key> {
        Key::new(column::<&str>(row, 0)?).map_err(|error| Fault::Corrupt(error.to_string()))
    }

    fn text(place: &Key) -> String {
        place.to_string()
    }

    fn read(&self, row: &Row) -> Answer<(Option<Record>, usize)> {
        shown(self.scan, record_from(row, 0)?, self.now)
    }
}

fn shown(scan: &Scan, record: Record, now: Timestamp) -> Answer<(Option<Record>, usize)> {
    let size = record.size();
    Ok((scan.shows(&record, now).then_some(record), size))
}

/// The first text that comes after this one: none has a smaller character than this.
pub(crate) fn after(text: &str) -> String {
    format!("{text}\u{1}")
}

/// The first text that comes after all with this prefix, in byte order.
pub(crate) fn end_of(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // The next character, beyond those that are none by themselves.
        if let Some(next) = (last..=char::MAX).nth(1) {
            text.push(next);
            return text;
        }
    }
    super::end()
}

/// A page of records in the order of a declared index.
async fn range(
    session: &mut Session,
    ns: i32,
    scan: &Scan,
    range: &Range,
    now: Timestamp,
) -> Answer<Page<Record>> {
    let read = |text: &str| range.read_place(text);
    let last = Cursor::place(scan.cursor.as_ref(), &scan.scope(), read).map_err(Error::from)?;
    let index = scan.index(range);
    let records = ByRange {
        ns,
        scan,
        range,
        index,
        now,
    };
    let pager = Pager::new(scan.scope(), scan.limit);
    page(session, &records, last, pager, scan.limit).await
}

struct ByRange<'s> {
    ns: i32,
    scan: &'s Scan,
    range: &'s Range,
    index: Index,
    now: Timestamp,
}

impl Places for ByRange<'_> {
    type Place = (i64, Key);
    type Shown = Record;

    fn call(&self, last: Option<&(i64, Key)>, rows: i64) -> Option<Call> {
        let (first, end) = self.range.values().into_inner();
        // No key is empty: this is a place before all others of the value.
        let (value, key) = last.map_or((first, ""), |(value, key)| (*value, key.as_str()));
        let (prefix, field) = (self.index.prefix.to_string(), self.index.field.to_string());
        let params = params![self.ns, prefix, field, value, key.to_owned(), end, rows];
        Some(Call::new(&RANGE, params))
    }

    /// An index that is ready answers a row without a value if it has nothing more.
    fn rows<'r>(&self, found: &'r [Row]) -> Answer<&'r [Row]> {
        let index = self.index.clone();
        let Some(first) = found.first() else {
            return Err(Error::from(NotFound::Index(index)).into());
        };
        if !column::<bool>(first, 0)? {
            return Err(Error::from(Conflict::IndexNotReady { index }).into());
        }
        match column::<Option<i64>>(first, 1)? {
            Some(_) => Ok(found),
            None => Ok(&[]),
        }
    }

    fn place(&self, row: &Row) -> Answer<(i64, Key)> {
        let key = Key::new(column::<&str>(row, 2)?);
        let key = key.map_err(|error| Fault::Corrupt(error.to_string()))?;
        Ok((column(row, 1)?, key))
    }

    fn text((value, key): &(i64, Key)) -> String {
        Range::place(*value, key)
    }

    fn read(&self, row: &Row) -> Answer<(Option<Record>, usize)> {
        shown(self.scan, record_from(row, 2)?, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::end;

    #[test]
    fn a_prefix_ends_before_the_next_text_without_it() {
        assert_eq!(end_of("a"), "b");
        assert_eq!(end_of("job.7"), "job.8");
        assert_eq!(end_of("\u{7f}"), "\u{80}");
        assert_eq!(end_of("\u{d7ff}"), "\u{e000}");
        assert_eq!(end_of("a\u{10ffff}\u{10ffff}"), "b");
        assert_eq!(end_of("\u{10ffff}"), end());
        assert_eq!(end_of(""), end());
    }

    #[test]
    fn nothing_is_between_a_key_and_what_comes_after_it() {
        assert!("a" < after("a").as_str() && after("a").as_str() <= "a\u{1}");
        let longest = char::MAX
            .to_string()
            .repeat(plimsoll_core::limits::KEY_BYTES_MAX / 4);
        assert!(longest < end());
    }
}
