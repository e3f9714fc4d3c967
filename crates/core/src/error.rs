//! Errors that say what to do: eight kinds, with the precise cause below each.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{Fence, Position, TaskId};
use crate::lifecycle::Phase;
use crate::names::{GroupId, IdempotencyKey, Key, Name};
use crate::record::Index;
use crate::store::Guard;
use crate::task::{Status, WorkerId};
use crate::time::Timestamp;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by what the caller should do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Error {
    /// The input is wrong. Correct it; nothing was written.
    #[error("invalid input: {0}")]
    Invalid(#[from] Invalid),
    /// What was named is not there.
    #[error("{0}")]
    NotFound(#[from] NotFound),
    /// The state of things does not allow it. Read again and decide anew; nothing was written.
    #[error("{0}")]
    Conflict(#[from] Box<Conflict>),
    /// The caller does not hold the task, or no longer. Stop working on it.
    #[error("{0}")]
    LeaseLost(#[from] Box<LeaseLost>),
    /// The store did not answer. Try again: repeating is safe.
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
    /// This store cannot do that.
    #[error("not supported here: {0}")]
    Unsupported(Cow<'static, str>),
    /// A stored value cannot be read. Somebody has to look at it.
    #[error("stored value cannot be read: {0}")]
    Corrupt(Cow<'static, str>),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

impl Error {
    /// Whether the same call may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// The name of the kind, for logs, metrics and exit codes.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NotFound(_) => "not_found",
            Self::Conflict(_) => "conflict",
            Self::LeaseLost(_) => "lease_lost",
            Self::Unavailable(_) => "unavailable",
            Self::Unsupported(_) => "unsupported",
            Self::Corrupt(_) => "corrupt",
            Self::Closed => "closed",
        }
    }
}

impl Error {
    /// The name of the precise cause, for programs. People know some of these from elsewhere:
    ///
    /// | code | cause |
    /// |---|---|
    /// | `invalid_task` | the task to submit is wrong |
    /// | `invalid_worker_id` | the name of the worker is wrong |
    /// | `invalid` | other input is wrong |
    /// | `task_not_found` | there is no such task |
    /// | `already_claimed` | another worker has the task |
    /// | `not_claimed` | nobody holds the task |
    /// | `wrong_worker` | another worker, or another life of this one, holds the task |
    /// | `task_completed`, `task_failed`, `task_cancelled` | the task has ended |
    /// | `max_attempts_reached` | the task has failed as often as it may |
    /// | `move_not_allowed` | the lifecycle of the task does not lead there |
    /// | `lock_not_acquired` | another has the lock |
    /// | `lock_not_held` | the caller does not have the lock, or no longer |
    /// | `job_not_found`, `job_deleted` | there is no such job, or it was deleted |
    /// | `partition_failed` | a partition of a job has an error, so that a barrier will not be reached |
    /// | `barrier_not_reached` | not all partitions got there in time |
    /// | `closed` | the store was closed |
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(what) => what.code(),
            Self::Conflict(conflict) => conflict.code(),
            Self::LeaseLost(lost) => lost.why.code(),
            Self::Invalid(invalid) => invalid.code(),
            Self::Unavailable(_) | Self::Unsupported(_) | Self::Corrupt(_) | Self::Closed => {
                self.kind()
            }
        }
    }
}

impl Invalid {
    fn code(&self) -> &'static str {
        match self.field.split('.').next() {
            Some("task") => "invalid_task",
            Some("worker") => "invalid_worker_id",
            Some(_) | None => "invalid",
        }
    }
}

impl NotFound {
    fn code(&self) -> &'static str {
        match self {
            Self::Record(_) => "record_not_found",
            Self::Task(_) | Self::TaskByKey(_) => "task_not_found",
            Self::Group(_) => "group_not_found",
            Self::Job(_) => "job_not_found",
            Self::History { .. } => "history_not_found",
            Self::Index(_) => "index_not_found",
        }
    }
}

impl Conflict {
    fn code(&self) -> &'static str {
        match self {
            Self::Guard { .. } => "guard",
            Self::AlreadyClaimed { .. } => "already_claimed",
            Self::Finished { status, .. } => finished(*status),
            Self::NotDue { .. } => "not_due",
            Self::Waiting { .. } => "waiting",
            Self::NotFinished { .. } => "not_finished",
            Self::Cancelling { .. } => "cancelling",
            Self::MoveNotAllowed { .. } => "move_not_allowed",
            Self::MaxAttemptsReached { .. } => "max_attempts_reached",
            Self::KeyTaken { .. } => "key_taken",
            Self::IdTaken { .. } => "id_taken",
            Self::GroupSealed { .. } => "group_sealed",
            Self::GroupDrained { .. } => "group_drained",
            Self::GroupFull { .. } => "group_full",
            Self::GroupDiffers { .. } => "group_differs",
            Self::NotInteger { .. } => "not_integer",
            Self::Overflow { .. } => "overflow",
            Self::TooLarge { .. } => "too_large",
            Self::CommitTooLarge { .. } => "commit_too_large",
            Self::Contended { .. } => "contended",
            Self::LockNotAcquired { .. } => "lock_not_acquired",
            Self::LockNotHeld { .. } => "lock_not_held",
            Self::JobDeleted { .. } => "job_deleted",
            Self::PartitionFailed { .. } => "partition_failed",
            Self::BarrierNotReached { .. } => "barrier_not_reached",
            Self::IndexNotReady { .. } => "index_not_ready",
        }
    }
}

impl Lost {
    fn code(&self) -> &'static str {
        match self {
            Self::NotClaimed { .. } => "not_claimed",
            Self::WrongWorker { .. } => "wrong_worker",
            Self::Superseded { .. } => "superseded",
            Self::Finished { status } => finished(*status),
            Self::Gone => "task_not_found",
            Self::AttemptOver => "attempt_over",
        }
    }
}

fn finished(status: Status) -> &'static str {
    match status {
        Status::Completed => "task_completed",
        Status::Failed => "task_failed",
        Status::Cancelled => "task_cancelled",
        Status::Scheduled | Status::Pending | Status::Claimed => "finished",
    }
}

fn ways(from: &Phase, to: &Phase, allowed: &[Phase]) -> String {
    match (from, to) {
        (Phase::Cancelled, Phase::Pending) => "submit it again".to_owned(),
        _ if allowed.is_empty() => "allowed: nothing".to_owned(),
        _ => {
            let words: Vec<String> = allowed.iter().map(Phase::to_string).collect();
            format!("allowed: {}", words.join(", "))
        }
    }
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(Box::new(conflict))
    }
}

impl From<LeaseLost> for Error {
    fn from(lost: LeaseLost) -> Self {
        Self::LeaseLost(Box::new(lost))
    }
}

/// A field and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// Where in the input: `limit`, `writes[0].payload`.
    pub field: String,
    /// What is wrong, with the limit.
    pub problem: Problem,
}

impl Invalid {
    /// This problem with this field.
    pub fn new(field: impl Into<String>, problem: Problem) -> Self {
        Self {
            field: field.into(),
            problem,
        }
    }

    /// The same problem, seen from further outside.
    pub fn within(mut self, outer: impl std::fmt::Display) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

/// What can be wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Problem {
    /// Nothing was given.
    #[error("must not be empty")]
    Empty,
    /// Something else that was given needs this too.
    #[error("is missing: {0}")]
    Missing(Cow<'static, str>),
    /// Too many bytes.
    #[error("{bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// What was given.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// Too many of them.
    #[error("{count} given, at most {max} are allowed")]
    TooMany {
        /// What was given.
        count: usize,
        /// What is allowed.
        max: usize,
    },
    /// Too small or too large.
    #[error("{value} is not between {min} and {max}")]
    OutOfRange {
        /// What was given.
        value: String,
        /// The least allowed.
        min: String,
        /// The most allowed.
        max: String,
    },
    /// A NUL character, which some stores cannot hold.
    #[error("contains a NUL character")]
    Nul,
    /// Not of the expected form.
    #[error("expected {expected}")]
    Malformed {
        /// The expected form.
        expected: Cow<'static, str>,
    },
    /// The same thing is named twice where once is meant.
    #[error("names {0} twice")]
    Repeated(String),
    /// Two parts of the input exclude each other.
    #[error("{0}")]
    Contradiction(Cow<'static, str>),
}

/// What is not there.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum NotFound {
    /// No such record, or it has expired.
    #[error("no record {0}")]
    Record(Key),
    /// No such task.
    #[error("no task {0}")]
    Task(TaskId),
    /// No task with this idempotency key.
    #[error("no task with key {0}")]
    TaskByKey(IdempotencyKey),
    /// No such group.
    #[error("no group {0}")]
    Group(GroupId),
    /// No such job.
    #[error("no job {0}")]
    Job(Name),
    /// The history after this position is not there: it was compacted, or never was. Take a fresh
    /// snapshot and go on from there.
    #[error(
        "there is no history from there, the oldest is after position {oldest}: take a snapshot"
    )]
    History {
        /// The oldest position that a cursor may have.
        oldest: Position,
    },
    /// No such index was declared.
    #[error("no index on {0}: declare it first")]
    Index(Index),
}

/// Why the state of things does not allow it.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Conflict {
    /// A guard of the commit does not hold.
    #[error("guard {index} does not hold: {guard}")]
    Guard {
        /// Which of the commit's guards.
        index: usize,
        /// The guard itself.
        guard: Guard,
    },
    /// Another worker has it.
    #[error("task {task} is claimed by {holder} until {until}")]
    AlreadyClaimed {
        /// The task.
        task: TaskId,
        /// Who has it.
        holder: WorkerId,
        /// Until when, if the holder does not renew.
        until: Timestamp,
    },
    /// The task is completed, failed or cancelled.
    #[error("task {task} is already {status}")]
    Finished {
        /// The task.
        task: TaskId,
        /// Its terminal status.
        status: Status,
    },
    /// The task cannot be claimed before it is due.
    #[error("task {task} is due at {due_at}")]
    NotDue {
        /// The task.
        task: TaskId,
        /// When it will be runnable.
        due_at: Timestamp,
    },
    /// The task waits for the task that it replaces.
    #[error("task {task} waits for task {on} to end")]
    Waiting {
        /// The task.
        task: TaskId,
        /// What it waits for.
        on: TaskId,
    },
    /// Only a terminal task can be deleted.
    #[error("task {task} is {status}: only a finished task can be deleted")]
    NotFinished {
        /// The task.
        task: TaskId,
        /// Its status.
        status: Status,
    },
    /// The task is being cancelled and cannot be retried before that has ended.
    #[error("task {task} is being cancelled")]
    Cancelling {
        /// The task.
        task: TaskId,
    },
    /// The lifecycle of the task does not lead there.
    #[error(
        "task {task} cannot go from {from} to {to}; {}",
        ways(from, to, allowed)
    )]
    MoveNotAllowed {
        /// The task.
        task: TaskId,
        /// Where it is.
        from: Phase,
        /// Where it was to go.
        to: Phase,
        /// Where it may go.
        allowed: Vec<Phase>,
    },
    /// The task has failed as often as it may.
    #[error(
        "task {task} has failed {failures} times, its cap is {cap}: force the retry to run it again"
    )]
    MaxAttemptsReached {
        /// The task.
        task: TaskId,
        /// How often it failed.
        failures: u32,
        /// How often it may fail.
        cap: u32,
    },
    /// The idempotency key belongs to another task.
    #[error("key {key} is held by task {holder}, which is {status}")]
    KeyTaken {
        /// The key.
        key: IdempotencyKey,
        /// The task that holds it.
        holder: TaskId,
        /// The status of that task.
        status: Status,
    },
    /// Another task has this id already.
    #[error("task id {task} is taken by another task")]
    IdTaken {
        /// The id.
        task: TaskId,
    },
    /// The group takes no more members.
    #[error("group {group} is sealed")]
    GroupSealed {
        /// The group.
        group: GroupId,
    },
    /// The group has drained: nothing can be added to what it waits for.
    #[error("group {group} has drained")]
    GroupDrained {
        /// The group.
        group: GroupId,
    },
    /// The group has all the members it expects.
    #[error("group {group} expects {expected} and has them")]
    GroupFull {
        /// The group.
        group: GroupId,
        /// How many it expects.
        expected: u64,
    },
    /// The group exists with another definition.
    #[error("group {group} exists with another {field}")]
    GroupDiffers {
        /// The group.
        group: GroupId,
        /// What differs.
        field: Cow<'static, str>,
    },
    /// The field does not hold an integer.
    #[error("field {field} of record {key} is not an integer")]
    NotInteger {
        /// The record.
        key: Key,
        /// The field.
        field: Name,
    },
    /// The sum does not fit 64 bits.
    #[error("field {field} of record {key} would overflow")]
    Overflow {
        /// The record.
        key: Key,
        /// The field.
        field: Name,
    },
    /// The record would exceed a limit after this write.
    #[error("record {key} would exceed its limit: {problem}")]
    TooLarge {
        /// The record.
        key: Key,
        /// The limit.
        problem: Problem,
    },
    /// The commit would leave more than a transaction may hold.
    #[error("the commit would leave {bytes} bytes of records, at most {max} are allowed")]
    CommitTooLarge {
        /// What it would leave.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// Others changed the same things again and again. Try again.
    #[error("gave up after {attempts} attempts against concurrent changes")]
    Contended {
        /// How often it was tried.
        attempts: u32,
    },
    /// Another has the lock.
    #[error("lock {lock} is held by {owner} until {until}")]
    LockNotAcquired {
        /// The lock.
        lock: Name,
        /// Who has it, in the words of whoever took it.
        owner: String,
        /// Until when, if that one does not renew it.
        until: Timestamp,
    },
    /// The caller does not have the lock, or no longer. Stop what it protects.
    #[error("lock {lock} is not held, or no longer")]
    LockNotHeld {
        /// The lock.
        lock: Name,
    },
    /// The job was deleted. What was to be written was not; begin it anew if it is to go on.
    #[error("job {job} was deleted")]
    JobDeleted {
        /// The job.
        job: Name,
    },
    /// A partition of a job has an error status, so that the others wait in vain.
    #[error("job {job}: partition {partition} has status {status} at {tag}: {message}")]
    PartitionFailed {
        /// The job.
        job: Name,
        /// The tag.
        tag: Name,
        /// The partition.
        partition: u32,
        /// Its status, which is negative.
        status: i32,
        /// What it says about it.
        message: String,
    },
    /// Not all partitions of a job got there in time.
    #[error(
        "job {job}: {behind} partitions have not reached status {wanted} at {tag}, the first is {partition} with {status}"
    )]
    BarrierNotReached {
        /// The job.
        job: Name,
        /// The tag.
        tag: Name,
        /// The status that all should have.
        wanted: i32,
        /// How many do not.
        behind: u32,
        /// The one that is furthest behind.
        partition: u32,
        /// Its status.
        status: i32,
    },
    /// Not all records are in the index yet.
    #[error("the index on {index} is being filled: declare it again until it is ready")]
    IndexNotReady {
        /// The index.
        index: Index,
    },
}

/// The caller does not hold the task.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("lease lost: task {task} at fence {fence}: {why}")]
pub struct LeaseLost {
    /// The task.
    pub task: TaskId,
    /// The fence that the caller showed.
    pub fence: Fence,
    /// What has become of the task.
    pub why: Lost,
}

/// What has become of a task that the caller thought to hold.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Lost {
    /// Nobody holds it.
    #[error("nobody holds it, it is {status}")]
    NotClaimed {
        /// Its status.
        status: Status,
    },
    /// Another worker, or another incarnation of this one, holds it.
    #[error("it is held by {holder}")]
    WrongWorker {
        /// Who holds it.
        holder: WorkerId,
    },
    /// The same worker has claimed it again since.
    #[error("it was claimed again with fence {fence}")]
    Superseded {
        /// The newer fence.
        fence: Fence,
    },
    /// It has ended.
    #[error("it is already {status}")]
    Finished {
        /// Its terminal status.
        status: Status,
    },
    /// It was deleted, or never existed.
    #[error("there is no such task")]
    Gone,
    /// The caller's attempt has ended, whatever becomes of the task.
    #[error("the attempt has ended")]
    AttemptOver,
}

/// The store did not answer as it should.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("store unavailable ({applied}): {cause}")]
pub struct Unavailable {
    /// Whether the call may have taken effect.
    pub applied: Applied,
    /// What the store or the network said.
    pub cause: String,
}

/// Whether a call without a proper answer took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// It did not.
    #[error("nothing was applied")]
    No,
    /// Nobody knows. Repeat the same call: that is safe.
    #[error("it is unknown whether it was applied; repeating is safe")]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_field_and_limit() {
        let error = Error::from(
            Invalid::new(
                "payload",
                Problem::TooLong {
                    bytes: 300_000,
                    max: 262_144,
                },
            )
            .within("writes[0]"),
        );
        assert_eq!(
            error.to_string(),
            "invalid input: writes[0].payload: 300000 bytes, at most 262144 are allowed"
        );
        assert_eq!(error.kind(), "invalid");
    }

    #[test]
    fn only_unavailability_is_worth_a_blind_retry() {
        let unavailable = Unavailable {
            applied: Applied::Unknown,
            cause: "connection reset".into(),
        };
        assert!(Error::from(unavailable).is_transient());
        assert!(!Error::Closed.is_transient());
    }

    #[test]
    fn errors_are_small_enough_to_return_everywhere() {
        assert!(std::mem::size_of::<Error>() <= 128);
    }
}
