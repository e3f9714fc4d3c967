//! A long task says how far it is, and leaves a checkpoint. Its worker is killed halfway; the next
//! one goes on from there instead of beginning anew.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use plimsoll::task::{Backoff, Progress, RetryPolicy};
use plimsoll::worker::{Context, Failure, WorkerBuilder};
use plimsoll::{Engine, Plimsoll, TaskId};

const PARTS: u32 = 6;
/// Whoever has done this part does no more: its worker dies.
const DIES_AFTER: u32 = 3;

async fn transcode(context: Context) -> Result<(), Failure> {
    let done = match context.last_checkpoint() {
        Some(bytes) => std::str::from_utf8(bytes)?.parse::<u32>()?,
        None => 0,
    };
    println!("  attempt {} begins after part {done}", context.attempt());
    for part in done + 1..=PARTS {
        context
            .engine()
            .clock()
            .sleep(Duration::from_millis(30))
            .await;
        context.checkpoint(part.to_string()).await?;
        let progress = Progress {
            percent: u8::try_from(part * 100 / PARTS).ok(),
            message: Some(format!("part {part} is transcoded")),
            current_step: Some(part),
            step_count: Some(PARTS),
        };
        context.progress(progress).await?;
        if part == DIES_AFTER {
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}

fn worker(engine: &Engine, name: &str) -> WorkerBuilder {
    let worker = engine.worker(name).queue("media");
    // A short lease, so that this example does not have to wait for long.
    let worker = worker.settings(|settings| settings.lease = Duration::from_millis(500));
    worker.handle("transcode", transcode)
}

/// Shows how far the task is until it has come to this part.
async fn watch(engine: &Engine, id: TaskId, part: u32) -> plimsoll::Result<()> {
    let mut seen = 0;
    while seen < part {
        engine.clock().sleep(Duration::from_millis(10)).await;
        let Some(progress) = engine.tasks().get(id).await?.progress.clone() else {
            continue;
        };
        let step = progress.current_step.unwrap_or_default();
        if step > seen {
            let percent = progress.percent.unwrap_or_default();
            let message = progress.message.unwrap_or_default();
            println!("  {percent:>3} % {message}");
            seen = step;
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> plimsoll::Result<()> {
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("docs").await?;
    let tasks = engine.tasks();
    let soon = RetryPolicy {
        backoff: Backoff::Fixed(Duration::from_millis(10)),
        ..RetryPolicy::default()
    };
    let task = tasks.task("media", "transcode", "clip-7")?.retry(soon);
    let id = tasks.submit(task).await?.id;

    println!("The first worker dies after three parts:");
    let first = worker(&engine, "first").build()?;
    tokio::select! {
        summary = first.run() => drop(summary?),
        // When this ends, the worker is dropped where it stands, which is what a crash is.
        watched = watch(&engine, id, DIES_AFTER) => watched?,
    }

    println!("The second takes over when the lease of the first has ended:");
    let second = worker(&engine, "second").build()?;
    let stopper = second.stopper();
    let ended = async {
        let ended = tasks.wait(id).await;
        stopper.drain();
        ended
    };
    let (summary, task) = tokio::join!(second.run(), ended);
    let (summary, task) = (summary?, task?);
    println!("{}: {}", task.status, task.errors[0].message);
    assert_eq!(summary.completed, 1);
    assert!(task.attempts > 1);
    assert_eq!(task.checkpoint.as_deref(), Some(&b"6"[..]));
    Ok(())
}
