//! Tasks that the writer has seen lately, so that it need not read again what it wrote.
//!
//! Nothing in here is authoritative: a transaction uses the cache only if no other connection has
//! written since the writer's last one, which SQLite tells under the write lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::TaskId;
use plimsoll_core::task::Task;
use rusqlite::Connection;

use crate::error::Answer;
use crate::lanes::Lanes;
use crate::schema;

/// How many bytes of tasks are kept, about.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// What a task takes beside its own contents.
const OVERHEAD: usize = 1_024;

/// Active tasks by namespace and id.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    tasks: BTreeMap<(i64, TaskId), Arc<Task>>,
    bytes: usize,
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
        self.tasks.clear();
        self.bytes = 0;
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
            self.clear();
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
