//! The record of a task's state with all its fields, and what workers and sweepers do to it, safely:
//! each step is one commit that is guarded by what it relies on.

use futures::{FutureExt, TryStreamExt};
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::record::Record;
use plimsoll_core::store::Guard;
use plimsoll_core::{Key, Name, Result};
use plimsoll_engine::Records;
use plimsoll_engine::records::{Swap, Swapped, from_record};
use serde::{Deserialize, Serialize};

use crate::world::{World, on_each_store};

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
        timeout_at: None,
        error: None,
        params_ref: Some("s3://in/123".into()),
        result_ref: None,
    }
}

fn claim(worker: &str, now: i64) -> Swap {
    Swap::new(KEY)
        .when("state", "pending")
        .set("state", "claimed")
        .set("worker", worker)
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS)
}

/// Guarded by the worker, and by the step so far: none is taken twice.
fn step(worker: &str, done: Option<i64>, now: i64) -> Swap {
    let held = Swap::new(KEY).when("worker", worker);
    let at = match done {
        Some(done) => held.when("current_step", done),
        None => held.when_unset("current_step"),
    };
    at.set("state", "running")
        .set("current_step", done.unwrap_or(0) + 1)
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS)
}

fn complete(worker: &str, now: i64) -> Swap {
    Swap::new(KEY)
        .when("worker", worker)
        .when("state", "running")
        .set("state", "completed")
        .set("updated_at", now)
        .unset("timeout_at")
        .set("result_ref", "s3://out/123")
}

/// Guarded by the revision that the sweeper has read: whoever has moved since is not stuck.
fn reset(record: &Record, now: i64) -> Swap {
    Swap::new(record.key.as_str())
        .when_at(record.revision)
        .set("state", "pending")
        .unset("worker")
        .unset("current_step")
        .unset("timeout_at")
        .set("updated_at", now)
}

/// What is not in a terminal state and was not updated for long.
async fn stuck(records: &Records, now: i64) -> Result<Vec<Record>> {
    let old = records
        .scan("gbe.state.tasks.")
        .lt("updated_at", now - STUCK_MS);
    let stuck = old.ne("state", "completed").ne("state", "failed");
    stuck.ne("state", "cancelled").stream().try_collect().await
}

impl World {
    /// Unix milliseconds, as the record has them.
    async fn now(&self) -> Result<i64> {
        Ok(self.others.ping().await?.as_micros() / 1_000)
    }

    async fn state(&self) -> Result<TaskState> {
        Ok(self.others.typed().get(KEY).await?.unwrap())
    }

    async fn submitted(&self) -> Result<i64> {
        let now = self.now().await?;
        let states = self.others.typed::<TaskState>();
        states.put(KEY, &pending("job_123", now), None).await?;
        Ok(now)
    }

    async fn running(&self, worker: &str) -> Result<i64> {
        let now = self.submitted().await?;
        assert!(self.others.swap(claim(worker, now)).await?.is_done());
        assert!(self.others.swap(step(worker, None, now)).await?.is_done());
        Ok(now)
    }
}

fn field(name: &str, value: &str) -> Guard {
    let (key, name) = (Key::new(KEY).unwrap(), Name::new(name).unwrap());
    Guard::Field(key, name, Some(value.to_owned().into()))
}

on_each_store!(
    the_record_has_all_its_fields,
    of_two_workers_one_claims_and_all_of_it_is_written,
    a_claim_whose_answer_is_lost_is_the_workers,
    a_step_needs_the_worker_and_is_taken_once,
    completion_needs_the_worker_and_clears_the_timeout,
    the_sweeper_finds_what_is_stuck_and_nothing_else,
    the_sweeper_does_not_reset_who_moved_meanwhile,
    of_two_sweepers_one_resets,
    a_worker_that_was_swept_can_write_nothing_more,
);

async fn the_record_has_all_its_fields(w: World) -> Result<()> {
    let full = TaskState {
        state: State::Failed,
        worker: Some("w1".into()),
        current_step: Some(2),
        timeout_at: Some(1_700_000_060_000),
        error: Some("no route".into()),
        result_ref: Some("s3://out/123".into()),
        ..pending("job_123", 1_700_000_000_000)
    };
    w.records.typed().put(KEY, &full, None).await?;
    let record = w.records.get(KEY).await?.unwrap();
    let text = |name| std::str::from_utf8(record.field(name).unwrap()).unwrap();
    for (name, value) in [
        ("state", "failed"),
        ("task_type", "email-send"),
        ("task_id", "job_123"),
        ("worker", "w1"),
        ("current_step", "2"),
        ("step_count", "3"),
        ("created_at", "1700000000000"),
        ("updated_at", "1700000000000"),
        ("timeout_at", "1700000060000"),
        ("error", "no route"),
        ("params_ref", "s3://in/123"),
        ("result_ref", "s3://out/123"),
    ] {
        assert_eq!(text(name), value, "{name}");
    }
    assert_eq!(record.fields.len(), 12);
    assert_eq!(from_record::<TaskState>(&record)?, full);
    let fresh = pending("job_123", 7);
    w.records.typed().put(KEY, &fresh, None).await?;
    assert_eq!(w.records.get(KEY).await?.unwrap().fields.len(), 7);
    assert_eq!(w.state().await?, fresh);
    Ok(())
}

async fn of_two_workers_one_claims_and_all_of_it_is_written(w: World) -> Result<()> {
    let now = w.submitted().await?;
    let claims = [
        w.records.swap(claim("w1", now)),
        w.others.swap(claim("w2", now)),
    ];
    let answers = futures::future::join_all(claims).await;
    let answers: Vec<Swapped> = answers.into_iter().collect::<Result<_>>()?;
    let won: Vec<&str> = (answers.iter().zip(["w1", "w2"]))
        .filter_map(|(answer, worker)| answer.is_done().then_some(worker))
        .collect();
    assert_eq!(won.len(), 1);
    let refused = Swapped::Refused(field("state", "pending"));
    assert!(answers.contains(&refused), "{answers:?}");
    let expected = TaskState {
        state: State::Claimed,
        worker: Some(won[0].to_owned()),
        timeout_at: Some((now + STEP_TIMEOUT_MS) as u64),
        ..pending("job_123", now)
    };
    assert_eq!(w.state().await?, expected);
    Ok(())
}

async fn a_claim_whose_answer_is_lost_is_the_workers(w: World) -> Result<()> {
    let now = w.submitted().await?;
    w.plan.next(Method::Commit, Fault::ErrorAfter);
    assert!(w.records.swap(claim("w1", now)).await?.is_done());
    assert!(!w.others.swap(claim("w2", now)).await?.is_done());
    assert_eq!(w.state().await?.worker.unwrap(), "w1");
    Ok(())
}

async fn a_step_needs_the_worker_and_is_taken_once(w: World) -> Result<()> {
    let now = w.running("w1").await?;
    let foreign = w.records.swap(step("w2", Some(1), now)).await?;
    assert_eq!(foreign, Swapped::Refused(field("worker", "w2")));
    let later = now + 1_000;
    assert!(w.records.swap(step("w1", Some(1), later)).await?.is_done());
    let again = w.records.swap(step("w1", Some(1), later)).await?;
    assert_eq!(again, Swapped::Refused(field("current_step", "1")));
    let state = w.state().await?;
    assert_eq!((state.state, state.current_step), (State::Running, Some(2)));
    assert_eq!(state.updated_at, later as u64);
    assert_eq!(state.timeout_at, Some((later + STEP_TIMEOUT_MS) as u64));
    Ok(())
}

async fn completion_needs_the_worker_and_clears_the_timeout(w: World) -> Result<()> {
    let now = w.running("w1").await?;
    let foreign = w.records.swap(complete("w2", now)).await?;
    assert_eq!(foreign, Swapped::Refused(field("worker", "w2")));
    assert_eq!(w.state().await?.state, State::Running);
    assert!(w.records.swap(complete("w1", now)).await?.is_done());
    let state = w.state().await?;
    assert_eq!((state.state, state.timeout_at), (State::Completed, None));
    assert_eq!(state.result_ref.unwrap(), "s3://out/123");
    assert!(!w.records.swap(complete("w1", now)).await?.is_done());
    Ok(())
}

async fn the_sweeper_finds_what_is_stuck_and_nothing_else(w: World) -> Result<()> {
    let states = w.records.typed::<TaskState>();
    let now = w.now().await?;
    let all = [
        State::Pending,
        State::Claimed,
        State::Running,
        State::Completed,
        State::Failed,
        State::Cancelled,
    ];
    for (n, state) in all.into_iter().enumerate() {
        for (age, at) in [("old", now - STUCK_MS - 1), ("young", now - STUCK_MS)] {
            let task = TaskState {
                state,
                ..pending(&format!("{n}"), at)
            };
            let key = format!("gbe.state.tasks.email-send.{n}-{age}");
            states.put(key, &task, None).await?;
        }
    }
    let old = pending("x", 0);
    states.put("gbe.state.other.x", &old, None).await?;
    let found = stuck(&w.records, now).await?;
    let keys: Vec<_> = found.iter().map(|record| record.key.as_str()).collect();
    let expected = ["0-old", "1-old", "2-old"];
    assert_eq!(
        keys,
        expected.map(|id| format!("gbe.state.tasks.email-send.{id}"))
    );
    for record in found {
        assert!(w.records.swap(reset(&record, now)).await?.is_done());
    }
    assert!(stuck(&w.records, now).await?.is_empty());
    Ok(())
}

async fn the_sweeper_does_not_reset_who_moved_meanwhile(w: World) -> Result<()> {
    let now = w.running("w1").await? + STUCK_MS + 1;
    let found = stuck(&w.records, now).await?.pop().unwrap();
    // The sweeper's commit is on its way when the worker wakes up.
    let others = w.others.clone();
    w.spy.before(Method::Commit, move || {
        let others = others.clone();
        async move {
            let step = others.swap(step("w1", Some(1), now)).await.unwrap();
            assert!(step.is_done());
        }
        .boxed()
    });
    let refused = Guard::RecordAt(Key::new(KEY)?, found.revision);
    let answer = w.records.swap(reset(&found, now)).await?;
    assert_eq!(answer, Swapped::Refused(refused));
    let state = w.state().await?;
    assert_eq!((state.state, state.current_step), (State::Running, Some(2)));
    assert_eq!(state.worker.unwrap(), "w1");
    Ok(())
}

async fn of_two_sweepers_one_resets(w: World) -> Result<()> {
    let now = w.running("w1").await? + STUCK_MS + 1;
    let mut resets = 0;
    let found = [stuck(&w.records, now).await?, stuck(&w.others, now).await?];
    for record in found.concat() {
        // Only who has reset it may put it in the queue again.
        resets += u32::from(w.records.swap(reset(&record, now)).await?.is_done());
    }
    assert_eq!(resets, 1);
    Ok(())
}

async fn a_worker_that_was_swept_can_write_nothing_more(w: World) -> Result<()> {
    let now = w.running("w1").await? + STUCK_MS + 1;
    let found = stuck(&w.records, now).await?.pop().unwrap();
    assert!(w.records.swap(reset(&found, now)).await?.is_done());
    let late = [step("w1", Some(1), now), complete("w1", now)];
    for swap in late.clone() {
        assert!(!w.records.swap(swap).await?.is_done());
    }
    let state = w.state().await?;
    assert_eq!((state.state, state.worker), (State::Pending, None));
    assert!(w.others.swap(claim("w2", now)).await?.is_done());
    for swap in late {
        assert!(!w.records.swap(swap).await?.is_done());
    }
    assert_eq!(w.state().await?.worker.unwrap(), "w2");
    Ok(())
}
