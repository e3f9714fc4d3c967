//! Following the log of a task, and its steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::log::Level;
use plimsoll_core::{Result, TaskId};
use plimsoll_engine::tasks::StepEnd;

use crate::world::{LEASE, World, code};

/// What a follower has read so far, and the future that reads on until the end.
type Read = Arc<Mutex<Vec<String>>>;

fn follow(w: &World, id: TaskId, level: Level) -> (Read, BoxFuture<'static, Result<()>>) {
    let read = Read::default();
    let stream = w.tasks.follow_logs(id, level);
    let into = read.clone();
    let all = stream.try_for_each(move |line| {
        into.lock().unwrap().push(line.line.message);
        futures::future::ready(Ok(()))
    });
    (read, Box::pin(all))
}

/// Reads on until there is nothing to read, and until it may look again.
macro_rules! reads_on {
    ($w:ident, $future:expr) => {
        for _ in 0..5 {
            assert!(futures::poll!(&mut $future).is_pending());
            $w.settle().await;
            $w.clock.advance(Duration::from_millis(30));
        }
    };
}

#[tokio::test]
async fn lines_are_replayed_then_followed_until_the_task_has_ended() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    held.log(Level::Info, "before").await?;
    let (read, mut all) = follow(&w, held.task().id(), Level::Info);
    reads_on!(w, all);
    assert_eq!(*read.lock().unwrap(), ["before"]);
    held.log(Level::Debug, "too fine").await?;
    held.log(Level::Warn, "live").await?;
    reads_on!(w, all);
    assert_eq!(*read.lock().unwrap(), ["before", "live"]);
    held.log(Level::Info, "last").await?;
    held.complete("").await?;
    w.drive(all).await?;
    assert_eq!(*read.lock().unwrap(), ["before", "live", "last"]);
    Ok(())
}

#[tokio::test]
async fn a_follower_stays_over_attempts_and_reads_long_logs_whole() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let id = held.task().id();
    let (read, mut all) = follow(&w, id, Level::Debug);
    reads_on!(w, all);
    let log = held.job_log();
    for n in 0..1_500 {
        log.log(Level::Info, n.to_string()).await?;
    }
    log.flush().await?;
    held.release(None).await?;
    reads_on!(w, all);
    let again = w.tasks.claim(id, &w.worker("second"), LEASE).await?;
    again.log(Level::Info, "1500").await?;
    again.fail_fatal("no").await?;
    w.drive(all).await?;
    let expected: Vec<String> = (0..=1_500).map(|n| n.to_string()).collect();
    assert_eq!(*read.lock().unwrap(), expected);
    Ok(())
}

#[tokio::test]
async fn a_log_of_a_task_that_has_ended_is_read_and_ends() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let log = held.job_log();
    for n in 0..1_500 {
        log.log(Level::Info, n.to_string()).await?;
    }
    log.flush().await?;
    held.complete("").await?;
    let (read, all) = follow(&w, held.task().id(), Level::Info);
    w.soon(all).await?;
    let expected: Vec<String> = (0..1_500).map(|n| n.to_string()).collect();
    assert_eq!(*read.lock().unwrap(), expected);
    Ok(())
}

#[tokio::test]
async fn a_task_that_ends_between_two_reads_leaves_no_line_unread() -> Result<()> {
    for method in [Method::Tasks, Method::Logs] {
        let w = World::new();
        let held = w.held().await?;
        let other = w.other_client().hold(held.holder().clone());
        // Whatever is read first is read before the end, the other after it.
        let ended = Arc::new(AtomicBool::new(false));
        w.spy.before(move |called| {
            let (other, ended) = (other.clone(), ended.clone());
            Box::pin(async move {
                if called == method && !ended.swap(true, Ordering::SeqCst) {
                    other.log(Level::Info, "last").await.unwrap();
                    other.complete("").await.unwrap();
                }
            })
        });
        let (read, all) = follow(&w, held.task().id(), Level::Info);
        w.soon(all).await?;
        assert_eq!(*read.lock().unwrap(), ["last"], "{method}");
    }
    Ok(())
}

#[tokio::test]
async fn a_task_that_is_not_there_is_told_and_one_that_goes_ends_the_log() -> Result<()> {
    let w = World::new();
    let (_, nobody) = follow(&w, TaskId::from_u128(7), Level::Info);
    assert_eq!(code(w.soon(nobody).await), "task_not_found");
    let id = w.submitted().await?;
    let (_, mut all) = follow(&w, id, Level::Info);
    reads_on!(w, all);
    w.tasks.cancel(id, None).await?;
    w.tasks.delete(id).await?;
    w.drive(all).await
}

#[tokio::test]
async fn a_follower_outlasts_a_store_that_is_away() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let (read, mut all) = follow(&w, held.task().id(), Level::Info);
    reads_on!(w, all);
    let other = w.other_client().hold(held.holder().clone());
    for _ in 0..20 {
        w.plan.next(Method::Logs, Fault::ErrorBefore);
        w.plan.next(Method::Tasks, Fault::ErrorBefore);
    }
    other.log(Level::Info, "while away").await?;
    other.complete("").await?;
    w.drive(all).await?;
    assert_eq!(*read.lock().unwrap(), ["while away"]);
    Ok(())
}

#[tokio::test]
async fn a_follower_waits_for_hints_and_asks_once_a_second_without() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let (_, mut all) = follow(&w, held.task().id(), Level::Info);
    reads_on!(w, all);
    let before = w.spy.calls(Method::Logs);
    reads_on!(w, all);
    assert_eq!(w.spy.calls(Method::Logs), before);
    w.clock.advance(Duration::from_secs(1));
    reads_on!(w, all);
    assert_eq!(w.spy.calls(Method::Logs), before + 1);
    Ok(())
}

#[tokio::test]
async fn a_follower_of_a_busy_log_looks_ten_times_a_second_and_not_at_the_task() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let other = w.other_client().hold(held.holder().clone());
    let (read, mut all) = follow(&w, held.task().id(), Level::Info);
    reads_on!(w, all);
    let (looks, tasks) = (w.spy.calls(Method::Logs), w.spy.calls(Method::Tasks));
    for n in 0..200 {
        other.log(Level::Info, n.to_string()).await?;
        assert!(futures::poll!(&mut all).is_pending());
        w.settle().await;
        w.clock.advance(Duration::from_millis(5));
    }
    let looks = w.spy.calls(Method::Logs) - looks;
    // Each time there was something to read, once more to find out that it was all.
    assert!((8..=22).contains(&looks), "{looks} looks");
    assert!(w.spy.calls(Method::Tasks) - tasks <= 11);
    other.complete("").await?;
    w.drive(all).await?;
    assert_eq!(read.lock().unwrap().len(), 200);
    Ok(())
}

#[tokio::test]
async fn steps_are_those_of_each_attempt_as_they_were_reported_last() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let id = held.task().id();
    let log = held.job_log();
    let first = log.step("one", "cat")?.start().await?;
    log.step("two", "dog")?.start().await?;
    first.end(StepEnd::exit(3)).await?;
    log.flush().await?;
    held.release(None).await?;
    let again = w.tasks.claim(id, &w.worker("second"), LEASE).await?;
    let log = again.job_log();
    log.step("one", "bird")?.start().await?;
    log.flush().await?;
    let steps = w.tasks.steps(id).await?;
    let found: Vec<_> = (steps.iter())
        .map(|step| (step.step_id.as_str(), step.kind.as_str(), step.success))
        .collect();
    let failed = ("one", "cat", Some(false));
    assert_eq!(found, [failed, ("two", "dog", None), ("one", "bird", None)]);
    let cut_off: Vec<bool> = steps.iter().map(|step| step.cut_off).collect();
    assert_eq!(cut_off, [false, true, false]);
    assert_eq!(w.tasks.steps(TaskId::from_u128(9)).await?, []);
    Ok(())
}
