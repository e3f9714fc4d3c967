//! Locks and reads the rows that commits need.
//!
//! Rows of one kind are locked in key order, the kinds one after another. A record that does not
//! exist cannot be locked: its key is, so that what depends on its absence waits for who creates
//! it. Other rows that do not exist need no lock: whoever creates one of the same key fails at its
//! primary key, and is decided again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::decide::{RowId, Rows};
use plimsoll_core::group::Group;
use plimsoll_core::ids::Fingerprint;
use plimsoll_core::store::Receipt;
use plimsoll_core::task::Task;
use plimsoll_core::{CommitId, GroupId, IdempotencyKey, Key, Position, Revision, TaskId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{Call, Sql, params};
use crate::codec::{Id, column, decode, unsigned};
use crate::error::{Answer, Fault};
use crate::read::{TASKS, task_at};
use crate::record_row::record_from;
use crate::session::{REVISIONS, Session};
use crate::statement::sql_file;
use crate::task_row::{TASK_COLUMNS, task_from};

pub(crate) static RECORDS: Sql = Sql {
    text: "SELECT {record_columns} FROM plimsoll.records r WHERE r.ns = $1 AND r.key = ANY($2) \
           ORDER BY r.key FOR UPDATE",
    types: &[Type::INT4, Type::TEXT_ARRAY],
};
/// Whether records were created since they were looked for.
pub(crate) static CREATED: Sql = Sql {
    text: "SELECT 1 FROM plimsoll.records WHERE ns = $1 AND key = ANY($2) LIMIT 1",
    types: &[Type::INT4, Type::TEXT_ARRAY],
};
static ABSENT: Sql = Sql {
    text: "SELECT plimsoll.lock_absent($1)",
    types: &[Type::INT8_ARRAY],
};
pub(crate) static KEYS: Sql = Sql {
    text: "SELECT key, task FROM plimsoll.keys WHERE ns = $1 AND key = ANY($2) ORDER BY key FOR UPDATE",
    types: &[Type::INT4, Type::TEXT_ARRAY],
};
pub(crate) static LIVE_TASKS: Sql = Sql {
    text: sql_file!("load/live_tasks"),
    types: &[Type::INT4, Type::UUID_ARRAY],
};
/// Likewise, of those that nobody else has locked.
pub(crate) static FREE_TASKS: Sql = Sql {
    text: concat!(sql_file!("load/live_tasks"), "SKIP LOCKED"),
    types: &[Type::INT4, Type::UUID_ARRAY],
};
pub(crate) static DONE_TASKS: Sql = Sql {
    text: sql_file!("load/done_tasks"),
    types: &[Type::INT4, Type::UUID_ARRAY],
};
pub(crate) static SPECS: Sql = Sql {
    text: "SELECT id FROM plimsoll.specs WHERE ns = $1 AND id = ANY($2)",
    types: &[Type::INT4, Type::UUID_ARRAY],
};
/// Claims that may hold tasks.
pub(crate) static HOLDERS: Sql = Sql {
    text: sql_file!("load/holders"),
    types: &[Type::INT4, Type::UUID_ARRAY],
};
/// Likewise, of those that nobody else has locked.
pub(crate) static FREE_HOLDERS: Sql = Sql {
    text: concat!(sql_file!("load/holders"), "SKIP LOCKED"),
    types: &[Type::INT4, Type::UUID_ARRAY],
};
/// What these claims hold of tasks.
pub(crate) static HELD_TASKS: Sql = Sql {
    text: sql_file!("load/held_tasks"),
    types: &[Type::INT4, Type::UUID_ARRAY, Type::UUID_ARRAY],
};
pub(crate) static GROUPS: Sql = Sql {
    text: "SELECT id, body FROM plimsoll.groups WHERE ns = $1 AND id = ANY($2) ORDER BY id FOR UPDATE",
    types: &[Type::INT4, Type::TEXT_ARRAY],
};
pub(crate) static COMMITS: Sql = Sql {
    text: "SELECT id, receipt, position FROM plimsoll.commits WHERE ns = $1 AND id = ANY($2)",
    types: &[Type::INT4, Type::UUID_ARRAY],
};

/// Rows that were locked and read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) rows: Rows,
    /// The newest revision among them.
    pub(crate) newest: Revision,
    /// Tasks without a row of their own, and the requests of their claims.
    pub(crate) rowless: BTreeMap<TaskId, Id>,
}

impl Default for Loaded {
    fn default() -> Self {
        Self {
            rows: Rows::default(),
            newest: Revision::ZERO,
            rowless: BTreeMap::new(),
        }
    }
}

impl Loaded {
    fn task(&mut self, task: Task) {
        self.newest = task.revision.max(self.newest);
        self.rows.tasks.load(task.id(), Some(Arc::new(task)));
    }
}

/// Rows to be locked and read.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    records: Vec<Key>,
    keys: Vec<IdempotencyKey>,
    tasks: Vec<TaskId>,
    groups: Vec<GroupId>,
    commits: Vec<CommitId>,
}

impl Wanted {
    /// These, in the order of their keys.
    pub(crate) fn of(rows: BTreeSet<RowId>) -> Self {
        let mut wanted = Self::default();
        for row in rows {
            match row {
                RowId::Record(key) => wanted.records.push(key),
                RowId::Key(key) => wanted.keys.push(key),
                RowId::Task(id) => wanted.tasks.push(id),
                RowId::Group(id) => wanted.groups.push(id),
                RowId::Commit(id) => wanted.commits.push(id),
            }
        }
        wanted
    }

    /// Whether there are records among them.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Locks and reads them, after `before`, and answers what `before` was answered.
    pub(crate) async fn load(
        self,
        session: &mut Session,
        ns: i32,
        mut calls: Vec<Call>,
        loaded: &mut Loaded,
    ) -> Answer<Vec<Vec<Row>>> {
        let before = calls.len();
        calls.extend(self.calls(ns));
        let mut answers = session.run(&calls).await?;
        let found = answers.split_off(before);
        let commits = self.commits.clone();
        let absent = self.take(&found, loaded)?;
        if !absent.tasks.is_empty() {
            load_held(session, ns, &absent.tasks, commits, loaded).await?;
        }
        if !absent.records.is_empty() {
            lock_absent(session, ns, absent.records, loaded).await?;
        }
        Ok(answers)
    }

    fn calls(&self, ns: i32) -> Vec<Call> {
        let mut calls = Vec::new();
        if !self.records.is_empty() {
            calls.push(Call::new(&RECORDS, params![ns, texts(&self.records)]));
        }
        if !self.keys.is_empty() {
            calls.push(Call::new(&KEYS, params![ns, texts(&self.keys)]));
        }
        if !self.tasks.is_empty() {
            for sql in [&LIVE_TASKS, &DONE_TASKS, &SPECS] {
                calls.push(Call::new(sql, params![ns, ids(&self.tasks)]));
            }
        }
        if !self.groups.is_empty() {
            calls.push(Call::new(&GROUPS, params![ns, texts(&self.groups)]));
        }
        // Last, when all rows are locked: whoever made the same commit, and was waited for, has made it.
        calls.extend(commits_of(ns, &self.commits));
        calls
    }

    /// Takes in what was found. Answers what was not.
    fn take(self, found: &[Vec<Row>], loaded: &mut Loaded) -> Answer<Absent> {
        let mut found = found.iter();
        let mut next = || found.next().map(Vec::as_slice).unwrap_or_default();
        let mut absent = Absent::default();
        if !self.records.is_empty() {
            absent.records = take_records(self.records, next(), loaded)?;
        }
        if !self.keys.is_empty() {
            take_keys(self.keys, next(), &mut loaded.rows)?;
        }
        if !self.tasks.is_empty() {
            absent.tasks = take_tasks(&self.tasks, [next(), next(), next()], loaded)?;
        }
        if !self.groups.is_empty() {
            take_groups(self.groups, next(), &mut loaded.rows)?;
        }
        if !self.commits.is_empty() {
            take_commits(self.commits, next(), &mut loaded.rows)?;
        }
        Ok(absent)
    }
}

/// What was not found.
#[derive(Debug, Default)]
struct Absent {
    /// Records that do not exist.
    records: Vec<Key>,
    /// Tasks that exist, but have no row of their own.
    tasks: Vec<TaskId>,
}

pub(crate) fn ids(tasks: &[TaskId]) -> Vec<Id> {
    tasks.iter().map(|id| Id::from(*id)).collect()
}

fn texts<T: ToString>(keys: &[T]) -> Vec<String> {
    keys.iter().map(T::to_string).collect()
}

/// Locks the keys of records that do not exist, and looks again: one that was created meanwhile would be
/// locked after others, which is not its order. Nobody knows which revisions they had before they were
/// deleted: those to come are taken now, and are greater.
async fn lock_absent(
    session: &mut Session,
    ns: i32,
    absent: Vec<Key>,
    loaded: &mut Loaded,
) -> Answer<()> {
    let lock = |key| lock_of(session.schema(), ns, key);
    let mut locks: Vec<i64> = absent.iter().map(lock).collect();
    locks.sort_unstable();
    let found = session
        .run(&[
            Call::new(&ABSENT, params![locks]),
            Call::new(&CREATED, params![ns, texts(&absent)]),
            (&REVISIONS).into(),
        ])
        .await?;
    if !found[1].is_empty() {
        return Err(Fault::Moved);
    }
    let first = unsigned(column(&found[2][0], 0)?)?;
    session.keep_revisions(first);
    loaded.newest = Revision::new(first.saturating_sub(1)).max(loaded.newest);
    Ok(())
}

/// The advisory lock of a record's key. All schemas of a database share these.
fn lock_of(schema: &str, ns: i32, key: &Key) -> i64 {
    let text = format!("plimsoll record {schema} {ns} {key}");
    (Fingerprint::of(text.as_bytes()).as_u128() >> 64) as i64
}

fn take_records(wanted: Vec<Key>, found: &[Row], loaded: &mut Loaded) -> Answer<Vec<Key>> {
    let mut absent: BTreeSet<Key> = wanted.into_iter().collect();
    for row in found {
        let record = record_from(row, 0)?;
        loaded.newest = record.revision.max(loaded.newest);
        absent.remove(&record.key);
        loaded.rows.records.load(record.key.clone(), Some(record));
    }
    for key in &absent {
        loaded.rows.records.load(key.clone(), None);
    }
    Ok(absent.into_iter().collect())
}

fn take_keys(wanted: Vec<IdempotencyKey>, found: &[Row], rows: &mut Rows) -> Answer<()> {
    for key in wanted {
        rows.keys.load(key, None);
    }
    for row in found {
        let key = IdempotencyKey::new(column::<&str>(row, 0)?);
        let key = key.map_err(|error| Fault::Corrupt(error.to_string()))?;
        rows.keys.load(key, Some(column::<Id>(row, 1)?.task()));
    }
    Ok(())
}

/// Answers those that exist, but have no row of their own.
fn take_tasks(
    wanted: &[TaskId],
    [live, done, specs]: [&[Row]; 3],
    loaded: &mut Loaded,
) -> Answer<Vec<TaskId>> {
    for id in wanted {
        loaded.rows.tasks.load(*id, None);
    }
    let mut found = BTreeSet::new();
    for row in live.iter().chain(done) {
        let task = task_from(row)?;
        found.insert(task.id());
        loaded.task(task);
    }
    let mut rowless = Vec::new();
    for row in specs {
        let id = column::<Id>(row, 0)?.task();
        if !found.remove(&id) {
            rowless.push(id);
        }
    }
    match found.is_empty() {
        true => Ok(rowless),
        false => Err(Fault::Moved),
    }
}

/// Reads what is remembered of commits, if there are any.
fn commits_of(ns: i32, commits: &[CommitId]) -> Option<Call> {
    let ids: Vec<Id> = commits.iter().map(|id| Id(id.as_u128())).collect();
    (!ids.is_empty()).then(|| Call::new(&COMMITS, params![ns, ids]))
}

/// Locks the claims that may hold tasks, and looks again: nobody can leave them now. So it does for commits: who was
/// waited for may have made one of them.
async fn load_held(
    session: &mut Session,
    ns: i32,
    tasks: &[TaskId],
    commits: Vec<CommitId>,
    loaded: &mut Loaded,
) -> Answer<()> {
    let holders = [Call::new(&HOLDERS, params![ns, ids(tasks)])];
    let holders = session.run(&holders).await?.swap_remove(0);
    let holders = holders.iter().map(|row| column::<Id>(row, 0));
    let holders = holders.collect::<Answer<Vec<_>>>()?;
    let of_tasks = |sql, tasks: &[TaskId]| Call::new(sql, params![ns, ids(tasks)]);
    let of = |sql| of_tasks(sql, tasks);
    let held = Call::new(&HELD_TASKS, params![ns, ids(tasks), holders]);
    let mut calls = vec![of(&LIVE_TASKS), of(&DONE_TASKS), of(&SPECS), held];
    calls.extend(commits_of(ns, &commits));
    let found = session.run(&calls).await?;
    if let Some(made) = found.get(4) {
        take_commits(commits, made, &mut loaded.rows)?;
    }
    let rowless = take_tasks(tasks, [&found[0], &found[1], &found[2]], loaded)?;
    for row in &found[3] {
        let task = task_from(row)?;
        let claim = column(row, TASK_COLUMNS)?;
        loaded.rowless.insert(task.id(), claim);
        loaded.task(task);
    }
    let is_held = |id: &TaskId| loaded.rowless.contains_key(id);
    let nowhere: Vec<TaskId> = rowless.into_iter().filter(|id| !is_held(id)).collect();
    if nowhere.is_empty() {
        return Ok(());
    }
    // A task that came back to life, or was claimed, between the looks was seen by none of them. One
    // that a single look does not find anywhere has no state.
    let found = session.run(&[of_tasks(&TASKS, &nowhere)]).await?;
    found[0].iter().try_for_each(|row| task_at(row).map(drop))?;
    Err(Fault::Moved)
}

fn take_groups(wanted: Vec<GroupId>, found: &[Row], rows: &mut Rows) -> Answer<()> {
    for id in wanted {
        rows.groups.load(id, None);
    }
    for row in found {
        let group = group_from(row, 0)?;
        rows.groups.load(group.id.clone(), Some(group));
    }
    Ok(())
}

/// The group in the columns `id` and `body`, which begin at `first`.
pub(crate) fn group_from(row: &Row, first: usize) -> Answer<Group> {
    let id: &str = column(row, first)?;
    decode(&format!("group {id}"), column(row, first + 1)?)
}

fn take_commits(wanted: Vec<CommitId>, found: &[Row], rows: &mut Rows) -> Answer<()> {
    for id in wanted {
        rows.commits.load(id, None);
    }
    for row in found {
        let id = CommitId::from_u128(column::<Id>(row, 0)?.0);
        let receipt: Receipt = decode(&format!("receipt of commit {id}"), column(row, 1)?)?;
        let position: Option<i64> = column(row, 2)?;
        let position = position.map(unsigned).transpose()?.map(Position::new);
        rows.commits.load(
            id,
            Some(Receipt {
                position,
                ..receipt
            }),
        );
    }
    Ok(())
}
