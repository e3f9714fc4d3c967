//! The state of jobs in records: workers claim and work on them, one of them freezes, and a
//! sweeper finds what is stuck and lets another one have it. Each step is one commit that is guarded by
//! what it relies on, so that neither two workers nor a worker and a sweeper ever act on the same state.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use futures::TryStreamExt;
use plimsoll::record::Record;
use plimsoll::records::{Swap, Swapped, from_record};
use plimsoll::{Plimsoll, Records, Result};
use serde::{Deserialize, Serialize};

const JOBS: &str = "gbe.state.tasks.";
/// Minutes elsewhere. Nobody wants to wait for them here.
const STUCK: Duration = Duration::from_secs(1);
const STEP_TIMEOUT_MS: i64 = 60_000;

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

async fn submit(records: &Records, id: &str) -> Result<()> {
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
        timeout_at: None,
        error: None,
        params_ref: Some(format!("s3://letters/{id}")),
        result_ref: None,
    };
    records.typed().put(key(id), &job, None).await?;
    Ok(())
}

/// Sends it, and tells what became of it.
async fn tell(records: &Records, what: String, swap: Swap) -> Result<bool> {
    let swapped = records.swap(swap).await?;
    match &swapped {
        Swapped::Done(_) => println!("  {what}"),
        Swapped::Refused(guard) => println!("  {what}: refused, not true any more: {guard}"),
    }
    Ok(swapped.is_done())
}

/// The state, the worker and the times change together or not at all.
async fn claim(records: &Records, id: &str, worker: &str) -> Result<bool> {
    let now = now(records).await?;
    let claim = Swap::new(key(id))
        .when("state", "pending")
        .set("state", "claimed")
        .set("worker", worker)
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS);
    tell(records, format!("{worker} claims {id}"), claim).await
}

async fn step(records: &Records, id: &str, worker: &str) -> Result<bool> {
    let now = now(records).await?;
    let step = Swap::new(key(id))
        .when("worker", worker)
        .set("state", "running")
        .add("current_step", 1)
        .set("updated_at", now)
        .set("timeout_at", now + STEP_TIMEOUT_MS);
    tell(records, format!("{worker} takes a step of {id}"), step).await
}

async fn complete(records: &Records, id: &str, worker: &str) -> Result<bool> {
    let complete = Swap::new(key(id))
        .when("worker", worker)
        .when("state", "running")
        .set("state", "completed")
        .set("updated_at", now(records).await?)
        .unset("timeout_at")
        .set("result_ref", format!("s3://sent/{id}"));
    tell(records, format!("{worker} completes {id}"), complete).await
}

/// What has not ended and was not updated for long. However many others there are, none of them is
/// read: the index leads to what was not updated.
async fn stuck(records: &Records) -> Result<Vec<Record>> {
    let before = now(records).await? - STUCK.as_millis() as i64;
    let scan = records.scan(JOBS).range("updated_at", ..before);
    let scan = scan.ne("state", "completed").ne("state", "failed");
    let scan = scan.ne("state", "cancelled").max_results(1_000);
    scan.stream().try_collect().await
}

/// Makes it pending again, if nobody has touched it since the sweeper has read it.
async fn reset(records: &Records, found: &Record) -> Result<bool> {
    let job: Job = from_record(found)?;
    let reset = Swap::new(found.key.as_str())
        .when_at(found.revision)
        .set("state", "pending")
        .unset("worker")
        .unset("current_step")
        .unset("timeout_at")
        .set("updated_at", now(records).await?);
    let of = job.worker.unwrap_or_else(|| "nobody".into());
    let what = format!("the sweeper resets {}, which {of} had", job.task_id);
    tell(records, what, reset).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let engine = Plimsoll::open(&url)?.engine("gbe").await?;
    let records = engine.records();

    // Stored with the records: from now on every process that writes them keeps it.
    records.declare_index(JOBS, "updated_at").await?;

    println!("Three jobs, and two workers:");
    for id in ["job_1", "job_2", "job_3"] {
        submit(&records, id).await?;
    }
    assert!(claim(&records, "job_1", "w1").await?);
    assert!(!claim(&records, "job_1", "w2").await?);
    assert!(claim(&records, "job_2", "w2").await?);
    for (id, worker) in [("job_1", "w1"), ("job_2", "w2"), ("job_2", "w2")] {
        assert!(step(&records, id, worker).await?);
    }
    assert!(complete(&records, "job_2", "w2").await?);

    println!("w1 freezes in job_1. Later the sweeper looks, and w2 takes job_3 at that moment:");
    engine.clock().sleep(STUCK * 2).await;
    let found = stuck(&records).await?;
    assert!(claim(&records, "job_3", "w2").await?);
    for record in &found {
        let is_stuck = record.key.as_str() != key("job_3");
        assert_eq!(reset(&records, record).await?, is_stuck);
    }
    assert_eq!(found.len(), 2);

    println!("w1 wakes up, and has lost its job:");
    assert!(!step(&records, "job_1", "w1").await?);
    assert!(claim(&records, "job_1", "w2").await?);
    for id in ["job_1", "job_3"] {
        assert!(step(&records, id, "w2").await?);
        assert!(complete(&records, id, "w2").await?);
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
