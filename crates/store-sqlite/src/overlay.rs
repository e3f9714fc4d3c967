//! Tasks that a transaction has written, but not yet to the file: that is done at its end, once.
//!
//! The rule: no task in here waits in the file, which has it claimed or ended, or does not have it.
//! So a claim takes the file's line as it is and merges it with the one in here, and a task that is
//! submitted and claimed in one group never stands in the file's line. What waits in the file is
//! changed there at once.
//!
//! Whoever reads one task looks here first. Whoever looks for tasks in any other way than by their
//! place in line flushes before.

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests;

use std::collections::btree_map::Entry;
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

/// Tasks by namespace and id.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    tasks: BTreeMap<(i64, TaskId), Unwritten>,
    line: Line,
}

/// Those that wait.
#[derive(Debug, Default)]
struct Line {
    /// Pending ones, by lane.
    ready: BTreeSet<(i64, Place)>,
    /// Scheduled ones, by lane and by when they are due.
    scheduled: BTreeSet<(i64, i64, TaskId)>,
}

impl Line {
    fn join(&mut self, lane: i64, task: &Task) {
        match task.status {
            Status::Pending => drop(self.ready.insert((lane, place(task)))),
            Status::Scheduled => drop(self.scheduled.insert((lane, due(task), task.id()))),
            Status::Claimed | Status::Completed | Status::Failed | Status::Cancelled => {}
        }
    }

    fn leave(&mut self, lane: i64, task: &Task) {
        match task.status {
            Status::Pending => drop(self.ready.remove(&(lane, place(task)))),
            Status::Scheduled => drop(self.scheduled.remove(&(lane, due(task), task.id()))),
            Status::Claimed | Status::Completed | Status::Failed | Status::Cancelled => {}
        }
    }
}

/// A task that the file does not have like this.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// The number of its lane.
    pub(crate) lane: i64,
    /// What it is in the file; `None`: it is not there.
    pub(crate) stored: Option<Status>,
    pub(crate) task: Arc<Task>,
}

impl Overlay {
    /// Whether the overlay may take in a task that is this in the file.
    pub(crate) fn takes(stored: Option<Status>) -> bool {
        !matches!(stored, Some(Status::Pending | Status::Scheduled))
    }

    pub(crate) fn task(&self, ns: i64, id: TaskId) -> Option<&Arc<Task>> {
        self.tasks.get(&(ns, id)).map(|unwritten| &unwritten.task)
    }

    /// Keeps a task. What it is in the file counts when it comes in.
    pub(crate) fn put(&mut self, ns: i64, lane: i64, stored: Option<Status>, task: Arc<Task>) {
        let id = task.id();
        let unwritten = match self.tasks.entry((ns, id)) {
            Entry::Vacant(entry) => entry.insert(Unwritten { lane, stored, task }),
            Entry::Occupied(entry) => {
                let unwritten = entry.into_mut();
                let earlier = std::mem::replace(&mut unwritten.task, task);
                self.line.leave(lane, &earlier);
                unwritten
            }
        };
        self.line.join(lane, &unwritten.task);
    }

    /// Forgets a task, which was this.
    pub(crate) fn remove(&mut self, ns: i64, id: TaskId) -> Option<Unwritten> {
        let unwritten = self.tasks.remove(&(ns, id))?;
        self.line.leave(unwritten.lane, &unwritten.task);
        Some(unwritten)
    }

    /// The pending tasks of a lane, in claim order.
    pub(crate) fn ready(&self, lane: i64) -> impl Iterator<Item = Place> {
        let from = self.line.ready.range((lane, FIRST)..);
        let of_lane = from.take_while(move |(number, _)| *number == lane);
        of_lane.map(|(_, place)| *place)
    }

    /// When the next scheduled task of a lane is due.
    pub(crate) fn next_due(&self, lane: i64) -> Option<i64> {
        let from = (lane, i64::MIN, TaskId::from_u128(0));
        let (number, due, _) = self.line.scheduled.range(from..).next()?;
        (*number == lane).then_some(*due)
    }

    /// Writes everything to the file, in the order of its keys.
    pub(crate) fn flush(&mut self, connection: &Connection, cache: &mut Cache) -> Answer<()> {
        let tasks = std::mem::take(self).tasks;
        let all = tasks.iter().map(|((ns, _), unwritten)| (*ns, unwritten));
        rows::put_tasks(connection, all)?;
        for ((ns, _), unwritten) in tasks {
            cache.put(ns, unwritten.task);
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
