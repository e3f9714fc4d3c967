//! The reading methods. What must be of one moment comes from one statement.

pub(crate) mod due;
pub(crate) mod history;
pub(crate) mod list;
mod page;
pub(crate) mod scan;

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::group::Group;
use plimsoll_core::limits::KEY_BYTES_MAX;
use plimsoll_core::record::Record;
use plimsoll_core::store::{Counts, Get, Groups, LaneCounts, Peek};
use plimsoll_core::task::{Lane, Status, Task};
use plimsoll_core::{IdempotencyKey, Key, Name, TaskId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{Call, Sql, params};
use crate::codec::{Id, column, lane_number, status_from, unsigned};
use crate::error::{Answer, Fault};
use crate::load::group_from;
use crate::record_row::record_from;
use crate::session::Session;
use crate::statement::sql_file;
use crate::task_row::task_from;

pub(crate) use due::due;
pub(crate) use history::{HORIZON, changes, logs};
pub(crate) use list::list;
pub(crate) use scan::{after, end_of, scan};

pub(crate) static GET: Sql = Sql {
    text: "SELECT {record_columns} FROM plimsoll.records r WHERE r.ns = $1 AND r.key = ANY($2)",
    types: &[Type::INT4, Type::TEXT_ARRAY],
};
pub(crate) static TASKS: Sql = Sql {
    text: sql_file!("read/tasks"),
    types: &[Type::INT4, Type::UUID_ARRAY],
};
pub(crate) static BY_KEY: Sql = Sql {
    text: sql_file!("read/by_key"),
    types: &[Type::INT4, Type::TEXT],
};
pub(crate) static PEEK: Sql = Sql {
    text: sql_file!("read/peek"),
    types: &[Type::INT4, Type::INT8_ARRAY, Type::INT8],
};
pub(crate) static COUNTS: Sql = Sql {
    text: "SELECT queue, kind, status, sum(tasks)::bigint FROM plimsoll.counts \
           WHERE ns = $1 AND queue >= $2 AND queue <= $3 \
           GROUP BY queue, kind, status HAVING sum(tasks) <> 0",
    types: &[Type::INT4, Type::TEXT, Type::TEXT],
};
pub(crate) static GROUPS: Sql = Sql {
    text: "SELECT id, body FROM plimsoll.groups WHERE ns = $1 AND id = ANY($2)",
    types: &[Type::INT4, Type::TEXT_ARRAY],
};

pub(crate) async fn get(
    session: &mut Session,
    ns: i32,
    get: &Get,
    now: Timestamp,
) -> Answer<Vec<Option<Record>>> {
    let found = session
        .run(&[Call::new(&GET, params![ns, texts(&get.keys)])])
        .await?;
    let mut records: BTreeMap<Key, Record> = BTreeMap::new();
    for row in &found[0] {
        let record = record_from(row, 0)?;
        if !record.is_expired(now) {
            records.insert(record.key.clone(), record);
        }
    }
    Ok(in_order(&get.keys, &records))
}

pub(crate) async fn tasks(
    session: &mut Session,
    ns: i32,
    ids: &[TaskId],
) -> Answer<Vec<Option<Task>>> {
    let wanted: Vec<Id> = ids.iter().map(|id| Id::from(*id)).collect();
    let found = session
        .run(&[Call::new(&TASKS, params![ns, wanted])])
        .await?;
    let mut tasks: BTreeMap<TaskId, Task> = BTreeMap::new();
    for row in &found[0] {
        tasks.extend(task_at(row)?.map(|task| (task.id(), task)));
    }
    Ok(in_order(ids, &tasks))
}

pub(crate) async fn task_by_key(
    session: &mut Session,
    ns: i32,
    key: &IdempotencyKey,
) -> Answer<Option<Task>> {
    let key = key.as_str().to_owned();
    let found = session.run(&[Call::new(&BY_KEY, params![ns, key])]).await?;
    match found[0].first() {
        Some(row) => task_at(row),
        None => Ok(None),
    }
}

pub(crate) async fn peek(session: &mut Session, ns: i32, peek: &Peek) -> Answer<Vec<Task>> {
    let lanes: BTreeSet<i64> = peek
        .lanes
        .iter()
        .map(|lane| lane_number(ns, lane))
        .collect();
    let lanes: Vec<i64> = lanes.into_iter().collect();
    let call = Call::new(&PEEK, params![ns, lanes, peek.limit as i64]);
    let found = session.run(&[call]).await?;
    found[0]
        .iter()
        .filter_map(|row| task_at(row).transpose())
        .collect()
}

pub(crate) async fn counts(
    session: &mut Session,
    ns: i32,
    counts: &Counts,
) -> Answer<Vec<LaneCounts>> {
    let (first, last) = match &counts.queue {
        Some(queue) => (queue.to_string(), queue.to_string()),
        None => (String::new(), end()),
    };
    let found = session
        .run(&[Call::new(&COUNTS, params![ns, first, last])])
        .await?;
    let mut lanes: BTreeMap<Lane, BTreeMap<Status, u64>> = BTreeMap::new();
    for row in &found[0] {
        let (queue, kind): (&str, &str) = (column(row, 0)?, column(row, 1)?);
        if counts
            .kind
            .as_ref()
            .map(Name::as_str)
            .is_some_and(|wanted| wanted != kind)
        {
            continue;
        }
        let lane = Lane::new(queue, kind).map_err(|error| Fault::Corrupt(error.to_string()))?;
        let by_status = lanes.entry(lane).or_default();
        by_status.insert(status_from(column(row, 2)?)?, unsigned(column(row, 3)?)?);
    }
    Ok((lanes.into_iter())
        .map(|(lane, by_status)| LaneCounts { lane, by_status })
        .collect())
}

pub(crate) async fn groups(
    session: &mut Session,
    ns: i32,
    groups: &Groups,
) -> Answer<Vec<Option<Group>>> {
    let found = session
        .run(&[Call::new(&GROUPS, params![ns, texts(&groups.ids)])])
        .await?;
    let found = found[0].iter().map(|row| {
        let group = group_from(row, 0)?;
        Ok((group.id.clone(), group))
    });
    Ok(in_order(&groups.ids, &found.collect::<Answer<_>>()?))
}

/// What was found, as it was asked for.
fn in_order<K: Ord, T: Clone>(asked: &[K], found: &BTreeMap<K, T>) -> Vec<Option<T>> {
    asked.iter().map(|key| found.get(key).cloned()).collect()
}

fn texts<T: ToString>(keys: &[T]) -> Vec<String> {
    keys.iter().map(T::to_string).collect()
}

/// The task in a row whose spec or state may be missing. Without a spec, there is none.
pub(crate) fn task_at(row: &Row) -> Answer<Option<Task>> {
    let Some(id) = column::<Option<Id>>(row, 0)?.map(Id::task) else {
        return Ok(None);
    };
    if column::<Option<i16>>(row, 15)?.is_none() {
        return Err(Fault::Corrupt(format!("task {id} has no state")));
    }
    task_from(row).map(Some)
}

/// The task, unless it cannot be read: that must not fail what is done for others.
pub(crate) fn readable<T>(task: Answer<Option<T>>) -> Answer<Option<T>> {
    match task {
        Err(Fault::Corrupt(what)) => {
            tracing::warn!(what, "a task cannot be read");
            Ok(None)
        }
        other => other,
    }
}

/// A text that comes after every name and key.
pub(crate) fn end() -> String {
    char::MAX
        .to_string()
        .repeat(KEY_BYTES_MAX / char::MAX.len_utf8() + 1)
}
