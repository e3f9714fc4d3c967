//! Tasks that are new in a transaction. They are written at its end, as they are then.
//!
//! The rule: a task is here or in the file, never in both. So a task that is submitted, claimed and
//! even settled in one group is written once, and never stands in line in the file. Whoever reads
//! one task looks here first. Whoever looks for tasks merges what is here with what the file has, as
//! claims do, or flushes before.
//!
//! What the file has already is changed there at once: a claim finds its line as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::TaskId;
use plimsoll_core::task::{Status, Task};
use rusqlite::Connection;

use crate::cache::Cache;
use crate::error::Answer;
use crate::rows;

/// Where a task stands in line: its priority, negative, then when it became runnable, then its id.
/// What is less is claimed first.
pub(crate) type Place = (i64, i64, TaskId);

const FIRST: Place = (i64::MIN, i64::MIN, TaskId::from_u128(0));

/// New tasks by namespace and id.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    tasks: BTreeMap<(i64, TaskId), New>,
    /// Those that are pending, by lane.
    ready: BTreeSet<(i64, Place)>,
    /// Those that are scheduled, by lane and by when they are due.
    scheduled: BTreeSet<(i64, i64, TaskId)>,
}

#[derive(Debug)]
struct New {
    /// The number of its lane.
    lane: i64,
    task: Arc<Task>,
}

impl Overlay {
    pub(crate) fn task(&self, ns: i64, id: TaskId) -> Option<&Arc<Task>> {
        self.tasks.get(&(ns, id)).map(|new| &new.task)
    }

    /// Keeps a new task, or what has become of it since.
    pub(crate) fn put(&mut self, ns: i64, lane: i64, task: Arc<Task>) {
        self.remove(ns, task.id());
        match task.status {
            Status::Pending => drop(self.ready.insert((lane, place(&task)))),
            Status::Scheduled => drop(self.scheduled.insert((lane, due(&task), task.id()))),
            Status::Claimed | Status::Completed | Status::Failed | Status::Cancelled => {}
        }
        self.tasks.insert((ns, task.id()), New { lane, task });
    }

    /// Forgets a task. Whether it was here.
    pub(crate) fn remove(&mut self, ns: i64, id: TaskId) -> bool {
        let Some(New { lane, task }) = self.tasks.remove(&(ns, id)) else {
            return false;
        };
        self.ready.remove(&(lane, place(&task)));
        self.scheduled.remove(&(lane, due(&task), id));
        true
    }

    /// The pending tasks of a lane, in claim order.
    pub(crate) fn ready(&self, lane: i64) -> impl Iterator<Item = Place> {
        let from = self.ready.range((lane, FIRST)..);
        let of_lane = from.take_while(move |(number, _)| *number == lane);
        of_lane.map(|(_, place)| *place)
    }

    /// When the next scheduled task of a lane is due.
    pub(crate) fn next_due(&self, lane: i64) -> Option<i64> {
        let from = (lane, i64::MIN, TaskId::from_u128(0));
        let (number, due, _) = self.scheduled.range(from..).next()?;
        (*number == lane).then_some(*due)
    }

    /// Writes everything to the file, in the order of its keys.
    pub(crate) fn flush(&mut self, connection: &Connection, cache: &mut Cache) -> Answer<()> {
        let tasks = std::mem::take(self).tasks;
        let all = tasks.iter();
        rows::insert_tasks(
            connection,
            all.map(|((ns, _), new)| (*ns, new.lane, &*new.task)),
        )?;
        for ((ns, _), new) in tasks {
            cache.put(ns, new.task);
        }
        Ok(())
    }
}

fn place(task: &Task) -> Place {
    (-i64::from(task.priority.get()), due(task), task.id())
}

fn due(task: &Task) -> i64 {
    task.runnable_at.as_micros()
}
