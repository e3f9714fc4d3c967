//! A worker that is told to end by SIGTERM, as by an orchestrator, ends well: it takes nothing more,
//! gives back what it has not started, lets its handlers finish, and asks those to stop that take
//! too long. Nothing is left hidden behind a lease.

#![allow(clippy::print_stdout)]

use std::process::Command;
use std::time::Duration;

use plimsoll::Plimsoll;
use plimsoll::task::Status;
use plimsoll::worker::{Answer, Cause, Completion, Context, Failure, Json};

async fn work(context: Context, Json(millis): Json<u64>) -> Result<Answer, Failure> {
    println!("  a task of {millis} ms begins");
    if millis > 1_000 {
        println!("  kill -TERM {}", std::process::id());
        let pid = std::process::id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
    }
    let clock = context.engine().clock();
    tokio::select! {
        // What is done is done, also if it is asked to stop at that moment.
        biased;
        () = clock.sleep(Duration::from_millis(millis)) => {
            println!("  a task of {millis} ms ends");
            Ok(Answer::Complete(Completion::new()))
        }
        cause = context.cancellation() => {
            println!("  a task of {millis} ms is asked to stop: {cause:?}");
            assert_eq!(cause, Cause::Draining);
            // Somebody else should do it; nothing is counted against it.
            Ok(Answer::Release)
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("plimsoll.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let engine = Plimsoll::open(&url)?.engine("docs").await?;
    let tasks = engine.tasks();
    let mut ids = Vec::new();
    // A short one, one that takes far too long, and two more that have to wait for these.
    for millis in [100, 60_000, 1, 1] {
        let task = tasks.json("q", "work", &millis)?;
        ids.push(tasks.submit(task).await?.id);
    }

    let worker = engine
        .worker("w1")
        .queue("q")
        .handle("work", work)
        .concurrency(2)
        .settings(|settings| {
            // By default handlers have five minutes before they are asked to stop.
            settings.drain_soft = Duration::from_millis(300);
            settings.drain_hard = Duration::from_millis(300);
        })
        .build()?;
    println!("The worker runs until SIGTERM:");
    let summary = worker.run_until_signal().await?;
    println!(
        "It ended: {} completed, {} given back, {} cut off",
        summary.completed, summary.released, summary.cut
    );

    let mut statuses = Vec::new();
    for id in &ids {
        let task = tasks.get(*id).await?;
        statuses.push((task.status, task.failures));
    }
    println!("{statuses:?}");
    assert_eq!(statuses[0], (Status::Completed, 0));
    // The others are runnable at once, by anybody.
    assert_eq!(statuses[1..], [(Status::Pending, 0); 3]);
    // Nobody else comes for them here.
    for id in &ids[1..] {
        tasks.cancel(*id, None).await?;
    }
    // What the exit code of a service should say.
    assert!(summary.is_clean());
    Ok(())
}
