//! The reading methods, each in one snapshot.

use std::collections::BTreeMap;

use plimsoll_core::change::{Change, Entry};
use plimsoll_core::error::NotFound;
use plimsoll_core::limits::{PAGE_BYTES_MAX, ROWS_EXAMINED_MAX};
use plimsoll_core::record::Record;
use plimsoll_core::store::{
    ChangePage, Changes, Counts, Cursor, DueNow, LaneCounts, List, LogPage, Logs, Page, Pager,
    Scan, Selector, Start,
};
use plimsoll_core::task::{Lane, Status, Task};
use plimsoll_core::{Error, Fence, IdempotencyKey, Key, Name, Position, TaskId, Timestamp};
use rusqlite::{Connection, Row, params};

use crate::claim::readable;
use crate::codec::{Id, decode, signed, status_code, status_from, timestamp, unsigned};
use crate::error::{Answer, Fault};
use crate::indexes;
use crate::rows::{self, DONE_COLUMNS, TASK_COLUMNS};
use crate::transaction::find_lane;

/// The inner error is the caller's, the outer one the file's.
pub(crate) type Read<T> = Answer<Result<T, Error>>;

/// Leaves a function with an answer that holds the caller's error.
macro_rules! ours {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Ok(Err(error.into())),
        }
    };
}

pub(crate) fn scan(
    connection: &Connection,
    ns: i64,
    scan: &Scan,
    now: Timestamp,
) -> Read<Page<Record>> {
    if let Some(range) = &scan.range {
        return indexes::range(connection, ns, scan, range, now);
    }
    let after = ours!(Cursor::place(scan.cursor.as_ref(), &scan.scope(), |text| {
        Key::new(text).ok()
    }));
    let mut statement = connection.prepare_cached(records_from(after.is_some()))?;
    let mut last = after;
    let from = last
        .as_ref()
        .map_or(scan.prefix.as_str(), Key::as_str)
        .to_owned();
    let mut found = statement.query(params![ns, from])?;
    let mut pager = Pager::new(scan.scope(), scan.limit);
    while let Some(row) = found.next()? {
        // What is not answered is not read: if it cannot be, that is not this caller's concern.
        let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        if !scan.prefix.matches(key) || pager.is_full(last.as_ref().map(Key::to_string)) {
            break;
        }
        let record = rows::record_from(row, 0)?;
        last = Some(record.key.clone());
        let size = record.size();
        pager.take(scan.shows(&record, now).then_some(record), size);
    }
    Ok(Ok(pager.finish()))
}

/// Records in key order, after a key or from it on. Inputs: namespace, key.
pub(crate) fn records_from(after: bool) -> &'static str {
    match after {
        true => {
            "SELECT key, fields, revision, modified_at, expires_at FROM records \
             WHERE ns = ? AND key > ? ORDER BY key"
        }
        false => {
            "SELECT key, fields, revision, modified_at, expires_at FROM records \
             WHERE ns = ? AND key >= ? ORDER BY key"
        }
    }
}

pub(crate) fn list(
    connection: &Connection,
    ns: i64,
    list: &List,
    now: Timestamp,
) -> Read<Page<Task>> {
    match &list.selector {
        Selector::Lane(lane, status) => list_lane(connection, ns, lane, *status, list),
        Selector::Group(group) => list_ids(connection, ns, MEMBERS, group.as_str(), list),
        Selector::Owner(owner) => list_ids(connection, ns, OWNERS, owner.as_str(), list),
        Selector::Key(prefix) => list_keys(connection, ns, prefix.as_str(), list),
        Selector::KeptFor(status, age) => {
            list_kept(connection, ns, *status, now.saturating_minus(*age), list)
        }
    }
}

const MEMBERS: &str =
    "SELECT id FROM members WHERE ns = ? AND \"group\" = ? AND id > ? ORDER BY id";
const OWNERS: &str = "SELECT id FROM owners WHERE ns = ? AND owner = ? AND id > ? ORDER BY id";

fn show(pager: &mut Pager<Task>, task: Option<Task>, list: &List) {
    let task = task.filter(|task| list.filter.matches(task));
    let size = task.as_ref().map_or(0, Task::size);
    pager.take(task, size);
}

/// The id after which a page begins, as a blob; none sorts before all.
fn after_id(list: &List) -> Result<(Option<TaskId>, Vec<u8>), Error> {
    let after = Cursor::place(list.cursor.as_ref(), &list.scope(), |text| {
        TaskId::parse(text).ok()
    })?;
    let blob = after.map_or(Vec::new(), |id| id.as_u128().to_be_bytes().to_vec());
    Ok((after, blob))
}

fn list_lane(
    connection: &Connection,
    ns: i64,
    lane: &Lane,
    status: Status,
    list: &List,
) -> Read<Page<Task>> {
    let (mut last, from) = ours!(after_id(list));
    let mut pager = Pager::new(list.scope(), list.limit);
    let Some(number) = find_lane(connection, ns, lane)? else {
        return Ok(Ok(pager.finish()));
    };
    if status == Status::Claimed {
        return list_claimed(connection, ns, number, from, last, list);
    }
    // Failed and cancelled tasks have an index of their own; the rest are most of their table.
    let statement = match status {
        Status::Scheduled | Status::Pending | Status::Claimed => format!(
            "SELECT {TASK_COLUMNS}, t.status FROM tasks t JOIN specs s ON s.ns = t.ns AND s.id = t.id \
             WHERE t.lane = ?1 AND t.id > ?2 AND ?3 = ?3 AND ?4 = ?4 ORDER BY t.id"
        ),
        Status::Completed => format!(
            "SELECT {DONE_COLUMNS}, d.status FROM done d JOIN specs s ON s.ns = d.ns AND s.id = d.id \
             WHERE d.lane = ?1 AND d.id > ?2 AND ?3 = ?3 AND ?4 = ?4 ORDER BY d.id"
        ),
        Status::Failed | Status::Cancelled => format!(
            "SELECT {DONE_COLUMNS}, d.status FROM done d INDEXED BY done_badly \
             JOIN specs s ON s.ns = d.ns AND s.id = d.id \
             WHERE d.lane = ?1 AND d.status = ?4 AND d.status > 3 AND d.id > ?2 AND ?3 = ?3 ORDER BY d.id"
        ),
    };
    let mut statement = connection.prepare_cached(&statement)?;
    let mut found = statement.query(params![number, from, ns, status_code(status)])?;
    while let Some(row) = found.next()? {
        if pager.is_full(last.map(|id| id.to_string())) {
            break;
        }
        last = Some(row.get::<_, Id>(0)?.task());
        if row.get::<_, i64>(4)? == status_code(status) {
            show(&mut pager, Some(rows::task_from(row)?), list);
        } else {
            pager.take(None, 0);
        }
    }
    Ok(Ok(pager.finish()))
}

/// Claimed tasks are few: the index of leases finds them, however many others wait.
fn list_claimed(
    connection: &Connection,
    ns: i64,
    lane: i64,
    from: Vec<u8>,
    mut last: Option<TaskId>,
    list: &List,
) -> Read<Page<Task>> {
    let mut pager = Pager::new(list.scope(), list.limit);
    let mut statement = connection.prepare_cached(
        "SELECT id FROM tasks INDEXED BY tasks_leased \
         WHERE ns = ? AND status = 2 AND lane = ? AND id > ? ORDER BY id",
    )?;
    let mut found = statement.query(params![ns, lane, from])?;
    while let Some(row) = found.next()? {
        if pager.is_full(last.map(|id| id.to_string())) {
            break;
        }
        let id = row.get::<_, Id>(0)?.task();
        last = Some(id);
        show(&mut pager, rows::task(connection, ns, id)?, list);
    }
    Ok(Ok(pager.finish()))
}

fn list_ids(
    connection: &Connection,
    ns: i64,
    statement: &str,
    of: &str,
    list: &List,
) -> Read<Page<Task>> {
    let (mut last, from) = ours!(after_id(list));
    let mut pager = Pager::new(list.scope(), list.limit);
    let mut statement = connection.prepare_cached(statement)?;
    let mut found = statement.query(params![ns, of, from])?;
    while let Some(row) = found.next()? {
        if pager.is_full(last.map(|id| id.to_string())) {
            break;
        }
        let id = row.get::<_, Id>(0)?.task();
        last = Some(id);
        show(&mut pager, rows::task(connection, ns, id)?, list);
    }
    Ok(Ok(pager.finish()))
}

fn list_keys(connection: &Connection, ns: i64, prefix: &str, list: &List) -> Read<Page<Task>> {
    let after = ours!(Cursor::place(list.cursor.as_ref(), &list.scope(), |text| {
        IdempotencyKey::new(text).ok().map(|key| key.to_string())
    }));
    let mut statement = connection.prepare_cached(match after {
        Some(_) => "SELECT key, task FROM keys WHERE ns = ? AND key > ? ORDER BY key",
        None => "SELECT key, task FROM keys WHERE ns = ? AND key >= ? ORDER BY key",
    })?;
    let mut last = after;
    let from = last.clone().unwrap_or_else(|| prefix.to_owned());
    let mut found = statement.query(params![ns, from])?;
    let mut pager = Pager::new(list.scope(), list.limit);
    while let Some(row) = found.next()? {
        let key: String = row.get(0)?;
        if !key.starts_with(prefix) || pager.is_full(last.clone()) {
            break;
        }
        last = Some(key);
        let id = row.get::<_, Id>(1)?.task();
        show(&mut pager, rows::task(connection, ns, id)?, list);
    }
    Ok(Ok(pager.finish()))
}

/// Finished tasks by when retention began to count for them. Inputs: 1 namespace, 2 status, 3 the
/// youngest moment, 4 to 6 the place of the last one: its moment, lane and id.
pub(crate) const KEPT: &str = "SELECT removable_from, lane, id FROM done INDEXED BY done_by_age \
     WHERE ns = ?1 AND status = ?2 AND removable_from <= ?3 \
     AND (removable_from, lane, id) > (?4, ?5, ?6) ORDER BY removable_from, lane, id";

/// What cannot be read is left out: it must not keep others from being found.
fn list_kept(
    connection: &Connection,
    ns: i64,
    status: Status,
    cutoff: Timestamp,
    list: &List,
) -> Read<Page<Task>> {
    let mut last = ours!(Cursor::place(
        list.cursor.as_ref(),
        &list.scope(),
        kept_place
    ));
    let (at, lane, id) = last.unwrap_or((i64::MIN, i64::MIN, TaskId::from_u128(0)));
    let mut statement = connection.prepare_cached(KEPT)?;
    let mut found = statement.query(params![
        ns,
        status_code(status),
        cutoff.as_micros(),
        at,
        lane,
        Id::from(id)
    ])?;
    let mut pager = Pager::new(list.scope(), list.limit);
    while let Some(row) = found.next()? {
        if pager.is_full(last.map(|(at, lane, id)| format!("{at} {lane} {id}"))) {
            break;
        }
        let id = row.get::<_, Id>(2)?.task();
        last = Some((row.get(0)?, row.get(1)?, id));
        show(&mut pager, readable(rows::task(connection, ns, id))?, list);
    }
    Ok(Ok(pager.finish()))
}

/// Where a task stands among those that were kept.
fn kept_place(text: &str) -> Option<(i64, i64, TaskId)> {
    let mut parts = text.splitn(3, ' ');
    let (at, lane) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((at, lane, TaskId::parse(parts.next()?).ok()?))
}

pub(crate) fn counts(connection: &Connection, ns: i64, counts: &Counts) -> Answer<Vec<LaneCounts>> {
    let mut statement = connection.prepare_cached(include_str!("../sql/counts.sql"))?;
    let queue = counts.queue.as_ref().map(Name::as_str);
    let kind = counts.kind.as_ref().map(Name::as_str);
    let mut found = statement.query(params![ns, queue, kind])?;
    let mut lanes: BTreeMap<Lane, BTreeMap<Status, u64>> = BTreeMap::new();
    while let Some(row) = found.next()? {
        let lane = Lane::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?);
        let lane = lane.map_err(|error| Fault::Corrupt(error.to_string()))?;
        let by_status = lanes.entry(lane).or_default();
        by_status.insert(status_from(row.get(2)?)?, unsigned(row.get(3)?)?);
    }
    Ok((lanes.into_iter())
        .map(|(lane, by_status)| LaneCounts { lane, by_status })
        .collect())
}

pub(crate) fn logs(connection: &Connection, ns: i64, logs: &Logs) -> Read<LogPage> {
    let after = Cursor::place(logs.cursor.as_ref(), &logs.scope(), |text| {
        text.parse::<i64>().ok()
    });
    let mut next = ours!(after).unwrap_or(0);
    let mut statement = connection.prepare_cached(
        // Lines of a task that had this id before are not its own.
        "SELECT seq, level, line FROM logs WHERE ns = ?1 AND task = ?2 AND seq > max(?3, \
         coalesce((SELECT upto FROM orphans WHERE ns = ?1 AND task = ?2), 0)) ORDER BY seq",
    )?;
    let mut found = statement.query(params![ns, Id::from(logs.task), next])?;
    let (mut lines, mut bytes, mut examined, mut more) = (Vec::new(), 0, 0, false);
    while let Some(row) = found.next()? {
        if lines.len() >= logs.limit || bytes >= PAGE_BYTES_MAX || examined >= ROWS_EXAMINED_MAX {
            more = true;
            break;
        }
        next = row.get(0)?;
        examined += 1;
        if row.get::<_, i64>(1)? >= logs.level as i64 {
            let line = rows::blob(row, 2)?;
            bytes += line.len();
            lines.push(decode(format_args!("log of task {}", logs.task), line)?);
        }
    }
    Ok(Ok(LogPage {
        lines,
        next: Cursor::new(&logs.scope(), next),
        more,
    }))
}

pub(crate) fn changes(connection: &Connection, ns: i64, changes: &Changes) -> Read<ChangePage> {
    let (newest, compacted): (i64, i64) = connection
        .prepare_cached("SELECT position, compacted FROM namespaces WHERE ns = ?")?
        .query_row([ns], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let start = match changes.start {
        Start::Oldest => compacted,
        Start::Newest => newest,
        Start::After(position) if !(compacted..=newest).contains(&signed(position.get())) => {
            let oldest = Position::new(unsigned(compacted)?);
            return Ok(Err(NotFound::History { oldest }.into()));
        }
        Start::After(position) => signed(position.get()),
    };
    let mut statement = connection.prepare_cached(CHANGES)?;
    let mut found = statement.query(params![ns, start])?;
    let mut page = ChangePage {
        entries: Vec::new(),
        next: Position::new(unsigned(start)?),
        more: false,
        newest: Position::new(unsigned(newest)?),
    };
    let (mut shown, mut examined, mut bytes) = (0, 0, 0);
    while let Some(row) = found.next()? {
        if shown >= changes.limit || examined >= ROWS_EXAMINED_MAX || bytes >= PAGE_BYTES_MAX {
            page.more = true;
            break;
        }
        page.next = Position::new(unsigned(row.get(0)?)?);
        let what = format_args!("history at {}", page.next);
        let mut all: Vec<Change> = decode(what, rows::blob(row, 2)?)?;
        examined += all.len();
        all.retain(|change| changes.shows(change));
        shown += all.len();
        bytes += all.iter().map(Change::size).sum::<usize>();
        if !all.is_empty() {
            page.entries.push(Entry {
                position: page.next,
                at: timestamp(row.get(1)?)?,
                changes: all,
            });
        }
    }
    Ok(Ok(page))
}

/// The history after a position. Inputs: namespace, position.
pub(crate) const CHANGES: &str =
    "SELECT position, at, changes FROM history WHERE ns = ? AND position > ? ORDER BY position";

/// When records expire, the first one first. Input: namespace.
pub(crate) const EXPIRING: &str = "SELECT expires_at, key FROM records INDEXED BY records_expiring \
     WHERE ns = ? AND expires_at IS NOT NULL ORDER BY expires_at";

/// What is overdue. Tasks and records that cannot be read come last, and only as far as the limit
/// leaves room for them: nobody can decide about them, and they must not stand before others.
pub(crate) fn due(
    connection: &Connection,
    ns: i64,
    limit: usize,
    now: Timestamp,
) -> Answer<DueNow> {
    let scheduled = overdue(
        connection
            .prepare_cached(
                "SELECT runnable_at, id FROM tasks INDEXED BY tasks_due \
                 WHERE ns = ? AND status = 0 ORDER BY runnable_at",
            )?
            .query([ns])?,
        limit,
        now,
        |row| Ok(row.get::<_, Id>(1)?.task()),
        |id| rows::task(connection, ns, *id).map(drop),
    )?;
    let expired = overdue(
        connection
            .prepare_cached(
                "SELECT until, id, fence FROM tasks INDEXED BY tasks_leased \
                 WHERE ns = ? AND status = 2 ORDER BY until",
            )?
            .query([ns])?,
        limit,
        now,
        |row| {
            let fence = Fence::new(unsigned(row.get(2)?)?);
            Ok((row.get::<_, Id>(1)?.task(), fence))
        },
        |(id, _)| rows::task(connection, ns, *id).map(drop),
    )?;
    let records = overdue(
        connection.prepare_cached(EXPIRING)?.query([ns])?,
        limit,
        now,
        |row| {
            let key = Key::new(row.get::<_, String>(1)?);
            key.map_err(|error| Fault::Corrupt(error.to_string()))
        },
        |key| rows::record(connection, ns, key).map(drop),
    )?;
    let next = [scheduled.next, expired.next, records.next];
    let nothing = scheduled.readable + expired.readable + records.readable == 0;
    let next = next.into_iter().flatten().filter(|_| nothing).min();
    Ok(DueNow {
        more: scheduled.more || expired.more || records.more,
        scheduled: scheduled.rows,
        expired: expired.rows,
        records: records.rows,
        groups: Vec::new(),
        next: next.filter(|at| *at < Timestamp::MAX),
    })
}

/// The rows of an index by time that are overdue, and what comes after them.
struct Overdue<T> {
    rows: Vec<T>,
    /// How many of these can be read: the first ones.
    readable: usize,
    next: Option<Timestamp>,
    more: bool,
}

/// Walks an index by time, which is in the first column. `name` says what a row is, and `read` if
/// it can be read. So many rows that cannot be read end the walk that it does not take for ever.
fn overdue<T>(
    mut found: rusqlite::Rows<'_>,
    limit: usize,
    now: Timestamp,
    name: impl Fn(&Row<'_>) -> Answer<T>,
    read: impl Fn(&T) -> Answer<()>,
) -> Answer<Overdue<T>> {
    let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
    let (mut next, mut more) = (None, false);
    while let Some(row) = found.next()?
        && unreadable.len() < ROWS_EXAMINED_MAX
    {
        let at: i64 = row.get(0)?;
        if at > now.as_micros() {
            next = timestamp(at).ok();
            break;
        }
        if rows.len() == limit {
            more = true;
            break;
        }
        let one = name(row)?;
        match read(&one) {
            Ok(()) => rows.push(one),
            Err(Fault::Corrupt(what)) => {
                tracing::warn!(what, "what is due cannot be read");
                unreadable.push(one);
            }
            Err(fault) => return Err(fault),
        }
    }
    let readable = rows.len();
    rows.extend(unreadable);
    rows.truncate(limit);
    Ok(Overdue {
        rows,
        readable,
        next,
        more,
    })
}
