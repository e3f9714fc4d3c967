//! What a store keeps of a task: what never changes, and what does.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Invalid;
use crate::ids::{Fence, Fingerprint, Incarnation, Revision, TaskId};
use crate::lifecycle::Lifecycle;
use crate::names::{GroupId, IdempotencyKey, Name};
use crate::record::Fields;
use crate::task::{KeyLifetime, NewTask, Priority, RetryPolicy, Status};
use crate::time::Timestamp;

/// Where a task waits: a queue, and the kind of work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// The queue.
    pub queue: Name,
    /// The kind.
    pub kind: Name,
}

impl Lane {
    /// Checks both names.
    pub fn new(queue: impl AsRef<str>, kind: impl AsRef<str>) -> Result<Self, Invalid> {
        Ok(Self {
            queue: Name::for_field("queue", queue)?,
            kind: Name::for_field("kind", kind)?,
        })
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.queue, self.kind)
    }
}

/// Who works: a name that people know, and the incarnation that tells restarts apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerId {
    /// The name.
    pub name: Name,
    /// This life of it.
    pub incarnation: Incarnation,
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.incarnation)
    }
}

/// What a claim gives and every later verb of the holder must show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The task.
    pub task: TaskId,
    /// Who claimed it.
    pub worker: WorkerId,
    /// The fence of that claim.
    pub fence: Fence,
}

/// A worker's hold on a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub worker: WorkerId,
    /// When it ends unless it is renewed. Never later than the deadline.
    pub until: Timestamp,
    /// When the attempt ends, renewed or not.
    pub deadline: Option<Timestamp>,
}

/// What never changes of a task. It is written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its id.
    pub id: TaskId,
    /// Queue and kind.
    pub lane: Lane,
    /// What the worker gets.
    pub payload: Bytes,
    /// Of the payload.
    pub fingerprint: Fingerprint,
    /// Its idempotency key, and for how long that stands for it.
    pub key: Option<(IdempotencyKey, KeyLifetime)>,
    /// The group it belongs to.
    pub group: Option<GroupId>,
    /// The revision that opened this group.
    pub group_born: Option<Revision>,
    /// Whose it is.
    pub owner: Option<Name>,
    /// What it can be found by.
    pub labels: BTreeMap<Name, Name>,
    /// When it is tried again.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub attempt_timeout: Option<Duration>,
    /// The stage that a claim puts it into.
    pub first_stage: Option<Name>,
    /// Submitted when it fails for good.
    pub on_failure: Option<Box<NewTask>>,
    /// Where its trace began.
    pub trace: Option<String>,
    /// When the store took it.
    pub created_at: Timestamp,
    /// The revision that created it: tells it from another one that had the same id before.
    pub born: Revision,
    /// The stages that it goes through.
    #[serde(default)]
    pub lifecycle: Option<Lifecycle>,
}

/// A task as it is now: what never changes of it, and what does.
///
/// What changes can be read and written as if it were the task's own: `task.status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// What never changes.
    #[serde(with = "shared")]
    pub spec: Arc<TaskSpec>,
    /// What changes.
    pub state: TaskState,
}

impl Deref for Task {
    type Target = TaskState;
    fn deref(&self) -> &TaskState {
        &self.state
    }
}

impl DerefMut for Task {
    fn deref_mut(&mut self) -> &mut TaskState {
        &mut self.state
    }
}

/// What changes of a task. It is small, and stores keep it apart from what never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    /// What it is.
    pub status: Status,
    /// How urgent it is.
    pub priority: Priority,
    /// Grows with every claim.
    pub fence: Fence,
    /// How often it was claimed.
    pub attempts: u32,
    /// How often it failed, as counted toward the cap.
    pub failures: u32,
    /// How often it failed for good.
    pub defeats: u32,
    /// How often it was made to run again after it had ended.
    pub redrives: u32,
    /// When it becomes runnable, or became so: its place in the line.
    pub runnable_at: Timestamp,
    /// Who holds it, while it is claimed.
    pub lease: Option<Lease>,
    /// That somebody asked its holder to stop.
    pub cancel: Option<CancelRequest>,
    /// What the last settling holder made of it.
    pub settled: Option<Settled>,
    /// What it waits for, besides its time.
    pub waiting: Option<Waiting>,
    /// The task that runs once this one has ended.
    pub successor: Option<TaskId>,
    /// The stage it is in, while it is claimed.
    pub stage: Option<Name>,
    /// How far it says it is.
    pub progress: Option<Progress>,
    /// What its author wants to find again on the next attempt.
    pub checkpoint: Option<Bytes>,
    /// What its author attached to it.
    pub attributes: Fields,
    /// The errors of its last attempts, oldest first.
    pub errors: Vec<AttemptError>,
    /// What it came to.
    pub result: Option<Bytes>,
    /// Why it failed or was cancelled.
    pub reason: Option<String>,
    /// When it was claimed first.
    pub started_at: Option<Timestamp>,
    /// When it was claimed last.
    pub claimed_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When the store wrote it last.
    pub modified_at: Timestamp,
    /// Grows with every write. A renewal is none.
    pub revision: Revision,
}

impl Task {
    /// Its id.
    pub fn id(&self) -> TaskId {
        self.spec.id
    }

    /// What the holder of its current lease must show.
    pub fn holder(&self) -> Option<Holder> {
        self.lease.as_ref().map(|lease| Holder {
            task: self.id(),
            worker: lease.worker.clone(),
            fence: self.fence,
        })
    }

    /// When retention may begin to count: since it ended and its key, if it was given for a time,
    /// no longer stands for it.
    pub fn removable_from(&self) -> Option<Timestamp> {
        let finished = self.finished_at?;
        Some(match self.spec.key {
            Some((_, KeyLifetime::For(lifetime))) => {
                finished.max(self.spec.created_at.saturating_plus(lifetime))
            }
            Some((_, KeyLifetime::WhileActive | KeyLifetime::Forever)) | None => finished,
        })
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let spec = &self.spec;
        let labels = spec.labels.iter();
        let message = self.progress.as_ref().and_then(|p| p.message.as_ref());
        let texts = [spec.trace.as_ref(), self.reason.as_ref(), message];
        let bodies = [self.result.as_ref(), self.checkpoint.as_ref()];
        spec.payload.len()
            + spec.on_failure.as_ref().map_or(0, |task| task.size())
            + spec.lifecycle.as_ref().map_or(0, Lifecycle::size)
            + labels
                .map(|(name, value)| name.as_str().len() + value.as_str().len())
                .sum::<usize>()
            + texts.into_iter().flatten().map(String::len).sum::<usize>()
            + bodies.into_iter().flatten().map(Bytes::len).sum::<usize>()
            + crate::record::fields_size(&self.attributes)
            + self.errors.iter().map(|e| e.message.len()).sum::<usize>()
    }
}

/// That somebody asked the holder of a task to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: Option<String>,
}

/// What a holder made of a task when it settled it: the answer to a repeated settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The fence that settled it.
    pub fence: Fence,
    /// The life of the worker that settled it.
    pub by: Incarnation,
    /// How.
    pub verb: Verb,
    /// What it became.
    pub status: Status,
    /// When it becomes runnable again, if it does.
    pub runnable_at: Option<Timestamp>,
    /// The name of the worker that settled it. Programs that did not keep it have left it out.
    #[serde(default)]
    pub worker: Option<Name>,
}

/// How a holder settles a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// With success.
    Complete,
    /// With a failure.
    Fail,
    /// By putting it off.
    Snooze,
    /// By giving it back.
    Release,
    /// By calling it off.
    Cancel,
}

/// That a task waits for the one it replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The task it waits for.
    pub on: TaskId,
    /// When it wants to be runnable, once that has ended.
    pub then_at: Timestamp,
}

/// How far a task says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// From 0 to 100.
    pub percent: Option<u8>,
    /// In words.
    pub message: Option<String>,
    /// Which step it is at.
    pub current_step: Option<u32>,
    /// Of how many.
    pub step_count: Option<u32>,
}

/// How an attempt went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// The fence of the attempt.
    pub fence: Fence,
    /// Who made it.
    pub worker: WorkerId,
    /// When it ended.
    pub at: Timestamp,
    /// How it ended.
    pub kind: FailureKind,
    /// In words.
    pub message: String,
    /// The stage it was in. Programs that knew none have left it out.
    #[serde(default)]
    pub stage: Option<Name>,
}

/// How an attempt ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The handler failed.
    Error,
    /// The handler failed and said that trying again is of no use.
    Fatal,
    /// The lease ran out: the worker died, hung or was cut off.
    LeaseExpired,
    /// The attempt took longer than it may.
    DeadlineExceeded,
    /// The worker gave it back, which does not count.
    Interrupted,
    /// An operator took it away, which does not count.
    Revoked,
}

/// Serializes what an `Arc` points to.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}
