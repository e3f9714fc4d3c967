//! Tasks that the writer has seen lately, so that it need not read again what it wrote, and the newest one, so that it
//! need not look for what is newer.
//!
//! Nothing in here is authoritative: a transaction uses the cache only if no other connection has
//! written since the writer's last one, which SQLite tells under the write lock.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use plimsoll_core::TaskId;
use plimsoll_core::task::Task;
use rusqlite::{Connection, OptionalExtension};

use crate::codec::Id;
use crate::error::Answer;
use crate::lanes::Lanes;
use crate::schema;

/// How many bytes of tasks are kept, about.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// What a task takes beside its own contents.
const OVERHEAD: usize = 1_024;

/// What somebody has put there that is no id is none.
const NEWEST: &str =
    "SELECT id FROM specs WHERE ns = ? AND length(id) = 16 ORDER BY id DESC LIMIT 1";

/// Active tasks by namespace and id, and the highest id of each namespace.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    tasks: BTreeMap<(i64, TaskId), Arc<Task>>,
    bytes: usize,
    /// By namespace: the file has no task with a higher id. Most that are submitted have one.
    newest: BTreeMap<i64, TaskId>,
    /// The version of the file as of the writer's last transaction.
    version: Option<i64>,
}

impl Cache {
    /// Forgets everything, the lanes too, if another connection has written since. Called under the
    /// write lock.
    pub(crate) fn validate(&mut self, lanes: &mut Lanes, connection: &Connection) -> Answer<()> {
        let version = data_version(connection)?;
        if self.version != Some(version) {
            self.clear();
            lanes.clear();
            // Whoever wrote may have been a newer program.
            schema::check_version(connection)?;
            self.version = Some(version);
        }
        Ok(())
    }

    /// Forgets everything, because a transaction was undone.
    pub(crate) fn clear(&mut self) {
        self.newest.clear();
        self.forget_tasks();
    }

    fn forget_tasks(&mut self) {
        self.tasks.clear();
        self.bytes = 0;
    }

    /// Learns which task is the newest of a namespace, unless that is known. Where the file cannot say it, it stays
    /// unknown, and each task is looked for.
    pub(crate) fn learn_newest(&mut self, connection: &Connection, ns: i64) {
        if let Entry::Vacant(newest) = self.newest.entry(ns) {
            let found = connection
                .prepare_cached(NEWEST)
                .and_then(|mut find| find.query_row([ns], |row| row.get(0)).optional());
            if let Ok(id) = found {
                newest.insert(id.map_or(TaskId::from_u128(0), Id::task));
            }
        }
    }

    /// Whether the file certainly has no such task.
    pub(crate) fn is_newer(&self, ns: i64, id: TaskId) -> bool {
        self.newest.get(&ns).is_some_and(|newest| id > *newest)
    }

    /// There is such a task from now on.
    pub(crate) fn raise_newest(&mut self, ns: i64, id: TaskId) {
        if let Some(newest) = self.newest.get_mut(&ns) {
            *newest = id.max(*newest);
        }
    }

    pub(crate) fn task(&self, ns: i64, id: TaskId) -> Option<&Arc<Task>> {
        self.tasks.get(&(ns, id))
    }

    /// Keeps what was written of a task, as long as it is active.
    pub(crate) fn put(&mut self, ns: i64, task: Arc<Task>) {
        if task.status.is_terminal() {
            return self.remove(ns, task.id());
        }
        if self.bytes > BYTES_MAX {
            self.forget_tasks();
        }
        self.bytes += size(&task);
        let before = self.tasks.insert((ns, task.id()), task);
        self.bytes -= before.as_deref().map_or(0, size);
    }

    pub(crate) fn remove(&mut self, ns: i64, id: TaskId) {
        let before = self.tasks.remove(&(ns, id));
        self.bytes -= before.as_deref().map_or(0, size);
    }
}

/// Changes when another connection has written to the file.
pub(crate) fn data_version(connection: &Connection) -> Answer<i64> {
    let mut statement = connection.prepare_cached("PRAGMA data_version")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

fn size(task: &Task) -> usize {
    task.size() + OVERHEAD
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::plan::{plan, tables};

    fn file(ids: &[&[u8]]) -> Connection {
        let connection = tables();
        for id in ids {
            connection
                .execute("INSERT INTO specs VALUES (1, ?, 1, x'')", [id])
                .expect("a row");
        }
        connection
    }

    fn newer(cache: &Cache, ids: [u128; 3]) -> [bool; 3] {
        ids.map(|id| cache.is_newer(1, TaskId::from_u128(id)))
    }

    #[test]
    fn what_is_newer_than_all_of_the_file_is_not_in_it() {
        let (seven, odd) = (7_u128.to_be_bytes(), [0xff; 17]);
        let connection = file(&[&3_u128.to_be_bytes(), &seven, &odd, &[]]);
        let mut cache = Cache::default();
        let unknown = newer(&cache, [3, 8, u128::MAX]);
        assert_eq!(unknown, [false; 3]);
        cache.learn_newest(&connection, 1);
        assert_eq!(newer(&cache, [3, 7, 8]), [false, false, true]);
        cache.raise_newest(1, TaskId::from_u128(9));
        cache.raise_newest(1, TaskId::from_u128(5));
        cache.learn_newest(&connection, 1);
        assert_eq!(newer(&cache, [8, 9, 10]), [false, false, true]);
        cache.raise_newest(2, TaskId::from_u128(99));
        assert!(!cache.is_newer(2, TaskId::from_u128(100)), "unknown");
        cache.clear();
        assert_eq!(newer(&cache, [3, 10, u128::MAX]), [false; 3]);
    }

    #[test]
    fn everything_is_new_to_a_file_without_tasks_but_the_lowest_id_is_looked_for() {
        let mut cache = Cache::default();
        cache.learn_newest(&file(&[]), 1);
        assert_eq!(newer(&cache, [0, 1, u128::MAX]), [false, true, true]);
    }

    #[test]
    fn nothing_is_new_to_a_file_that_cannot_be_read() {
        let (connection, mut cache) = (file(&[]), Cache::default());
        connection.execute_batch("DROP TABLE specs").expect("gone");
        cache.learn_newest(&connection, 1);
        assert_eq!(newer(&cache, [0, 1, u128::MAX]), [false; 3]);
    }

    #[test]
    fn the_newest_is_found_at_the_end_of_the_index() {
        let found = plan(&tables(), NEWEST);
        assert_eq!(found, ["SEARCH specs USING PRIMARY KEY (ns=?)"]);
    }
}
