//! The record of a task's state with all its fields, and what workers, operators and sweepers do to it, safely:
//! each step is one commit that is guarded by what it relies on.

mod sweeping;
mod working;

use plimsoll_core::record::Record;
use plimsoll_core::store::{Guard, List, Selector};
use plimsoll_core::task::{KeyLifetime, Lane, OnConflict, Status};
use plimsoll_core::{Key, Name, Result, Revision};
use plimsoll_engine::Records;
use plimsoll_engine::records::{Swap, Swapped};
use serde::{Deserialize, Serialize};

use crate::world::World;

const TASKS: &str = "gbe.state.tasks.";
const KEY: &str = "gbe.state.tasks.email-send.job_123";
const STEP_TIMEOUT_MS: i64 = 60_000;
const STUCK_MS: i64 = 300_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Pending,
    Claimed,
    Running,
    Completed,
    Failed,
    Cancelled,
}

impl State {
    const ALL: [Self; 6] = [
        Self::Pending,
        Self::Claimed,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TaskState {
    state: State,
    task_type: String,
    task_id: String,
    worker: Option<String>,
    current_step: Option<u32>,
    step_count: Option<u32>,
    created_at: u64,
    updated_at: u64,
    /// What has ended has none.
    timeout_at: Option<u64>,
    error: Option<String>,
    params_ref: Option<String>,
    result_ref: Option<String>,
}

fn pending(task_id: &str, now: i64) -> TaskState {
    TaskState {
        state: State::Pending,
        task_type: "email-send".into(),
        task_id: task_id.into(),
        worker: None,
        current_step: None,
        step_count: Some(3),
        created_at: now as u64,
        updated_at: now as u64,
        timeout_at: Some((now + STEP_TIMEOUT_MS) as u64),
        error: None,
        params_ref: Some("s3://in/123".into()),
        result_ref: None,
    }
}

/// The revision that this leaves is held by the worker: each of its next writes expects what its last one has left.
fn claim(worker: &str, now: i64) -> Swap {
    Swap::new(KEY)
        .when("state", "pending")
        .set("state", "claimed")
        .set("worker", worker)
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS)
}

/// Nobody else has written since: no sweeper, no operator, and not the worker itself, in this life or another one. The
/// worker is expected first, because that says more if somebody else has the job.
fn holding(worker: &str, held: Revision) -> Swap {
    Swap::new(KEY).when("worker", worker).when_at(held)
}

fn step(worker: &str, held: Revision, now: i64) -> Swap {
    holding(worker, held)
        .set("state", "running")
        .add("current_step", 1)
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS)
}

fn complete(worker: &str, held: Revision, now: i64) -> Swap {
    holding(worker, held)
        .set("state", "completed")
        .set("updated_at", now)
        .unset("timeout_at")
        .set("result_ref", "s3://out/123")
}

fn fail(worker: &str, held: Revision, now: i64) -> Swap {
    holding(worker, held)
        .set("state", "failed")
        .set("updated_at", now)
        .unset("timeout_at")
        .set("error", "no route")
}

/// Everything that a worker may write that holds this.
fn writes(worker: &str, held: Revision, now: i64) -> [Swap; 3] {
    [step, complete, fail].map(|write| write(worker, held, now))
}

/// An operator holds nothing: what is there is read, and read again if somebody else was faster. Answers whether there
/// was something left to cancel.
async fn cancel(records: &Records, now: i64) -> Result<bool> {
    let cancelled = |found: Option<TaskState>| {
        let open = found.filter(|task| !task.state.has_ended())?;
        Some(TaskState {
            state: State::Cancelled,
            updated_at: now as u64,
            timeout_at: None,
            ..open
        })
    };
    Ok(records.typed().update(KEY, cancelled).await?.is_some())
}

/// Guarded by the revision that the sweeper has read: whoever has moved since is not stuck. Whoever resets it puts
/// it in the queue again, in the same commit, unless it is still there.
fn reset(w: &World, record: &Record, now: i64) -> Result<Swap> {
    let again = (w.tasks).task("email", "send", record.key.as_str().to_owned())?;
    let (active, attach) = (KeyLifetime::WhileActive, OnConflict::Attach);
    let again = again.key_with(record.key.as_str().try_into()?, active, attach);
    let reset = Swap::new(record.key.as_str())
        .when_at(record.revision)
        .set("state", "pending")
        .unset("worker")
        .unset("current_step")
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS);
    Ok(reset.submit(again))
}

impl World {
    /// Unix milliseconds, as the record has them.
    async fn now(&self) -> Result<i64> {
        Ok(self.others.ping().await?.as_micros() / 1_000)
    }

    async fn state(&self) -> Result<TaskState> {
        Ok(self.others.typed().get(KEY).await?.unwrap())
    }

    /// How many tasks are in the queue.
    async fn queued(&self) -> Result<usize> {
        let waiting = Selector::Lane(Lane::new("email", "send")?, Status::Pending);
        Ok(self.bare.list(List::new(waiting, 10)).await?.rows.len())
    }

    async fn submitted(&self) -> Result<i64> {
        let now = self.now().await?;
        let states = self.others.typed::<TaskState>();
        states.put(KEY, &pending("job_123", now), None).await?;
        Ok(now)
    }

    /// When it began, and what the worker holds.
    async fn running(&self, worker: &str) -> Result<(i64, Revision)> {
        let now = self.submitted().await?;
        let held = self.held(claim(worker, now)).await?;
        Ok((now, self.held(step(worker, held, now)).await?))
    }

    /// Writes it, and answers what is held then.
    async fn held(&self, swap: Swap) -> Result<Revision> {
        match self.records.swap(swap).await? {
            Swapped::Done(Some(revision)) => Ok(revision),
            refused => panic!("{refused:?}"),
        }
    }

    /// Each is refused, because the record is not at this revision any more, and it stays as it is.
    async fn refuses(&self, late: impl IntoIterator<Item = Swap>, held: Revision) -> Result<()> {
        let before = self.others.get(KEY).await?;
        for swap in late {
            let refused = Swapped::Refused(at(held));
            assert_eq!(self.records.swap(swap).await?, refused, "{before:?}");
        }
        assert_eq!(self.others.get(KEY).await?, before);
        Ok(())
    }
}

fn field(name: &str, value: &str) -> Guard {
    let (key, name) = (Key::new(KEY).unwrap(), Name::new(name).unwrap());
    Guard::Field(key, name, Some(value.to_owned().into()))
}

fn at(held: Revision) -> Guard {
    Guard::RecordAt(Key::new(KEY).unwrap(), held)
}
