//! Tasks that this process holds, as it has written them.
//!
//! Whoever settles such a task need not read it: writing it finds out if it is still the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::task::{Status, Task};
use plimsoll_core::{TaskId, Timestamp};

/// How many are kept. Beyond, all are forgotten: they are read again when they are needed.
const HELD_MAX: usize = 100_000;

/// Tasks that this process holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// By namespace and id.
    tasks: Mutex<HashMap<(i32, TaskId), Arc<Task>>>,
}

impl Held {
    /// The task as it was written last.
    pub(crate) fn get(&self, ns: i32, id: TaskId) -> Option<Arc<Task>> {
        self.lock().get(&(ns, id)).cloned()
    }

    /// Takes in what was committed: tasks that are claimed are kept, others are not.
    pub(crate) fn committed(
        &self,
        ns: i32,
        written: impl IntoIterator<Item = (TaskId, Option<Arc<Task>>)>,
    ) {
        let mut tasks = self.lock();
        for (id, task) in written {
            match task.filter(|task| task.status == Status::Claimed) {
                Some(task) => drop(tasks.insert((ns, id), task)),
                None => drop(tasks.remove(&(ns, id))),
            }
        }
        if tasks.len() > HELD_MAX {
            tasks.clear();
        }
    }

    /// Takes in leases that end at another time.
    pub(crate) fn renewed(&self, ns: i32, renewed: impl IntoIterator<Item = (TaskId, Timestamp)>) {
        let mut tasks = self.lock();
        for (id, until) in renewed {
            if let Some(task) = tasks.get_mut(&(ns, id))
                && let Some(lease) = &mut Arc::make_mut(task).lease
            {
                lease.until = until;
            }
        }
    }

    /// Forgets tasks of which it is not known how they are.
    pub(crate) fn forget(&self, ns: i32, ids: impl IntoIterator<Item = TaskId>) {
        let mut tasks = self.lock();
        for id in ids {
            tasks.remove(&(ns, id));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(i32, TaskId), Arc<Task>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
