//! What must be true of tasks. What is true instead is said by whatever fails.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use plimsoll_core::TaskId;
use plimsoll_core::clock::Clock;
use plimsoll_core::task::{Status, Task};
use serde::Serialize;
use serde_json::Value;

use super::Kit;

/// How much of a payload is shown.
const SHOWN_MAX: usize = 120;
/// How many tasks are shown.
const TASKS_SHOWN_MAX: usize = 20;

/// Tasks that were submitted, to be asserted further.
///
/// ```
/// # use plimsoll_engine::testing::Kit;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let kit = Kit::new();
/// for name in ["ada", "bob"] {
///     kit.tasks().submit(kit.tasks().json("mail", "send", name)?).await?;
/// }
/// kit.assert_submitted("mail", "send").times(2);
/// kit.assert_submitted("mail", "send").with("ada").times(1);
/// let tasks = kit.assert_submitted("mail", "send").matching(|task| task.priority.get() == 5);
/// assert_eq!(tasks.tasks().len(), 2);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Submissions {
    kit: Kit,
    what: String,
    tasks: Vec<Task>,
}

impl Submissions {
    /// Those with this payload, as JSON. There must be one.
    #[track_caller]
    pub fn with(self, payload: &(impl Serialize + ?Sized)) -> Self {
        let expected = json(payload);
        let what = format!("with payload {expected}");
        self.narrow(&what, |task| {
            serde_json::from_slice::<Value>(&task.spec.payload).is_ok_and(|it| it == expected)
        })
    }

    /// Those with this payload, byte by byte. There must be one.
    #[track_caller]
    pub fn with_bytes(self, payload: impl AsRef<[u8]>) -> Self {
        let payload = payload.as_ref();
        let what = format!("with payload {}", Shown(payload));
        self.narrow(&what, |task| task.spec.payload == payload)
    }

    /// Those of which this is true. There must be one.
    #[track_caller]
    pub fn matching(self, is: impl Fn(&Task) -> bool) -> Self {
        self.narrow("that matches", is)
    }

    /// There must be this many.
    #[track_caller]
    pub fn times(self, times: usize) -> Self {
        let (what, found) = (&self.what, self.tasks.len());
        let there_are = self.kit.there_are();
        assert!(
            found == times,
            "{what} was submitted {found} times, not {times}. {there_are}"
        );
        self
    }

    /// The tasks as they are now.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    #[track_caller]
    fn narrow(mut self, what: &str, is: impl Fn(&Task) -> bool) -> Self {
        write!(self.what, " {what}").ok();
        self.tasks.retain(is);
        if self.tasks.is_empty() {
            panic!("no {} was submitted. {}", self.what, self.kit.there_are());
        }
        self
    }
}

/// What must be true of tasks.
impl Kit {
    /// A task of this queue and kind was submitted, whatever became of it: see [`Submissions`].
    ///
    /// ```should_panic
    /// # use plimsoll_engine::testing::Kit;
    /// let kit = Kit::new();
    /// kit.assert_submitted("mail", "send");
    /// ```
    #[track_caller]
    pub fn assert_submitted(&self, queue: &str, kind: &str) -> Submissions {
        let submissions = Submissions {
            kit: self.clone(),
            what: "task".into(),
            tasks: self.all(),
        };
        submissions.narrow(&format!("{queue}/{kind}"), |task| of(task, queue, kind))
    }

    /// No task of this queue and kind was submitted.
    #[track_caller]
    pub fn assert_not_submitted(&self, queue: &str, kind: &str) {
        let found = self.describe(|task| of(task, queue, kind));
        assert!(
            found.is_empty(),
            "a task {queue}/{kind} was submitted:{found}"
        );
    }

    /// The task is completed.
    ///
    /// ```
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let worker = kit.worker("w1").queue("mail").handle("send", async || {});
    /// let task = kit.perform(worker, kit.tasks().task("mail", "send", "hello")?).await;
    /// assert_eq!(kit.assert_completed(task.id()).attempts, 1);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    #[track_caller]
    pub fn assert_completed(&self, id: TaskId) -> Task {
        self.assert_status(id, Status::Completed)
    }

    /// The task is completed with this result, as JSON.
    #[track_caller]
    pub fn assert_completed_with(&self, id: TaskId, result: &(impl Serialize + ?Sized)) -> Task {
        let task = self.assert_completed(id);
        let expected = json(result);
        let bytes = task.result.as_deref().unwrap_or_default();
        if serde_json::from_slice::<Value>(bytes).ok() != Some(expected.clone()) {
            let shown = Shown(bytes);
            panic!("task {id} is completed with {shown}, not with {expected}");
        }
        task
    }

    /// The task has failed for good, and its last error contains this.
    #[track_caller]
    pub fn assert_failed(&self, id: TaskId, message: &str) -> Task {
        self.assert_error(self.assert_status(id, Status::Failed), message)
    }

    /// The task waits for another attempt after an error that contains this.
    #[track_caller]
    pub fn assert_retrying(&self, id: TaskId, message: &str) -> Task {
        self.assert_error(self.assert_status(id, Status::Scheduled), message)
    }

    /// The task is due later: delayed, snoozed, or waiting for a retry.
    #[track_caller]
    pub fn assert_scheduled(&self, id: TaskId) -> Task {
        self.assert_status(id, Status::Scheduled)
    }

    /// The task becomes runnable after exactly this long.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let hour = Duration::from_secs(3_600);
    /// let id = kit.tasks().submit(kit.tasks().task("mail", "send", "hello")?.after(hour)).await?.id;
    /// kit.assert_due_in(id, hour);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    #[track_caller]
    pub fn assert_due_in(&self, id: TaskId, duration: Duration) -> Task {
        let task = self.assert_scheduled(id);
        let due = task.runnable_at.since(self.clock.now());
        assert!(
            due == duration,
            "task {id} is due in {due:?}, not in {duration:?}"
        );
        task
    }

    /// The task is runnable and nobody has it.
    #[track_caller]
    pub fn assert_pending(&self, id: TaskId) -> Task {
        self.assert_status(id, Status::Pending)
    }

    /// A worker has the task.
    #[track_caller]
    pub fn assert_claimed(&self, id: TaskId) -> Task {
        self.assert_status(id, Status::Claimed)
    }

    /// The task was called off.
    #[track_caller]
    pub fn assert_cancelled(&self, id: TaskId) -> Task {
        self.assert_status(id, Status::Cancelled)
    }

    #[track_caller]
    fn assert_status(&self, id: TaskId, status: Status) -> Task {
        let task = self.task(id);
        if task.status != status {
            panic!(
                "expected a task that is {status}, but it is:{}",
                self.line(&task)
            );
        }
        task
    }

    #[track_caller]
    fn assert_error(&self, task: Task, message: &str) -> Task {
        let error = task.errors.last().map_or("", |error| &error.message);
        if !error.contains(message) {
            panic!(
                "the last error does not contain \"{message}\":{}",
                self.line(&task)
            );
        }
        task
    }

    /// All tasks, for the message of a failed assertion.
    pub(super) fn there_are(&self) -> String {
        let all = self.describe(|_| true);
        match all.as_str() {
            "" => "There are no tasks at all".into(),
            all => format!("There are:{all}"),
        }
    }

    /// The tasks of which this is true, a line for each.
    pub(super) fn describe(&self, is: impl Fn(&Task) -> bool) -> String {
        let found: Vec<Task> = self.all().into_iter().filter(|task| is(task)).collect();
        let shown = found.iter().take(TASKS_SHOWN_MAX);
        let mut lines: String = shown.map(|task| self.line(task)).collect();
        if found.len() > TASKS_SHOWN_MAX {
            write!(lines, "\n  and {} more", found.len() - TASKS_SHOWN_MAX).ok();
        }
        lines
    }

    fn line(&self, task: &Task) -> String {
        let (id, lane, status) = (task.id(), &task.spec.lane, task.status);
        let mut line = format!(
            "\n  {lane} {id}: {status}, payload {}",
            Shown(&task.spec.payload)
        );
        let now = self.clock.now();
        let more = match status {
            Status::Scheduled if task.waiting.is_some() => ", waits for the one it replaces".into(),
            Status::Scheduled => format!(", due in {:?}", task.runnable_at.since(now)),
            Status::Claimed => {
                let worker = task.lease.as_ref().map(|lease| lease.worker.name.as_str());
                format!(" by {}", worker.unwrap_or("nobody"))
            }
            Status::Pending | Status::Completed | Status::Failed | Status::Cancelled => {
                String::new()
            }
        };
        line.push_str(&more);
        if let Some(error) = task.errors.last() {
            let message = &error.message;
            write!(line, ", {} failures, the last: {message}", task.failures).ok();
        }
        line
    }
}

fn of(task: &Task, queue: &str, kind: &str) -> bool {
    task.spec.lane.queue.as_str() == queue && task.spec.lane.kind.as_str() == kind
}

#[track_caller]
fn json(value: &(impl Serialize + ?Sized)) -> Value {
    match serde_json::to_value(value) {
        Ok(value) => value,
        Err(error) => panic!("JSON cannot hold what is expected: {error}"),
    }
}

/// Bytes for people: as text, if they are.
struct Shown<'a>(&'a [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok("") => f.write_str("(empty)"),
            Ok(text) => {
                let end = text.char_indices().nth(SHOWN_MAX).map(|(at, _)| at);
                f.write_str(&text[..end.unwrap_or(text.len())])?;
                f.write_str(if end.is_some() { "…" } else { "" })
            }
            Err(_) => write!(f, "({} bytes)", self.0.len()),
        }
    }
}
