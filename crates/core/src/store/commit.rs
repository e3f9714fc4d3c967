//! What a commit says and what it answers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::group::{Group, NewGroup};
use crate::ids::{CommitId, Fence, Jitter, Position, Revision, TaskId};
use crate::log::NewLine;
use crate::names::{GroupId, Key, Name};
use crate::record::{Fields, Record};
use crate::task::{Holder, NewTask, Priority, Progress, Status, Verb};
use crate::time::Timestamp;

/// A change that happens as a whole or not at all.
///
/// ```
/// use plimsoll_core::record::fields;
/// use plimsoll_core::store::{Commit, Guard, Put, Write};
/// use plimsoll_core::Key;
/// let key = Key::new("leader")?;
/// let commit = Commit::new()
///     .guard(Guard::RecordAbsent(key.clone()))
///     .write(Write::Put(Put::new(key, fields([("worker", "w1")])?)));
/// assert_eq!(commit.writes.len(), 1);
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Makes the commit safe to repeat. Needed where the writes themselves are not: increments,
    /// arrivals, retries and reopened groups, unless the commit settles a task.
    pub id: Option<CommitId>,
    /// What must hold before.
    pub guards: Vec<Guard>,
    /// What to do, in order: each write sees those before it.
    pub writes: Vec<Write>,
}

impl Commit {
    /// A commit that does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A commit with one write.
    pub fn of(write: Write) -> Self {
        Self::new().write(write)
    }

    /// With an id, so that it can be repeated safely.
    pub fn id(mut self, id: CommitId) -> Self {
        self.id = Some(id);
        self
    }

    /// With one more guard.
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    /// With one more write.
    pub fn write(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }
}

/// A condition that must hold for a commit to happen. An expired record is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// There is no such record.
    RecordAbsent(Key),
    /// There is such a record.
    RecordPresent(Key),
    /// The record is at this revision.
    RecordAt(Key, Revision),
    /// The field has this value; `None`: the record has no such field, or there is no record.
    Field(Key, Name, Option<Bytes>),
    /// This worker holds the task with this fence.
    Held(Holder),
    /// The task is at this revision.
    TaskAt(TaskId, Revision),
    /// The group is there and takes members.
    GroupOpen(GroupId),
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordAbsent(key) => write!(f, "record {key} is absent"),
            Self::RecordPresent(key) => write!(f, "record {key} is present"),
            Self::RecordAt(key, revision) => write!(f, "record {key} is at revision {revision}"),
            Self::Field(key, field, Some(value)) => {
                write!(f, "field {field} of record {key} is {value:?}")
            }
            Self::Field(key, field, None) => write!(f, "field {field} of record {key} is absent"),
            Self::Held(holder) => write!(
                f,
                "task {} is held by {} with fence {}",
                holder.task, holder.worker, holder.fence
            ),
            Self::TaskAt(task, revision) => write!(f, "task {task} is at revision {revision}"),
            Self::GroupOpen(group) => write!(f, "group {group} is open"),
        }
    }
}

/// One write of a commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    /// Replaces a record, or creates it.
    Put(Put),
    /// Changes fields of a record, or creates it.
    Merge(Merge),
    /// Removes a record, if it is there.
    Delete(Key),
    /// Changes when a record expires, and nothing else; `None`: it does not expire any more.
    Touch(Key, Option<Duration>),
    /// Removes a record that has expired, and appends that to the history.
    ExpireRecord(Key),
    /// Submits a task.
    Submit(Box<NewTask>),
    /// Ends an attempt.
    Settle(Settle),
    /// Changes a task, by its holder.
    Amend(Box<Amend>),
    /// Cancels a task, or asks its holder to stop.
    Cancel(Cancel),
    /// Makes a task run again, or sooner; takes it away from its holder.
    Retry(Retry),
    /// Changes how urgent a task is.
    Prioritise(TaskId, Priority),
    /// Makes a scheduled task that is due runnable.
    Promote(TaskId),
    /// Ends an attempt whose lease or deadline ran out.
    Expire(Expire),
    /// Removes a finished task, its key and its log.
    DeleteTask(TaskId),
    /// Opens a group, if it is not there.
    OpenGroup(Box<NewGroup>),
    /// Counts something done in a group that is not a task.
    Arrive(GroupId, u64),
    /// Says that a group takes no more members.
    Seal(GroupId),
    /// Opens a drained group again, as a new generation.
    Reopen(GroupId),
    /// Folds counts that the store keeps apart, and drains the group if it is complete.
    Tally(GroupId),
    /// Removes a group. Members that end later are counted nowhere.
    DeleteGroup(GroupId),
    /// Appends lines to the log of a task, by its holder.
    Log(Log),
}

/// Replaces a record, or creates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// The key.
    pub key: Key,
    /// All its fields.
    pub fields: Fields,
    /// How long it lives; `None`: for ever.
    pub ttl: Option<Duration>,
}

impl Put {
    /// A record that lives for ever.
    pub fn new(key: Key, fields: Fields) -> Self {
        Self {
            key,
            fields,
            ttl: None,
        }
    }

    /// With a time to live.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// Changes fields of a record, or creates it. Its time to live stays as it is. All fields change at once,
/// so that each may be changed in one way only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    /// The key.
    pub key: Key,
    /// Fields to set.
    pub set: Fields,
    /// Fields to remove.
    pub unset: Vec<Name>,
    /// Integers to add to fields; an absent field counts as zero.
    pub add: BTreeMap<Name, i64>,
    /// Integers that fields are raised to, if they are lower or absent.
    pub raise: BTreeMap<Name, i64>,
    /// Whether to answer the record as it is afterwards.
    pub returning: bool,
}

impl Merge {
    /// A merge that changes nothing yet.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            set: Fields::new(),
            unset: Vec::new(),
            add: BTreeMap::new(),
            raise: BTreeMap::new(),
            returning: false,
        }
    }

    /// Sets fields.
    pub fn set(mut self, fields: Fields) -> Self {
        self.set.extend(fields);
        self
    }

    /// Removes a field.
    pub fn unset(mut self, field: Name) -> Self {
        self.unset.push(field);
        self
    }

    /// Adds to a field; what is added to the same field before counts, too. If no integer holds both,
    /// the merge is refused, as one that names the field twice.
    pub fn add(mut self, field: Name, number: i64) -> Self {
        let before = self.add.get(&field).copied().unwrap_or(0);
        match before.checked_add(number) {
            Some(sum) => {
                self.add.insert(field, sum);
            }
            // Whatever is added here would be wrong.
            None => self.unset.push(field),
        }
        self
    }

    /// Raises a field; of several numbers, to the highest.
    pub fn raise(mut self, field: Name, number: i64) -> Self {
        let raised = self.raise.entry(field).or_insert(number);
        *raised = number.max(*raised);
        self
    }

    /// Whether it changes this field.
    pub fn names(&self, field: &Name) -> bool {
        self.set.contains_key(field)
            || self.unset.contains(field)
            || self.add.contains_key(field)
            || self.raise.contains_key(field)
    }

    /// Answers the record as it is afterwards.
    pub fn returning(mut self) -> Self {
        self.returning = true;
        self
    }
}

/// Ends an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// Who holds the task.
    pub holder: Holder,
    /// How the attempt ended.
    pub how: Ending,
}

/// How a holder ends an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With success.
    Complete {
        /// What it came to.
        result: Option<Bytes>,
    },
    /// With a failure, which counts toward the cap.
    Fail {
        /// What went wrong.
        error: String,
        /// When to try again.
        retry: FailRetry,
        /// The sample for the jitter of the retry.
        jitter: Jitter,
    },
    /// Later; nothing is counted.
    Snooze {
        /// After how long.
        delay: Duration,
    },
    /// Not at all; the task is runnable at once, in its old place, and nothing is counted.
    Release {
        /// Why, if that is to be kept with the errors.
        reason: Option<String>,
    },
    /// With cancellation.
    Cancel {
        /// Why.
        reason: Option<String>,
    },
}

impl Ending {
    /// The verb for it.
    pub fn verb(&self) -> Verb {
        match self {
            Self::Complete { .. } => Verb::Complete,
            Self::Fail { .. } => Verb::Fail,
            Self::Snooze { .. } => Verb::Snooze,
            Self::Release { .. } => Verb::Release,
            Self::Cancel { .. } => Verb::Cancel,
        }
    }
}

/// When a failed task is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailRetry {
    /// As its policy says.
    #[default]
    Policy,
    /// After this long, if its policy allows one more attempt.
    After(Duration),
    /// Never.
    Fatal,
}

/// Changes a task, by its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amend {
    /// Who holds the task.
    pub holder: Holder,
    /// The stage it enters.
    pub stage: Option<Name>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// What to find again on the next attempt.
    pub checkpoint: Option<Bytes>,
    /// Attributes to set.
    pub set: Fields,
    /// Attributes to remove.
    pub unset: Vec<Name>,
}

impl Amend {
    /// An amendment that changes nothing yet.
    pub fn new(holder: Holder) -> Self {
        Self {
            holder,
            stage: None,
            progress: None,
            checkpoint: None,
            set: Fields::new(),
            unset: Vec::new(),
        }
    }
}

/// Cancels a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// The task.
    pub task: TaskId,
    /// Why.
    pub reason: Option<String>,
}

/// Makes a task run again, or sooner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The task.
    pub task: TaskId,
    /// Whether to run it although it has failed as often as it may. That grants one more attempt.
    pub force: bool,
    /// After how long.
    pub delay: Duration,
}

/// Ends an attempt whose lease or deadline ran out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expire {
    /// The task.
    pub task: TaskId,
    /// The fence of the attempt.
    pub fence: Fence,
    /// The sample for the jitter of the retry.
    pub jitter: Jitter,
}

/// Appends lines to the log of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Who holds the task.
    pub holder: Holder,
    /// The lines.
    pub lines: Vec<NewLine>,
}

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// One for each write, in order.
    pub outcomes: Vec<Outcome>,
    /// Where its changes are in the history; `None` if there is nothing to see there.
    pub position: Option<Position>,
    /// Whether it had been applied before, so that this time nothing was.
    pub repeated: bool,
}

/// What one write did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The record is at this revision.
    Written {
        /// Its revision.
        revision: Revision,
        /// The record itself, if that was asked for.
        record: Option<Record>,
        /// When it was written. Receipts that are from before this was said have [`Timestamp::MIN`].
        #[serde(default = "unsaid")]
        modified_at: Timestamp,
    },
    /// The record, group or task is gone.
    Removed {
        /// Whether it was there.
        existed: bool,
    },
    /// The task is there.
    Submitted(Submitted),
    /// The attempt has ended.
    Settled {
        /// What the task is now.
        status: Status,
        /// When it becomes runnable again, if it does.
        runnable_at: Option<Timestamp>,
    },
    /// The task has changed.
    Changed {
        /// What it is now.
        status: Status,
        /// Its revision.
        revision: Revision,
    },
    /// The task was that way already.
    Already {
        /// What it is.
        status: Status,
    },
    /// The group is this.
    Group(GroupCounts),
    /// The lines are in the log.
    Logged,
}

fn unsaid() -> Timestamp {
    Timestamp::MIN
}

/// A task that was submitted, or that was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// The task.
    pub id: TaskId,
    /// Whether it is new.
    pub outcome: SubmitOutcome,
}

/// Whether a submit made a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmitOutcome {
    /// It did; repeating the same submit answers the same.
    Created,
    /// The key stands for an active task with the same payload.
    Existing,
    /// The key stands for a task with another payload.
    ExistingOtherPayload,
    /// The key stands for a task that has ended.
    ExistingFinished(Status),
}

/// The counts of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounts {
    /// Members and arrivals so far.
    pub begun: u64,
    /// Of these, done.
    pub done: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Whether it has drained.
    pub drained: bool,
    /// Its generation.
    pub generation: u32,
}

impl From<&Group> for GroupCounts {
    fn from(group: &Group) -> Self {
        Self {
            begun: group.begun(),
            done: group.done,
            failed: group.failed,
            drained: group.drained_at.is_some(),
            generation: group.generation,
        }
    }
}
