//! What somebody submits.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Invalid, Problem};
use crate::ids::TaskId;
use crate::lifecycle::Lifecycle;
use crate::names::{GroupId, IdempotencyKey, Name};
use crate::task::{Lane, RetryPolicy};
use crate::time::Timestamp;

/// How urgent a task is: 0 to 10, 10 first. Within a priority, the first runnable one runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

impl Priority {
    /// Background work.
    pub const LOWEST: Self = Self(0);
    /// What is most urgent.
    pub const HIGHEST: Self = Self(10);

    /// Checks that the priority is at most 10.
    pub fn new(priority: u8) -> Result<Self, Invalid> {
        if priority > Self::HIGHEST.0 {
            return Err(Invalid::new(
                "priority",
                Problem::OutOfRange {
                    value: priority.to_string(),
                    min: Self::LOWEST.0.to_string(),
                    max: Self::HIGHEST.0.to_string(),
                },
            ));
        }
        Ok(Self(priority))
    }

    /// Its value.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(5)
    }
}

impl TryFrom<u8> for Priority {
    type Error = Invalid;
    fn try_from(priority: u8) -> Result<Self, Invalid> {
        Self::new(priority)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> u8 {
        priority.0
    }
}

/// When a task becomes runnable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// After a while, by the store's clock.
    After(Duration),
    /// At this moment, by the store's clock. A moment in the past means at once.
    At(Timestamp),
}

/// How long an idempotency key stands for its task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyLifetime {
    /// Until the task is terminal.
    WhileActive,
    /// This long from submission, and at least until the task is terminal.
    For(Duration),
    /// Until the task is deleted: by somebody, or when it was kept long enough.
    #[default]
    Forever,
}

/// What to do when the key already stands for another task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// Answer with that task.
    #[default]
    Attach,
    /// Refuse.
    Reject,
    /// Take its place if it is scheduled or pending; answer with it otherwise.
    ReplacePending,
    /// Cancel it, whether scheduled, pending or claimed, and take its place. The new task runs
    /// once the old one has ended. A finished one is answered with.
    CancelAndReplace,
}

/// An idempotency key with its lifetime and its conflict policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRequest {
    /// The key.
    pub key: IdempotencyKey,
    /// How long it stands for the task.
    pub lifetime: KeyLifetime,
    /// What to do when it stands for another one already.
    pub on_conflict: OnConflict,
}

/// A task to submit.
///
/// ```
/// use plimsoll_core::task::{Lane, NewTask, Priority};
/// use plimsoll_core::TaskId;
/// let task = NewTask::new(TaskId::from_u128(1), Lane::new("media", "transcode")?, "clip-7")
///     .priority(Priority::HIGHEST)
///     .key("clip-7-transcode".try_into()?);
/// assert_eq!(task.retry.max_attempts, 4);
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewTask {
    /// Made by the submitter: submitting the same id again is the same submission.
    pub id: TaskId,
    /// Queue and kind.
    pub lane: Lane,
    /// What the worker gets. It may be empty.
    pub payload: Bytes,
    /// How urgent it is.
    pub priority: Priority,
    /// When it becomes runnable.
    pub due: Due,
    /// What makes it the same as an earlier one.
    pub key: Option<KeyRequest>,
    /// The group it belongs to.
    pub group: Option<GroupId>,
    /// Whose it is.
    pub owner: Option<Name>,
    /// What it can be found by.
    pub labels: BTreeMap<Name, Name>,
    /// When it is tried again.
    pub retry: RetryPolicy,
    /// How long one attempt may take, whatever its lease.
    pub attempt_timeout: Option<Duration>,
    /// The stage that a claim puts it into.
    pub first_stage: Option<Name>,
    /// Submitted when it fails for good.
    pub on_failure: Option<Box<NewTask>>,
    /// Where its trace began, as W3C trace context.
    pub trace: Option<String>,
    /// The stages that it goes through.
    #[serde(default)]
    pub lifecycle: Option<Lifecycle>,
}

impl NewTask {
    /// A task with everything at its default.
    pub fn new(id: TaskId, lane: Lane, payload: impl Into<Bytes>) -> Self {
        Self {
            id,
            lane,
            payload: payload.into(),
            priority: Priority::default(),
            due: Due::default(),
            key: None,
            group: None,
            owner: None,
            labels: BTreeMap::new(),
            retry: RetryPolicy::default(),
            attempt_timeout: None,
            first_stage: None,
            on_failure: None,
            trace: None,
            lifecycle: None,
        }
    }

    /// With this priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Runnable after this while.
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Runnable at this moment, by the store's clock.
    pub fn at(mut self, moment: Timestamp) -> Self {
        self.due = Due::At(moment);
        self
    }

    /// With this idempotency key, until it is deleted; a duplicate attaches.
    pub fn key(self, key: IdempotencyKey) -> Self {
        self.key_with(key, KeyLifetime::default(), OnConflict::default())
    }

    /// With this idempotency key, lifetime and conflict policy.
    pub fn key_with(
        mut self,
        key: IdempotencyKey,
        lifetime: KeyLifetime,
        on_conflict: OnConflict,
    ) -> Self {
        self.key = Some(KeyRequest {
            key,
            lifetime,
            on_conflict,
        });
        self
    }

    /// As a member of this group.
    pub fn group(mut self, group: GroupId) -> Self {
        self.group = Some(group);
        self
    }

    /// With this retry policy.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// With this many attempts that may fail; zero: without limit.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.retry.max_attempts = max_attempts;
        self
    }

    /// As this owner's.
    pub fn owner(mut self, owner: Name) -> Self {
        self.owner = Some(owner);
        self
    }

    /// With one more label.
    pub fn label(mut self, name: Name, value: Name) -> Self {
        self.labels.insert(name, value);
        self
    }

    /// With a limit on each attempt.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// With a stage that each claim puts it into.
    pub fn first_stage(mut self, stage: Name) -> Self {
        self.first_stage = Some(stage);
        self
    }

    /// With these stages: each claim puts it into the first one.
    pub fn lifecycle(mut self, lifecycle: Lifecycle) -> Self {
        self.lifecycle = Some(lifecycle);
        self
    }

    /// With the trace that it belongs to, as W3C trace context.
    pub fn trace(mut self, trace: impl Into<String>) -> Self {
        self.trace = Some(trace.into());
        self
    }

    /// With a task that is submitted when this one fails for good.
    pub fn on_failure(mut self, task: NewTask) -> Self {
        self.on_failure = Some(Box::new(task));
        self
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let labels = self.labels.iter();
        self.payload.len()
            + self.key.as_ref().map_or(0, |key| key.key.as_str().len())
            + labels
                .map(|(name, value)| name.as_str().len() + value.as_str().len())
                .sum::<usize>()
            + self.trace.as_ref().map_or(0, String::len)
            + self.lifecycle.as_ref().map_or(0, Lifecycle::size)
            + self.on_failure.as_ref().map_or(0, |task| task.size())
    }
}
