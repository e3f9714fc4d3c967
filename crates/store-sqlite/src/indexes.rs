//! Declared indexes: kept in the transaction that writes a record, filled in steps, read by range.
//!
//! Writes keep an index from the moment it is declared. So a record that the fill has not reached
//! yet is in it as it is, or not at all, and the fill adds what is missing. The namespace's row says
//! how many indexes there are: where there are none, a write does nothing for them.
//!
//! An entry carries its record if that is small. So it must be written whenever the record is, also
//! when the value stays; `put_entry` does that by copying the row.

use std::sync::Arc;

use plimsoll_core::error::{Conflict, Invalid, NotFound, Problem};
use plimsoll_core::limits::{INDEXES_MAX, PAGE_BYTES_MAX};
use plimsoll_core::record::{Index, Record};
use plimsoll_core::store::{Cursor, DeclareIndex, Declared, Dropped, Page, Pager, Range, Scan};
use plimsoll_core::{Error, Key, Name, Prefix, Result, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Answer, Fault};
use crate::read::{Read, records_from};
use crate::rows;
use crate::transaction::Transaction;

const RANGE: &str = include_str!("../sql/range.sql");
pub(crate) const PUT_ENTRY: &str = include_str!("../sql/put_entry.sql");
/// Entries carry records whose fields take no more bytes: at least seven of them fit into a page.
/// Larger ones would fill the pages that a range reads, and those that a write must write.
const CARRIED_BYTES_MAX: i64 = 512;
/// How many entries of dropped indexes go in one transaction: others wait for it.
const ENTRIES_REMOVED_MAX: usize = 10_000;
const REMOVAL: &str = "DELETE FROM index_entries WHERE (idx, value, key) IN \
     (SELECT idx, value, key FROM index_entries WHERE idx = ?1 LIMIT ?2)";

/// A declared index, with its number.
#[derive(Debug)]
pub(crate) struct Known {
    number: i64,
    index: Index,
    /// Existing records up to this key are in; empty: none; `None`: all.
    filled: Option<String>,
}

/// The indexes of a namespace, in order.
pub(crate) fn known(connection: &Connection, ns: i64) -> Answer<Arc<[Known]>> {
    let mut statement = connection.prepare_cached(
        "SELECT idx, prefix, field, filled FROM indexes \
         WHERE ns = ? AND prefix IS NOT NULL ORDER BY prefix, field",
    )?;
    let mut found = statement.query([ns])?;
    let mut all = Vec::new();
    while let Some(row) = found.next()? {
        all.push(Known {
            number: row.get(0)?,
            index: index_from(row)?,
            filled: row.get(3)?,
        });
    }
    Ok(all.into())
}

fn index_from(row: &Row<'_>) -> Answer<Index> {
    let corrupt = |error: Invalid| Fault::Corrupt(error.to_string());
    Ok(Index {
        prefix: Prefix::new(row.get::<_, String>(1)?).map_err(corrupt)?,
        field: Name::new(row.get::<_, String>(2)?).map_err(corrupt)?,
    })
}

pub(crate) fn declared(connection: &Connection, ns: i64) -> Answer<Vec<Declared>> {
    let declared = |known: &Known| Declared {
        index: known.index.clone(),
        ready: known.filled.is_none(),
    };
    Ok(known(connection, ns)?.iter().map(declared).collect())
}

impl Transaction<'_> {
    pub(crate) fn declare_index(
        &mut self,
        ns: i64,
        declare: &DeclareIndex,
        now: Timestamp,
    ) -> Answer<Result<Declared>> {
        let index = declare.index.clone();
        let all = self.indexes(ns, now)?;
        let found = all.iter().find(|known| known.index == index);
        let filled = match found {
            Some(Known { filled: None, .. }) => return Ok(Ok(Declared { index, ready: true })),
            Some(Known { filled, .. }) => filled.as_deref(),
            None if all.len() < INDEXES_MAX => None,
            None => {
                let (count, max) = (all.len() + 1, INDEXES_MAX);
                let too_many = Invalid::new("index", Problem::TooMany { count, max });
                return Ok(Err(too_many.into()));
            }
        };
        let after = filled.unwrap_or_default();
        let step = match step(self.connection, ns, &index, after, declare.limit) {
            Ok(step) => step,
            // Nothing was written yet, so neighbours go on.
            Err(Fault::Corrupt(what)) => return Ok(Err(Error::Corrupt(what.into()))),
            Err(fault) => return Err(fault),
        };
        let number = match found {
            Some(known) => known.number,
            None => self.insert_index(ns, &index)?,
        };
        for (value, key) in &step.entries {
            put_entry(self.connection, ns, key, number, *value)?;
        }
        self.connection
            .prepare_cached("UPDATE indexes SET filled = ?2 WHERE idx = ?1")?
            .execute(params![number, step.upto])?;
        self.indexes_changed(ns, now)?;
        let ready = step.upto.is_none();
        Ok(Ok(Declared { index, ready }))
    }

    fn insert_index(&self, ns: i64, index: &Index) -> Answer<i64> {
        self.connection
            .prepare_cached("INSERT INTO indexes (ns, prefix, field) VALUES (?, ?, ?)")?
            .execute(params![ns, index.prefix.as_str(), index.field.as_str()])?;
        Ok(self.connection.last_insert_rowid())
    }

    /// Nobody sees the index any more; its entries go with the next steps of `compact`, as far as
    /// they do not go at once. It keeps its number until then, so that no other index has them.
    pub(crate) fn drop_index(&mut self, ns: i64, index: &Index, now: Timestamp) -> Answer<Dropped> {
        let all = self.indexes(ns, now)?;
        let Some(known) = all.iter().find(|known| known.index == *index) else {
            return Ok(Dropped { existed: false });
        };
        self.connection
            .prepare_cached("UPDATE indexes SET prefix = NULL, field = NULL WHERE idx = ?")?
            .execute([known.number])?;
        self.indexes_changed(ns, now)?;
        self.remove_dropped(ns)?;
        Ok(Dropped { existed: true })
    }

    /// Removes entries of indexes that were dropped, and says if there are more.
    pub(crate) fn remove_dropped(&self, ns: i64) -> Answer<bool> {
        let mut left = ENTRIES_REMOVED_MAX;
        let mut statement = self
            .connection
            .prepare_cached("SELECT idx FROM indexes WHERE ns = ? AND prefix IS NULL")?;
        let dropped = statement.query_map([ns], |row| row.get(0))?;
        for number in dropped.collect::<Result<Vec<i64>, _>>()? {
            let removed =
                (self.connection.prepare_cached(REMOVAL)?).execute(params![number, left as i64])?;
            left -= removed;
            if left == 0 {
                return Ok(true);
            }
            self.connection
                .prepare_cached("DELETE FROM indexes WHERE idx = ?")?
                .execute([number])?;
        }
        Ok(false)
    }

    /// Puts a record whose row was just written into its place in every index.
    pub(crate) fn index_record(
        &self,
        ns: i64,
        indexes: &[Known],
        key: &Key,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Answer<()> {
        for Known { number, index, .. } in indexes {
            let value = |record: &Record| index.value(key, &record.fields);
            let (was, is) = (before.and_then(value), after.and_then(value));
            if let Some(was) = was.filter(|_| was != is) {
                self.connection
                    .prepare_cached(
                        "DELETE FROM index_entries WHERE idx = ? AND value = ? AND key = ?",
                    )?
                    .execute(params![number, was, key.as_str()])?;
            }
            if let Some(is) = is {
                put_entry(self.connection, ns, key, *number, is)?;
            }
        }
        Ok(())
    }
}

fn put_entry(connection: &Connection, ns: i64, key: &Key, index: i64, value: i64) -> Answer<()> {
    connection.prepare_cached(PUT_ENTRY)?.execute(params![
        ns,
        key.as_str(),
        index,
        value,
        CARRIED_BYTES_MAX
    ])?;
    Ok(())
}

/// Existing records that come into an index next.
struct Step {
    entries: Vec<(i64, Key)>,
    /// The last key that was looked at; `None`: there are no more.
    upto: Option<String>,
}

fn step(
    connection: &Connection,
    ns: i64,
    index: &Index,
    after: &str,
    limit: usize,
) -> Answer<Step> {
    let after = (!after.is_empty()).then_some(after);
    let mut statement = connection.prepare_cached(records_from(after.is_some()))?;
    let mut found = statement.query(params![ns, after.unwrap_or(index.prefix.as_str())])?;
    let mut entries = Vec::new();
    let (mut upto, mut examined, mut bytes) = (None, 0, 0);
    while let Some(row) = found.next()? {
        let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        if !index.prefix.matches(key) {
            break;
        }
        if examined == limit || bytes >= PAGE_BYTES_MAX {
            return Ok(Step { entries, upto });
        }
        let record = rows::record_from(row, 0)?;
        (examined, bytes) = (examined + 1, bytes + record.size());
        let value = index.value(&record.key, &record.fields);
        upto = Some(record.key.to_string());
        entries.extend(value.map(|value| (value, record.key)));
    }
    Ok(Step {
        entries,
        upto: None,
    })
}

pub(crate) fn range(
    connection: &Connection,
    ns: i64,
    scan: &Scan,
    range: &Range,
    now: Timestamp,
) -> Read<Page<Record>> {
    let index = scan.index(range);
    let declared: Option<(i64, bool)> = connection
        .prepare_cached(
            "SELECT idx, filled IS NULL FROM indexes WHERE ns = ? AND prefix = ? AND field = ?",
        )?
        .query_row(
            params![ns, index.prefix.as_str(), index.field.as_str()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let number = match declared {
        Some((number, true)) => number,
        Some((_, false)) => return Ok(Err(Conflict::IndexNotReady { index }.into())),
        None => return Ok(Err(NotFound::Index(index).into())),
    };
    let read = |text: &str| range.read_place(text);
    let mut last = match Cursor::place(scan.cursor.as_ref(), &scan.scope(), read) {
        Ok(place) => place,
        Err(invalid) => return Ok(Err(invalid.into())),
    };
    let (first, end) = range.values().into_inner();
    // No key is empty: with the least value of all, this is a place before all others.
    let (value, key) = (last.as_ref()).map_or((first, ""), |(value, key)| (*value, key.as_str()));
    let mut statement = connection.prepare_cached(RANGE)?;
    let mut found = statement.query(params![number, value, key, end])?;
    let mut pager = Pager::new(scan.scope(), scan.limit);
    while let Some(row) = found.next()? {
        if pager.is_full(last.map(|(value, key)| Range::place(value, &key))) {
            break;
        }
        let record = carried(connection, ns, row)?;
        last = Some((row.get(0)?, record.key.clone()));
        let size = record.size();
        pager.take(scan.shows(&record, now).then_some(record), size);
    }
    Ok(Ok(pager.finish()))
}

/// The record of an entry, looked up unless the entry carries it.
fn carried(connection: &Connection, ns: i64, entry: &Row<'_>) -> Answer<Record> {
    if entry.get_ref(2)? != ValueRef::Null {
        return rows::record_from(entry, 1);
    }
    let corrupt = |error: Invalid| Fault::Corrupt(error.to_string());
    let key = Key::new(entry.get::<_, String>(1)?).map_err(corrupt)?;
    let record = rows::record(connection, ns, &key)?;
    record.ok_or_else(|| Fault::Corrupt(format!("record {key} is in an index and not there")))
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::plan::{plan, tables};
    use rusqlite::StatementStatus;

    /// A page begins where the one before ended and ends with the range; nothing is sorted.
    #[test]
    fn a_range_is_found_by_its_bounds() {
        let connection = tables();
        let steps = plan(&connection, RANGE);
        let [entries] = &steps[..] else {
            panic!("{steps:?}");
        };
        let bounds = "USING PRIMARY KEY (idx=? AND (value,key)>(?,?) AND value<?)";
        assert!(entries.ends_with(bounds), "{entries}");
        let removal = plan(&connection, REMOVAL);
        let by_index = |step: &String| step.contains("USING PRIMARY KEY (idx=?");
        assert!(
            removal.len() == 2 && removal.iter().all(by_index),
            "{removal:?}"
        );
    }

    /// How many steps SQLite takes for a hundred records among so many.
    fn steps(records: i64) -> i32 {
        let connection = tables();
        let fill = format!(
            "WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {records} - 1) \
             INSERT INTO index_entries SELECT 1, n, 'key.' || n, x'80', 1, 1, NULL FROM n"
        );
        connection.execute_batch(&fill).expect("records");
        let mut statement = connection.prepare(RANGE).expect("a statement");
        let middle = records / 2;
        let mut rows = (statement.query(params![1, middle, "", middle + 99])).expect("rows");
        let mut found = 0;
        while rows.next().expect("a row").is_some() {
            found += 1;
        }
        drop(rows);
        assert_eq!(found, 100);
        assert_eq!(statement.get_status(StatementStatus::FullscanStep), 0);
        statement.get_status(StatementStatus::VmStep)
    }

    #[test]
    fn a_range_costs_the_same_however_many_records_there_are() {
        assert_eq!(steps(1_000), steps(50_000));
    }
}
