//! What locks are for, twice: a job is processed by one process at a time, whoever started it, and its
//! work stops when the lock is lost; and a worker's name is registered by one process at a time.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use plimsoll::registry::{WorkerInfo, WorkerStatus};
use plimsoll::task::{Backoff, RetryPolicy, Status};
use plimsoll::worker::{Context, Failure};
use plimsoll::{Engine, Error, Plimsoll, Result};

/// A lease keeps other workers from this task. The lock also keeps away what is no worker: a
/// script, or an operator who repairs something by hand.
async fn process_job(context: Context) -> Result<(), Failure> {
    let (engine, id) = (context.engine(), context.task().id());
    let lock = engine.locks().lock(format!("job:{id}"));
    let guard = lock.ttl(Duration::from_secs(1)).try_acquire().await?;
    println!("  attempt {} has lock {}", context.attempt(), guard.name());
    let work = async {
        if context.attempt() == 1 {
            println!("  an operator takes the lock away, in the middle of it");
            engine.locks().break_lock(format!("job:{id}")).await?;
            // It would take an hour.
            engine.clock().sleep(Duration::from_secs(3_600)).await;
        }
        Ok::<(), Error>(())
    };
    match guard.run(work).await {
        Ok(done) => Ok(done?),
        Err(error) => {
            println!("  the work has stopped: {error}");
            Err(Failure::retry_after(Duration::ZERO, error.to_string()))
        }
    }
}

/// Runs the worker of this name, unless another process does.
async fn run_worker(engine: &Engine, name: &str) -> Result<()> {
    let lock = engine.locks().lock(format!("worker:{name}"));
    let registered = lock
        .owner(format!("process of {name}"))
        .try_acquire()
        .await?;
    let worker = engine
        .worker(name)
        .queue("media")
        .handle("transcode", process_job);
    let summary = registered.run(worker.build()?.run_until_empty()).await??;
    println!(
        "  it completed {}, and tried {} again",
        summary.completed, summary.retried
    );
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("media").await?;
    let tasks = engine.tasks();
    let task = tasks
        .task("media", "transcode", "cat.mp4")?
        .retry(RetryPolicy {
            backoff: Backoff::Fixed(Duration::from_millis(1)),
            ..RetryPolicy::default()
        });
    let id = tasks.submit(task).await?.id;

    println!("Worker w1 runs, and its name is its own:");
    let lives = async || engine.workers().get(&"w1".try_into()?).await;
    let before = lives().await?.len();
    let second = async {
        // The first one works by now.
        while lives().await?.len() == before {
            engine.clock().sleep(Duration::from_millis(10)).await;
        }
        let refused = run_worker(&engine, "w1").await;
        println!(
            "  a second w1 is refused: {}",
            refused
                .as_ref()
                .map_or_else(ToString::to_string, |()| String::new())
        );
        assert_eq!(
            refused.map_err(|error| error.code()),
            Err("lock_not_acquired")
        );
        Ok(())
    };
    let (first, second) = futures::join!(run_worker(&engine, "w1"), second);
    first.and(second)?;

    let lives = lives().await?;
    assert_eq!(lives.len(), before + 1, "the second was never registered");
    let offline = |life: &WorkerInfo| life.status == WorkerStatus::Offline;
    assert!(lives.iter().all(offline));
    assert_eq!(tasks.get(id).await?.status, Status::Completed);
    assert!(engine.locks().get(format!("job:{id}")).await?.is_none());
    println!("Its name is free again.");
    run_worker(&engine, "w1").await
}
