//! What fails is tried again, later and later, as often as its policy says. A handler may say
//! better: after a certain time, or never.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use plimsoll::Plimsoll;
use plimsoll::task::{Backoff, RetryPolicy, Status};
use plimsoll::worker::{Context, Failure};

async fn call_a_flaky_service(context: Context) -> Result<(), Failure> {
    let attempt = context.attempt();
    println!("  flaky, attempt {attempt}");
    match attempt {
        1 => Err("connection refused")?,
        // The service said when it wants to be asked again.
        2 => Err(Failure::retry_after(
            Duration::from_millis(120),
            "too many requests",
        )),
        _ => Ok(()),
    }
}

async fn read_a_broken_file() -> Result<(), Failure> {
    println!("  broken, the only attempt");
    Err(Failure::fatal("this file will never be readable"))
}

async fn always_down(context: Context) -> Result<(), Failure> {
    println!("  down, attempt {}", context.attempt());
    Err("no route to host")?
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> plimsoll::Result<()> {
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("docs").await?;
    let tasks = engine.tasks();
    // By default: 10 s, 20 s, 40 s, with jitter. Here: 50 ms, 100 ms, and then it has failed.
    let impatient = RetryPolicy {
        max_attempts: 3,
        backoff: Backoff::Exponential {
            first: Duration::from_millis(50),
            factor: 2.0,
            cap: Duration::from_secs(1),
        },
        jitter_percent: 20,
        total: None,
    };
    let mut ids = Vec::new();
    for kind in ["flaky", "broken", "down"] {
        let task = tasks.task("calls", kind, "")?.retry(impatient.clone());
        ids.push(tasks.submit(task).await?.id);
    }
    // What happens when it has failed for good is a task like any other.
    let alert = tasks.task("calls", "alert", "down failed")?;
    let alert_id = alert.id;
    let last = tasks.task("calls", "down", "")?.max_attempts(1);
    ids.push(tasks.submit(last.on_failure(alert)).await?.id);
    ids.push(alert_id);

    let worker = engine
        .worker("w1")
        .queue("calls")
        .handle("flaky", call_a_flaky_service)
        .handle("broken", read_a_broken_file)
        .handle("down", always_down)
        .handle("alert", async || println!("  alert: somebody should look"))
        .build()?;
    let stopper = worker.stopper();
    let all_ended = async {
        let mut ended = Vec::new();
        for id in ids {
            // An alert exists only once there is something to alert of.
            ended.push(tasks.wait(id).await?);
        }
        stopper.drain();
        Ok::<_, plimsoll::Error>(ended)
    };
    let (summary, ended) = tokio::join!(worker.run(), all_ended);
    let ended = ended?;
    println!("retried {} times", summary?.retried);

    for task in &ended {
        let kind = &task.spec.lane.kind;
        println!("{kind}: {} after {} failures", task.status, task.failures);
        for error in &task.errors {
            println!("   {}: {}", error.at, error.message);
        }
    }
    let statuses: Vec<Status> = ended.iter().map(|task| task.status).collect();
    let (completed, failed) = (Status::Completed, Status::Failed);
    assert_eq!(statuses, [completed, failed, failed, failed, completed]);
    assert_eq!(ended.iter().map(|task| task.failures).sum::<u32>(), 7);
    Ok(())
}
