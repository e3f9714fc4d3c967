//! History: what every commit changed, in order.

use serde::{Deserialize, Serialize};

use crate::ids::{Fence, Position, Revision, TaskId};
use crate::names::{GroupId, Key, Name, Prefix};
use crate::record::Record;
use crate::task::{Lane, Status, Task};
use crate::time::Timestamp;

/// The changes of one store transaction: one commit, or several that were merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place in the history.
    pub position: Position,
    /// When the store wrote it.
    pub at: Timestamp,
    /// What changed, in order.
    pub changes: Vec<Change>,
}

/// One change of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A record was written; this is what it holds now.
    Put(Record),
    /// A record ended.
    Removed {
        /// Its key.
        key: Key,
        /// The revision that ended.
        revision: Revision,
        /// How it ended.
        how: Removal,
    },
    /// A task changed.
    Task(TaskChange),
    /// A group changed.
    Group {
        /// Its id.
        id: GroupId,
        /// Its generation.
        generation: u32,
        /// What happened.
        event: GroupEvent,
    },
}

impl Change {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        match self {
            Self::Put(record) => record.size(),
            Self::Removed { key, .. } => key.as_str().len(),
            Self::Task(_) => 128,
            Self::Group { id, .. } => id.as_str().len(),
        }
    }
}

/// How a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// Somebody deleted it.
    Deleted,
    /// Its time to live ran out.
    Expired,
}

/// A change of a task: what happened and what it is now, without its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskChange {
    /// The task.
    pub id: TaskId,
    /// Its lane.
    pub lane: Lane,
    /// Its group.
    pub group: Option<GroupId>,
    /// What happened.
    pub event: TaskEvent,
    /// What it is now.
    pub status: Status,
    /// Its fence now.
    pub fence: Fence,
    /// Its revision now; for a deleted task, the revision that ended.
    pub revision: Revision,
}

impl TaskChange {
    /// What `event` made of `task`.
    pub fn new(task: &Task, event: TaskEvent) -> Self {
        Self {
            id: task.id(),
            lane: task.spec.lane.clone(),
            group: task.spec.group.clone(),
            event,
            status: task.status,
            fence: task.fence,
            revision: task.revision,
        }
    }
}

/// What happens to tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEvent {
    /// Somebody submitted it.
    Submitted,
    /// It became due.
    Promoted,
    /// A worker claimed it.
    Claimed,
    /// Its holder completed it.
    Completed,
    /// Its holder failed it: it waits for a retry, or has failed for good.
    Failed,
    /// Its holder put it off.
    Snoozed,
    /// Its holder gave it back.
    Released,
    /// Somebody asked its holder to stop.
    CancelRequested,
    /// It was cancelled.
    Cancelled,
    /// Its lease or deadline ran out.
    Expired,
    /// Somebody made it run again.
    Retried,
    /// The task it waited for has ended.
    Unblocked,
    /// Its stage, progress, checkpoint, attributes or priority changed.
    Amended,
    /// It was deleted.
    Deleted,
}

/// What happens to groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupEvent {
    /// It was opened.
    Opened,
    /// It takes no more members.
    Sealed,
    /// Its first member failed.
    FirstFailure,
    /// Everything in it is done.
    Drained,
    /// It was opened again, as a new generation.
    Reopened,
    /// It was deleted.
    Deleted,
}

/// What a reader of history wants to see. A change is shown if any interest matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interest {
    /// Records whose key has this prefix.
    Records(Prefix),
    /// Tasks that meet every condition given.
    Tasks {
        /// Only of this queue.
        queue: Option<Name>,
        /// Only of this kind.
        kind: Option<Name>,
        /// Only this one.
        id: Option<TaskId>,
        /// Only members of this group.
        group: Option<GroupId>,
        /// Only those that are now terminal.
        terminal: bool,
    },
    /// Groups whose id has this prefix.
    Groups(Prefix),
}

impl Interest {
    /// All tasks.
    pub fn tasks() -> Self {
        Self::Tasks {
            queue: None,
            kind: None,
            id: None,
            group: None,
            terminal: false,
        }
    }

    /// Whether the change is one to show.
    pub fn matches(&self, change: &Change) -> bool {
        match (self, change) {
            (Self::Records(prefix), Change::Put(record)) => prefix.matches(record.key.as_str()),
            (Self::Records(prefix), Change::Removed { key, .. }) => prefix.matches(key.as_str()),
            (Self::Groups(prefix), Change::Group { id, .. }) => prefix.matches(id.as_str()),
            (
                Self::Tasks {
                    queue,
                    kind,
                    id,
                    group,
                    terminal,
                },
                Change::Task(task),
            ) => {
                queue.as_ref().is_none_or(|queue| *queue == task.lane.queue)
                    && kind.as_ref().is_none_or(|kind| *kind == task.lane.kind)
                    && id.is_none_or(|id| id == task.id)
                    && (group.is_none() || *group == task.group)
                    && (!terminal || task.status.is_terminal())
            }
            (Self::Records(_), Change::Task(_) | Change::Group { .. })
            | (Self::Groups(_), Change::Put(_) | Change::Removed { .. } | Change::Task(_))
            | (
                Self::Tasks { .. },
                Change::Put(_) | Change::Removed { .. } | Change::Group { .. },
            ) => false,
        }
    }
}
