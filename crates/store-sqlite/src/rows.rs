//! Reads and writes single rows.

use std::sync::Arc;

use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::Receipt;
use plimsoll_core::task::{Status, Task, TaskSpec, TaskState};
use plimsoll_core::{CommitId, GroupId, IdempotencyKey, Key, Revision, TaskId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::codec::{Id, decode, encode, signed, status_code, timestamp, unsigned};
use crate::error::{Answer, Fault};
use crate::overlay::Unwritten;

pub(crate) fn record(connection: &Connection, ns: i64, key: &Key) -> Answer<Option<Record>> {
    let mut statement = connection.prepare_cached(RECORD)?;
    let mut rows = statement.query(params![ns, key.as_str()])?;
    rows.next()?.map(|row| record_from(row, 0)).transpose()
}

/// A record. Inputs: namespace, key.
const RECORD: &str =
    "SELECT key, fields, revision, modified_at, expires_at FROM records WHERE ns = ? AND key = ?";
const DELETE_RECORD: &str = "DELETE FROM records WHERE ns = ? AND key = ?";

/// The record in the columns `key, fields, revision, modified_at, expires_at`, from this one on.
pub(crate) fn record_from(row: &Row<'_>, first: usize) -> Answer<Record> {
    let key = row
        .get_ref(first)?
        .as_str()
        .map_err(|e| Fault::Corrupt(e.to_string()))?;
    let fields = row
        .get_ref(first + 1)?
        .as_blob()
        .map_err(|e| Fault::Corrupt(e.to_string()))?;
    let expires_at: Option<i64> = row.get(first + 4)?;
    Ok(Record {
        key: Key::new(key).map_err(|error| Fault::Corrupt(error.to_string()))?,
        fields: decode(format_args!("record {key}"), fields)?,
        revision: Revision::new(unsigned(row.get(first + 2)?)?),
        modified_at: timestamp(row.get(first + 3)?)?,
        expires_at: expires_at.map(timestamp).transpose()?,
    })
}

pub(crate) fn put_record(
    connection: &Connection,
    ns: i64,
    key: &Key,
    after: Option<&Record>,
) -> Answer<()> {
    let Some(record) = after else {
        connection
            .prepare_cached(DELETE_RECORD)?
            .execute(params![ns, key.as_str()])?;
        return Ok(());
    };
    connection
        .prepare_cached(include_str!("../sql/put_record.sql"))?
        .execute(params![
            ns,
            key.as_str(),
            encode(&record.fields)?,
            signed(record.revision.get()),
            record.modified_at.as_micros(),
            record.expires_at.map(|at| at.as_micros()),
        ])?;
    Ok(())
}

pub(crate) fn key_holder(
    connection: &Connection,
    ns: i64,
    key: &IdempotencyKey,
) -> Answer<Option<TaskId>> {
    let id = connection
        .prepare_cached("SELECT task FROM keys WHERE ns = ? AND key = ?")?
        .query_row(params![ns, key.as_str()], |row| row.get::<_, Id>(0))
        .optional()?;
    Ok(id.map(Id::task))
}

pub(crate) fn put_key(
    connection: &Connection,
    ns: i64,
    key: &IdempotencyKey,
    after: Option<TaskId>,
) -> Answer<()> {
    match after {
        Some(task) => connection
            .prepare_cached("INSERT OR REPLACE INTO keys VALUES (?, ?, ?)")?
            .execute(params![ns, key.as_str(), Id::from(task)])?,
        None => connection
            .prepare_cached("DELETE FROM keys WHERE ns = ? AND key = ?")?
            .execute(params![ns, key.as_str()])?,
    };
    Ok(())
}

pub(crate) fn group(connection: &Connection, ns: i64, id: &GroupId) -> Answer<Option<Group>> {
    let mut statement =
        connection.prepare_cached("SELECT body FROM groups WHERE ns = ? AND id = ?")?;
    let mut rows = statement.query(params![ns, id.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    decode(format_args!("group {id}"), blob(row, 0)?).map(Some)
}

pub(crate) fn put_group(
    connection: &Connection,
    ns: i64,
    id: &GroupId,
    after: Option<&Group>,
) -> Answer<()> {
    match after {
        Some(group) => connection
            .prepare_cached("INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?)")?
            .execute(params![
                ns,
                id.as_str(),
                group.drained_at.map(|at| at.as_micros()),
                encode(group)?,
            ])?,
        None => connection
            .prepare_cached("DELETE FROM groups WHERE ns = ? AND id = ?")?
            .execute(params![ns, id.as_str()])?,
    };
    Ok(())
}

pub(crate) fn receipt(connection: &Connection, ns: i64, id: CommitId) -> Answer<Option<Receipt>> {
    let mut statement =
        connection.prepare_cached("SELECT receipt FROM commits WHERE ns = ? AND id = ?")?;
    let mut rows = statement.query(params![ns, Id(id.as_u128())])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    decode(format_args!("receipt of commit {id}"), blob(row, 0)?).map(Some)
}

/// The columns that [`task_from`] reads, of a task that has not ended.
pub(crate) const TASK_COLUMNS: &str = "s.id, s.spec, t.state, t.until";
/// Likewise, of one that has ended.
pub(crate) const DONE_COLUMNS: &str = "s.id, s.spec, d.state, NULL";

pub(crate) fn task(connection: &Connection, ns: i64, id: TaskId) -> Answer<Option<Task>> {
    // One table after another: most ids that writers ask for are new, and in none of them.
    let mut statement =
        connection.prepare_cached("SELECT lane, spec FROM specs WHERE ns = ? AND id = ?")?;
    let mut specs = statement.query(params![ns, Id::from(id)])?;
    let Some(spec) = specs.next()? else {
        return Ok(None);
    };
    let lane: i64 = spec.get(0)?;
    let spec = blob(spec, 1)?;
    for table in [
        "SELECT state, until FROM tasks WHERE lane = ? AND id = ?",
        "SELECT state, NULL FROM done WHERE lane = ? AND id = ?",
    ] {
        let mut statement = connection.prepare_cached(table)?;
        let mut states = statement.query(params![lane, Id::from(id)])?;
        if let Some(state) = states.next()? {
            return task_of(id, spec, blob(state, 0)?, state.get(1)?).map(Some);
        }
    }
    Err(Fault::Corrupt(format!("task {id} has no state")))
}

/// The task in the columns of [`TASK_COLUMNS`] or [`DONE_COLUMNS`].
pub(crate) fn task_from(row: &Row<'_>) -> Answer<Task> {
    let id = row.get::<_, Id>(0)?.task();
    task_of(id, blob(row, 1)?, blob(row, 2)?, row.get(3)?)
}

/// The task with these bodies. A claimed one has the end of its lease in a column.
fn task_of(id: TaskId, spec: &[u8], state: &[u8], until: Option<i64>) -> Answer<Task> {
    let what = format_args!("task {id}");
    let spec: TaskSpec = decode(what, spec)?;
    let mut state: TaskState = decode(what, state)?;
    if let (Some(lease), Some(until)) = (&mut state.lease, until) {
        lease.until = timestamp(until)?;
    }
    Ok(Task {
        spec: Arc::new(spec),
        state,
    })
}

pub(crate) fn blob<'r>(row: &'r Row<'_>, column: usize) -> Answer<&'r [u8]> {
    let value = row.get_ref(column)?;
    value
        .as_blob()
        .map_err(|error| Fault::Corrupt(error.to_string()))
}

/// A task with the numbers of its namespace and its lane.
type Numbered<'t> = (i64, i64, &'t Task);

/// Writes tasks that do not wait in the file, table by table.
pub(crate) fn put_tasks<'t>(
    connection: &Connection,
    tasks: impl Iterator<Item = (i64, &'t Unwritten)>,
) -> Answer<()> {
    let (mut new, mut active, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    for (ns, Unwritten { lane, stored, task }) in tasks {
        let numbered: Numbered<'_> = (ns, *lane, task);
        match stored {
            None => new.push(numbered),
            Some(Status::Claimed) if !task.status.is_terminal() => {
                update_active(connection, *lane, task)?;
                continue;
            }
            Some(stored) => remove_state(connection, *lane, *stored, task.id())?,
        }
        if task.status.is_terminal() {
            ended.push(numbered);
        } else {
            active.push(numbered);
        }
    }
    insert_specs(connection, &new)?;
    insert_active(connection, &active)?;
    insert_done(connection, &ended)
}

/// Writes a task that waited in the file; `lane` is the number of its lane.
pub(crate) fn update_waiting(
    connection: &Connection,
    ns: i64,
    lane: i64,
    after: &Task,
) -> Answer<()> {
    if !after.status.is_terminal() {
        return update_active(connection, lane, after);
    }
    remove_active(connection, lane, after.id())?;
    insert_done(connection, &[(ns, lane, after)])
}

/// How many rows an insert has at most.
const INSERTED_AT_ONCE: usize = 16;

/// Inserts rows, several with one statement: the next row is found faster from the last one than
/// from the root. What fails is undone with the transaction, so the statement need not be able to
/// undo itself.
fn insert_all<const N: usize>(
    connection: &Connection,
    table: &str,
    rows: impl Iterator<Item = Answer<[Value; N]>>,
) -> Answer<()> {
    let rows = rows.collect::<Answer<Vec<_>>>()?;
    let mut rest = rows.as_slice();
    while !rest.is_empty() {
        let count = if rest.len() < INSERTED_AT_ONCE {
            1
        } else {
            INSERTED_AT_ONCE
        };
        let row = ["?"; N].join(",");
        let insert = format!(
            "INSERT OR FAIL INTO {table} VALUES ({})",
            vec![row; count].join("),(")
        );
        let mut statement = connection.prepare_cached(&insert)?;
        while let Some((some, others)) = rest.split_at_checked(count)
            && !some.is_empty()
        {
            statement.execute(params_from_iter(some.iter().flatten()))?;
            rest = others;
        }
    }
    Ok(())
}

fn insert_specs(connection: &Connection, tasks: &[Numbered<'_>]) -> Answer<()> {
    let rows = tasks.iter().map(|(ns, lane, task)| {
        let (id, spec) = (Id::from(task.id()), encode(&*task.spec)?);
        Ok([(*ns).into(), id.into(), (*lane).into(), spec.into()])
    });
    insert_all(connection, "specs", rows)?;
    for (ns, _, task) in tasks {
        let spec = &task.spec;
        if let Some(group) = &spec.group {
            connection
                .prepare_cached("INSERT INTO members VALUES (?, ?, ?)")?
                .execute(params![ns, group.as_str(), Id::from(spec.id)])?;
        }
        if let Some(owner) = &spec.owner {
            connection
                .prepare_cached("INSERT INTO owners VALUES (?, ?, ?)")?
                .execute(params![ns, owner.as_str(), Id::from(spec.id)])?;
        }
    }
    Ok(())
}

fn insert_active(connection: &Connection, tasks: &[Numbered<'_>]) -> Answer<()> {
    let rows = tasks.iter().map(|(ns, lane, task)| {
        let until = task.lease.as_ref().map(|lease| lease.until.as_micros());
        Ok([
            (*lane).into(),
            Id::from(task.id()).into(),
            (*ns).into(),
            status_code(task.status).into(),
            task.priority.get().into(),
            task.runnable_at.as_micros().into(),
            until.into(),
            signed(task.fence.get()).into(),
            encode(&task.state)?.into(),
        ])
    });
    insert_all(connection, "tasks", rows)
}

fn update_active(connection: &Connection, lane: i64, task: &Task) -> Answer<()> {
    connection
        .prepare_cached(
            "UPDATE tasks SET status = ?3, priority = ?4, runnable_at = ?5, until = ?6, fence = ?7, \
             state = ?8 WHERE lane = ?1 AND id = ?2",
        )?
        .execute(params![
            lane,
            Id::from(task.id()),
            status_code(task.status),
            task.priority.get(),
            task.runnable_at.as_micros(),
            task.lease.as_ref().map(|lease| lease.until.as_micros()),
            signed(task.fence.get()),
            encode(&task.state)?,
        ])?;
    Ok(())
}

/// Moves the end of a lease, and nothing else.
pub(crate) fn put_lease_end(
    connection: &Connection,
    lane: i64,
    id: TaskId,
    until: Timestamp,
) -> Answer<()> {
    connection
        .prepare_cached("UPDATE tasks SET until = ?3 WHERE lane = ?1 AND id = ?2")?
        .execute(params![lane, Id::from(id), until.as_micros()])?;
    Ok(())
}

fn remove_active(connection: &Connection, lane: i64, id: TaskId) -> Answer<()> {
    connection
        .prepare_cached("DELETE FROM tasks WHERE lane = ? AND id = ?")?
        .execute(params![lane, Id::from(id)])?;
    Ok(())
}

fn insert_done(connection: &Connection, tasks: &[Numbered<'_>]) -> Answer<()> {
    let rows = tasks.iter().map(|(ns, lane, task)| {
        let removable_from = task.removable_from().unwrap_or(task.modified_at);
        Ok([
            (*lane).into(),
            Id::from(task.id()).into(),
            (*ns).into(),
            status_code(task.status).into(),
            removable_from.as_micros().into(),
            encode(&task.state)?.into(),
        ])
    });
    insert_all(connection, "done", rows)
}

/// Removes what changes of a task, as it is in the file.
fn remove_state(connection: &Connection, lane: i64, stored: Status, id: TaskId) -> Answer<()> {
    if !stored.is_terminal() {
        return remove_active(connection, lane, id);
    }
    connection
        .prepare_cached("DELETE FROM done WHERE lane = ? AND id = ?")?
        .execute(params![lane, Id::from(id)])?;
    Ok(())
}

/// Removes a task, which is this in the file. A commit may end and delete it in one.
pub(crate) fn remove_task(
    connection: &Connection,
    ns: i64,
    lane: i64,
    stored: Status,
    spec: &TaskSpec,
) -> Answer<()> {
    let id = spec.id;
    remove_state(connection, lane, stored, id)?;
    connection
        .prepare_cached("DELETE FROM specs WHERE ns = ? AND id = ?")?
        .execute(params![ns, Id::from(id)])?;
    if let Some(group) = &spec.group {
        connection
            .prepare_cached("DELETE FROM members WHERE ns = ? AND \"group\" = ? AND id = ?")?
            .execute(params![ns, group.as_str(), Id::from(id)])?;
    }
    if let Some(owner) = &spec.owner {
        connection
            .prepare_cached("DELETE FROM owners WHERE ns = ? AND owner = ? AND id = ?")?
            .execute(params![ns, owner.as_str(), Id::from(id)])?;
    }
    Ok(())
}

pub(crate) fn has_log(connection: &Connection, ns: i64, task: TaskId) -> Answer<bool> {
    Ok(connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM logs WHERE ns = ? AND task = ?)")?
        .query_row(params![ns, Id::from(task)], |row| row.get(0))?)
}

/// Leaves the lines of a log up to this number to be removed later. Nobody sees them any more.
pub(crate) fn put_orphan(connection: &Connection, ns: i64, task: TaskId, upto: i64) -> Answer<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO orphans VALUES (?, ?, ?)")?
        .execute(params![ns, Id::from(task), upto])?;
    Ok(())
}

/// One of the logs whose lines are to be removed, and up to which number.
pub(crate) fn orphan(connection: &Connection, ns: i64) -> Answer<Option<(TaskId, i64)>> {
    let found = connection
        .prepare_cached("SELECT task, upto FROM orphans WHERE ns = ? LIMIT 1")?
        .query_row([ns], |row| Ok((row.get::<_, Id>(0)?.task(), row.get(1)?)))
        .optional()?;
    Ok(found)
}

pub(crate) fn remove_orphan(connection: &Connection, ns: i64, task: TaskId) -> Answer<()> {
    connection
        .prepare_cached("DELETE FROM orphans WHERE ns = ? AND task = ?")?
        .execute(params![ns, Id::from(task)])?;
    Ok(())
}

/// Removes the oldest lines of a log up to a number, at most so many, and answers how many.
pub(crate) fn shorten_log(
    connection: &Connection,
    ns: i64,
    task: TaskId,
    upto: i64,
    most: usize,
) -> Answer<usize> {
    Ok(connection
        .prepare_cached(
            "DELETE FROM logs WHERE ns = ?1 AND task = ?2 AND seq IN \
             (SELECT seq FROM logs WHERE ns = ?1 AND task = ?2 AND seq <= ?3 ORDER BY seq LIMIT ?4)",
        )?
        .execute(params![ns, Id::from(task), upto, most as i64])?)
}

#[cfg(test)]
// A failed assertion is how a test fails.
#[allow(clippy::expect_used)]
mod tests {
    use super::{DELETE_RECORD, RECORD};
    use crate::compact::{DELETE_OLDEST, OLDEST};
    use crate::indexes::PUT_ENTRY;
    use crate::plan::{plan, tables};
    use crate::read::{CHANGES, EXPIRING, records_from};

    /// One search for what was asked, and nothing is read or sorted beside it.
    #[test]
    fn records_and_history_are_found_by_their_indexes() {
        let connection = tables();
        for (query, by) in [
            (RECORD, "records_1 (ns=? AND key=?)"),
            (DELETE_RECORD, "records_1 (ns=? AND key=?)"),
            (PUT_ENTRY, "records_1 (ns=? AND key=?)"),
            (records_from(true), "records_1 (ns=? AND key>?)"),
            (records_from(false), "records_1 (ns=? AND key>?)"),
            (
                EXPIRING,
                "COVERING INDEX records_expiring (ns=? AND expires_at>?)",
            ),
            (CHANGES, "history_1 (ns=? AND position>?)"),
            (OLDEST, "history_1 (ns=?)"),
            (DELETE_OLDEST, "history_1 (ns=? AND position<?)"),
        ] {
            let steps = plan(&connection, query);
            assert!(
                steps.len() == 1 && steps[0].ends_with(by),
                "{query}: {steps:?}"
            );
        }
    }
}
