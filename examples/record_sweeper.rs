//! The state of jobs in records: workers claim and work on them, one of them freezes, and a
//! sweeper finds what is stuck and lets another one have it. Each step is one commit that is guarded by
//! what it relies on, so that neither two workers nor a worker and a sweeper ever act on the same state: not even
//! if both are the same worker, which was started again.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use futures::TryStreamExt;
use plimsoll::record::Record;
use plimsoll::records::{Swap, Swapped, from_record, to_fields};
use plimsoll::store::Counts;
use plimsoll::task::{KeyLifetime, OnConflict, Status};
use plimsoll::{Engine, Plimsoll, Records, Result, Revision};
use serde::{Deserialize, Serialize};

const JOBS: &str = "gbe.state.tasks.";
/// Minutes elsewhere. Nobody wants to wait for them here.
const STUCK: Duration = Duration::from_secs(1);
/// No more than that: what is stuck should be overdue.
const STEP_TIMEOUT_MS: i64 = 500;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Pending,
    Claimed,
    Running,
    Completed,
    Failed,
    Cancelled,
}

/// What is known of a job. `None` is a field that is not there.
#[derive(Serialize, Deserialize)]
struct Job {
    state: State,
    task_type: String,
    task_id: String,
    worker: Option<String>,
    current_step: Option<u32>,
    step_count: Option<u32>,
    created_at: i64,
    updated_at: i64,
    /// What is open always has one, and what has ended never.
    timeout_at: Option<i64>,
    error: Option<String>,
    params_ref: Option<String>,
    result_ref: Option<String>,
}

fn key(id: &str) -> String {
    format!("{JOBS}email-send.{id}")
}

/// Unix milliseconds by the store's clock, which is the same for all.
async fn now(records: &Records) -> Result<i64> {
    Ok(records.ping().await?.as_micros() / 1_000)
}

/// A job that is there already stays as it is, however far it has come.
async fn submit(records: &Records, id: &str) -> Result<bool> {
    let now = now(records).await?;
    let job = Job {
        state: State::Pending,
        task_type: "email-send".into(),
        task_id: id.into(),
        worker: None,
        current_step: None,
        step_count: Some(2),
        created_at: now,
        updated_at: now,
        timeout_at: Some(now + STEP_TIMEOUT_MS),
        error: None,
        params_ref: Some(format!("s3://letters/{id}")),
        result_ref: None,
    };
    let new = Swap::new(key(id)).when_absent();
    let new = new.put(to_fields(&job)?, None);
    Ok(records.swap(new).await?.is_done())
}

/// Sends it, and tells what became of it. Answers the revision that it has left.
async fn tell(records: &Records, what: String, swap: Swap) -> Result<Option<Revision>> {
    match records.swap(swap).await? {
        Swapped::Done(revision) => {
            println!("  {what}");
            Ok(revision)
        }
        Swapped::Refused(guard) => {
            println!("  {what}: refused, not true any more: {guard}");
            Ok(None)
        }
    }
}

/// What a worker has of a job: the revision that its last write has left. Each of its next writes expects that one, so
/// that it is refused after whatever others have written: a sweeper, somebody who cancels the job, or the same worker in
/// another life. What a repeated call answers is what the first one left, so that no lost answer makes it another one.
#[derive(Debug)]
struct Held {
    id: &'static str,
    worker: &'static str,
    at: Revision,
}

/// The state, the worker and the times change together or not at all.
async fn claim(records: &Records, id: &'static str, worker: &'static str) -> Result<Option<Held>> {
    let now = now(records).await?;
    let claim = Swap::new(key(id))
        .when("state", "pending")
        .set("state", "claimed")
        .set("worker", worker)
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS);
    let claimed = tell(records, format!("{worker} claims {id}"), claim).await?;
    Ok(claimed.map(|at| Held { id, worker, at }))
}

impl Held {
    /// The revision alone would do. Who expects the worker first is told if another one has the job.
    fn write(&self) -> Swap {
        let mine = Swap::new(key(self.id)).when("worker", self.worker);
        mine.when_at(self.at)
    }

    async fn step(&mut self, records: &Records) -> Result<bool> {
        let now = now(records).await?;
        let step = self
            .write()
            .set("state", "running")
            .add("current_step", 1)
            .set("updated_at", now)
            .set("timeout_at", now + STEP_TIMEOUT_MS);
        let what = format!("{} takes a step of {}", self.worker, self.id);
        let left = tell(records, what, step).await?;
        self.at = left.unwrap_or(self.at);
        Ok(left.is_some())
    }

    /// Nothing is held afterwards, so that nobody can go on with what has ended.
    async fn complete(self, records: &Records) -> Result<bool> {
        let complete = self
            .write()
            .set("state", "completed")
            .set("updated_at", now(records).await?)
            .unset("timeout_at")
            .set("result_ref", format!("s3://sent/{}", self.id));
        let what = format!("{} completes {}", self.worker, self.id);
        Ok(tell(records, what, complete).await?.is_some())
    }
}

/// What has not ended and was not updated for long. However much else there is, what has time left and what has ended
/// is not read: the index leads to what is overdue.
async fn stuck(records: &Records) -> Result<Vec<Record>> {
    let now = now(records).await?;
    let overdue = records.scan(JOBS).range("timeout_at", ..now);
    let old = overdue.lt("updated_at", now - STUCK.as_millis() as i64);
    let scan = old.ne("state", "completed").ne("state", "failed");
    let scan = scan.ne("state", "cancelled").max_results(1_000);
    scan.stream().try_collect().await
}

/// Makes it pending again, if nobody has touched it since the sweeper has read it, and puts it in the queue for
/// whoever works there. Both happen, or neither. If it waits there still, since nobody has come to it, it is not put there
/// once more: its key stands for the task until that has ended.
async fn reset(engine: &Engine, found: &Record) -> Result<bool> {
    let (records, tasks) = (engine.records(), engine.tasks());
    let now = now(&records).await?;
    let job: Job = from_record(found)?;
    let again = tasks.json("email", "email-send", &job.task_id)?;
    let (active, attach) = (KeyLifetime::WhileActive, OnConflict::Attach);
    let again = again.key_with(found.key.as_str().try_into()?, active, attach);
    let reset = Swap::new(found.key.as_str())
        .when_at(found.revision)
        .set("state", "pending")
        .unset("worker")
        .unset("current_step")
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS)
        .submit(again);
    let of = job.worker.unwrap_or_else(|| "nobody".into());
    let what = format!("the sweeper resets {}, which {of} had", job.task_id);
    Ok(tell(&records, what, reset).await?.is_some())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let engine = Plimsoll::open(&url)?.engine("gbe").await?;
    let records = engine.records();

    // Stored with the records: from now on every process that writes them keeps it.
    records.declare_index(JOBS, "timeout_at").await?;

    println!("Three jobs, and two workers:");
    for id in ["job_1", "job_2", "job_3"] {
        // What has ended stays until somebody deletes it.
        records.delete(key(id)).await?;
        assert!(submit(&records, id).await?);
    }
    assert!(!submit(&records, "job_1").await?, "it is there");
    let mut frozen = claim(&records, "job_1", "w1").await?.ok_or("it is free")?;
    assert!(claim(&records, "job_1", "w2").await?.is_none());
    let mut held = claim(&records, "job_2", "w2").await?.ok_or("it is free")?;
    assert!(frozen.step(&records).await?);
    for _ in 0..2 {
        assert!(held.step(&records).await?);
    }
    assert!(held.complete(&records).await?);

    println!("w1 freezes in job_1. Later the sweeper looks, and w2 takes job_3 at that moment:");
    engine.clock().sleep(STUCK * 2).await;
    let found = stuck(&records).await?;
    let third = claim(&records, "job_3", "w2").await?.ok_or("it is free")?;
    for record in &found {
        let is_stuck = record.key.as_str() != key("job_3");
        assert_eq!(reset(&engine, record).await?, is_stuck);
    }
    assert_eq!(found.len(), 2);
    let queued = engine.tasks().counts(Counts::default()).await?;
    let queued = queued.iter().map(|lane| lane.by_status[&Status::Pending]);
    assert_eq!(queued.sum::<u64>(), 1, "what was reset, and nothing else");

    println!("w1 wakes up, and has lost its job:");
    assert!(!frozen.step(&records).await?);
    println!(
        "Somebody has started w1 again meanwhile. Both have the same name, and one of them has the job:"
    );
    let first = claim(&records, "job_1", "w1").await?.ok_or("it is free")?;
    assert!(!frozen.step(&records).await?);
    assert!(!frozen.complete(&records).await?);
    for mut held in [first, third] {
        assert!(held.step(&records).await?);
        assert!(held.complete(&records).await?);
    }

    println!("What is stored in the end:");
    let mut all = records.scan(JOBS).stream();
    while let Some(record) = all.try_next().await? {
        let job: Job = from_record(&record)?;
        assert!(matches!(job.state, State::Completed));
        let worker = job.worker.unwrap_or_default();
        let result = job.result_ref.unwrap_or_default();
        println!(
            "  {}  by {worker}  {result}  (revision {})",
            record.key, record.revision
        );
    }
    assert!(stuck(&records).await?.is_empty());
    Ok(())
}
