//! Groups: durable joins over tasks and arrivals.

use serde::{Deserialize, Serialize};

use crate::ids::{Revision, TaskId};
use crate::names::GroupId;
use crate::task::NewTask;
use crate::time::Timestamp;

/// How a group begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewGroup {
    /// Its id.
    pub id: GroupId,
    /// How many members and arrivals there will be, if that is known already.
    pub expected: Option<u64>,
    /// Submitted once when the group drains.
    pub then: Option<Box<NewTask>>,
    /// Submitted once when the first member fails.
    pub on_first_failure: Option<Box<NewTask>>,
    /// Whether `then` comes on top of what its own group expects: for a member that leaves this
    /// group in its place. Otherwise it is one of those expected.
    pub extends: bool,
}

impl NewGroup {
    /// A group of unknown size that submits nothing when it drains.
    pub fn new(id: GroupId) -> Self {
        Self {
            id,
            expected: None,
            then: None,
            on_first_failure: None,
            extends: false,
        }
    }

    /// With a `then` that comes on top of what its own group expects, also if that is sealed.
    pub fn extending(mut self) -> Self {
        self.extends = true;
        self
    }

    /// With a known number of members and arrivals.
    pub fn expecting(mut self, expected: u64) -> Self {
        self.expected = Some(expected);
        self
    }

    /// With a task to submit when it drains.
    pub fn then(mut self, then: NewTask) -> Self {
        self.then = Some(Box::new(then));
        self
    }

    /// With a task to submit when the first member fails.
    pub fn on_first_failure(mut self, task: NewTask) -> Self {
        self.on_first_failure = Some(Box::new(task));
        self
    }
}

/// A durable join. It drains when it is complete and everything in it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// How many members and arrivals it will have, if that is known.
    pub expected: Option<u64>,
    /// Whether it takes no more members.
    pub sealed: bool,
    /// Member tasks submitted.
    pub spawned: u64,
    /// Arrivals of what is not a task.
    pub arrived: u64,
    /// Members that ended, and arrivals.
    pub done: u64,
    /// Members that failed.
    pub failed: u64,
    /// Members that were cancelled.
    pub cancelled: u64,
    /// How often it was opened again after it had drained.
    pub generation: u32,
    /// The first member that failed in this generation.
    pub first_failure: Option<TaskId>,
    /// When it drained.
    pub drained_at: Option<Timestamp>,
    /// Submitted once a generation when it drains.
    pub then: Option<Box<NewTask>>,
    /// Submitted once a generation when the first member fails.
    pub on_first_failure: Option<Box<NewTask>>,
    /// How many more it expects, because inner groups were opened or opened again.
    pub again: u64,
    /// The revision that opened it: tells it from another one that had the same id before.
    pub born: Revision,
    /// Of the group that `then` is a member of.
    pub outer_born: Option<Revision>,
    /// When it was opened first.
    pub created_at: Timestamp,
    /// When the store wrote it last.
    pub modified_at: Timestamp,
}

impl Group {
    /// A new group.
    pub fn new(new: NewGroup, born: Revision, now: Timestamp) -> Self {
        Self {
            id: new.id,
            expected: new.expected,
            sealed: false,
            spawned: 0,
            arrived: 0,
            done: 0,
            failed: 0,
            cancelled: 0,
            generation: 0,
            first_failure: None,
            drained_at: None,
            then: new.then,
            on_first_failure: new.on_first_failure,
            again: 0,
            born,
            outer_born: None,
            created_at: now,
            modified_at: now,
        }
    }

    /// How many must be done before it drains, once that is known.
    pub fn total(&self) -> Option<u64> {
        if self.sealed {
            Some(self.begun())
        } else {
            self.expected.map(|expected| expected + self.again)
        }
    }

    /// Members and arrivals so far.
    pub fn begun(&self) -> u64 {
        self.spawned + self.arrived
    }
}
