//! Handlers are tested in memory, on a clock that the test moves: hours of retries take no time. In
//! your project each of these functions would be a `#[tokio::test]`.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use plimsoll::testing::Kit;
use plimsoll::worker::{Answer, Cause, Completion, Context, Failure, Json, WorkerBuilder};

/// What is to be tested: greets a new user, and asks a week later how it was.
async fn welcome(context: Context, Json(name): Json<String>) -> Result<Completion, Failure> {
    if name == "unreachable" {
        return Err("the mail server is down")?;
    }
    let follow_up = context.engine().tasks().json("mail", "ask", &name)?;
    let week = Duration::from_secs(7 * 24 * 3_600);
    Ok(Completion::json(&format!("Dear {name}"))?.submit(follow_up.after(week)))
}

/// And this: watches something until it is told to stop.
async fn watch(context: Context) -> Answer {
    match context.cancellation().await {
        Cause::Cancelled { reason } => Answer::Cancel(reason),
        cause => Answer::Fail(format!("{cause:?}").into()),
    }
}

fn worker(kit: &Kit) -> WorkerBuilder {
    let worker = kit.worker("w1").queue("mail");
    worker.handle("welcome", welcome).handle("watch", watch)
}

async fn one_task_is_greeted_and_asked_a_week_later() -> plimsoll::Result<()> {
    let kit = Kit::new();
    let task = kit.tasks().json("mail", "welcome", "Ada")?;
    let task = kit.perform(worker(&kit), task).await;
    kit.assert_completed_with(task.id(), "Dear Ada");
    let ask = kit.assert_submitted("mail", "ask").with("Ada").times(1);
    kit.assert_due_in(ask.tasks()[0].id(), Duration::from_secs(604_800));
    Ok(())
}

async fn a_mail_server_that_stays_down_is_given_up_after_four_attempts() -> plimsoll::Result<()> {
    let kit = Kit::new();
    let task = kit.tasks().json("mail", "welcome", "unreachable")?;
    let id = kit.tasks().submit(task).await?.id;
    let summary = kit.drain_all(worker(&kit)).await;
    assert_eq!((summary.retried, summary.failed), (3, 1));
    let task = kit.assert_failed(id, "mail server is down");
    let took = task.finished_at.map(|at| at.since(task.spec.created_at));
    println!("    gave up after {took:?} of a clock that nobody waited for");
    kit.assert_not_submitted("mail", "ask");
    Ok(())
}

async fn watching_ends_when_it_is_cancelled() -> plimsoll::Result<()> {
    let kit = Kit::new();
    let id = kit
        .tasks()
        .submit(kit.tasks().task("mail", "watch", "")?)
        .await?
        .id;
    let _worker = kit.start(worker(&kit)).await;
    kit.pass(Duration::from_secs(3_600)).await;
    kit.assert_claimed(id);
    kit.tasks().cancel(id, Some("enough".into())).await?;
    kit.idle().await;
    assert_eq!(kit.assert_cancelled(id).reason.as_deref(), Some("enough"));
    Ok(())
}

async fn another_worker_takes_over_from_one_that_dies() -> plimsoll::Result<()> {
    let kit = Kit::new();
    let id = kit
        .tasks()
        .submit(kit.tasks().task("mail", "watch", "")?)
        .await?
        .id;
    kit.start(worker(&kit)).await.crash();
    let heir = kit.worker("w2").queue("mail").handle("watch", async || {});
    kit.drain_all(heir).await;
    assert_eq!(kit.assert_completed(id).attempts, 2);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> plimsoll::Result<()> {
    println!("One task is greeted and asked a week later");
    one_task_is_greeted_and_asked_a_week_later().await?;
    println!("A mail server that stays down is given up after four attempts");
    a_mail_server_that_stays_down_is_given_up_after_four_attempts().await?;
    println!("Watching ends when it is cancelled");
    watching_ends_when_it_is_cancelled().await?;
    println!("Another worker takes over from one that dies");
    another_worker_takes_over_from_one_that_dies().await?;
    println!("All passed");
    Ok(())
}
