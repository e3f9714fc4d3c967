//! One verb for many tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::{Counts, Selector, TaskFilter};
use plimsoll_core::task::{Priority, Status};
use plimsoll_core::{IdempotencyKey, Name, Prefix, Result, TaskId};
use plimsoll_engine::tasks::{Bulk, Report, Verb};

use crate::world::{LEASE, World, code, lane};

fn of_status(w: &World, status: Status) -> Bulk {
    w.tasks
        .bulk(Selector::Lane(lane(), status), TaskFilter::default())
}

async fn submit(w: &World, count: usize) -> Vec<TaskId> {
    let tasks: Vec<_> = (0..count).map(|n| w.task(&n.to_string())).collect();
    let ids = tasks.iter().map(|task| task.id).collect();
    for answer in w.tasks.submit_all(tasks).await {
        answer.unwrap();
    }
    ids
}

async fn count(w: &World, status: Status) -> Result<u64> {
    let counts = w.other_client().counts(Counts::default()).await?;
    let mine = counts.into_iter().find(|counts| counts.lane == lane());
    Ok(mine
        .and_then(|counts| counts.by_status.get(&status).copied())
        .unwrap_or(0))
}

fn report(matched: u64, changed: u64, already: u64) -> Report {
    Report {
        matched,
        changed,
        already,
        refused: Vec::new(),
    }
}

#[tokio::test]
async fn a_dry_run_counts_and_changes_nothing() -> Result<()> {
    let w = World::new();
    let ids = submit(&w, 450).await;
    let before = w.everything().await?;
    let dry = of_status(&w, Status::Pending).dry_run().await?;
    assert_eq!(dry.matched, 450);
    assert_eq!(dry.sample, ids[..100]);
    assert_eq!(w.everything().await?, before);
    Ok(())
}

#[tokio::test]
async fn each_verb_reaches_every_page() -> Result<()> {
    let w = World::new();
    submit(&w, 450).await;
    let pending = of_status(&w, Status::Pending);
    let cancelled = of_status(&w, Status::Cancelled);
    let urgent = Priority::HIGHEST;
    assert_eq!(pending.prioritise(urgent).await?, report(450, 450, 0));
    assert_eq!(pending.prioritise(urgent).await?, report(450, 0, 450));
    let reason = Some("r".into());
    assert_eq!(pending.cancel(reason).await?, report(450, 450, 0));
    assert_eq!(cancelled.retry(false).await?, report(450, 450, 0));
    assert_eq!(pending.cancel(None).await?, report(450, 450, 0));
    assert_eq!(cancelled.delete().await?, report(450, 450, 0));
    assert_eq!(w.tasks.counts(Counts::default()).await?, []);
    Ok(())
}

#[tokio::test]
async fn filters_and_other_selectors_choose() -> Result<()> {
    let w = World::new();
    let owner = Name::new("ada")?;
    let (label, blue) = (Name::new("colour")?, Name::new("blue")?);
    let plain = w.task("a").owner(owner.clone());
    let labelled = w.task("b").owner(owner.clone());
    let labelled = labelled.label(label.clone(), blue.clone());
    let keyed = w.task("c").key(IdempotencyKey::new("order-1")?);
    for task in [&plain, &labelled, &keyed] {
        w.tasks.submit(task.clone()).await?;
    }
    let filter = TaskFilter {
        labels: [(label, blue)].into(),
        ..TaskFilter::default()
    };
    let bulk = w.tasks.bulk(Selector::Owner(owner), filter);
    assert_eq!(bulk.cancel(None).await?, report(1, 1, 0));
    assert_eq!(w.status(labelled.id).await?, Status::Cancelled);
    let by_key = Selector::Key(Prefix::new("order-")?);
    let bulk = w.tasks.bulk(by_key, TaskFilter::default());
    assert_eq!(bulk.cancel(None).await?, report(1, 1, 0));
    assert_eq!(w.status(keyed.id).await?, Status::Cancelled);
    assert_eq!(w.status(plain.id).await?, Status::Pending);
    Ok(())
}

#[tokio::test]
async fn one_that_is_refused_does_not_stop_the_rest() -> Result<()> {
    let w = World::new();
    let mut capped = Vec::new();
    for n in 0..150 {
        let attempts = if n % 3 == 0 { 4 } else { 1 };
        let held = w.hold(w.task("x").max_attempts(attempts)).await?;
        if attempts == 1 {
            held.fail("e").await?;
            capped.push(held.task().id());
        } else {
            held.fail_fatal("e").await?;
        }
    }
    let failed = of_status(&w, Status::Failed);
    let report = failed.retry(false).await?;
    assert_eq!((report.matched, report.changed), (150, 50));
    assert_eq!(report.refusals(), 100);
    let refused: Vec<TaskId> = report.refused.iter().map(|(id, _)| *id).collect();
    assert_eq!(refused, capped);
    let why = &report.refused[0].1;
    assert_eq!(why.code(), "max_attempts_reached");
    assert_eq!(failed.retry(true).await?.changed, 100);
    Ok(())
}

#[tokio::test]
async fn no_more_than_a_hundred_refusals_are_named() -> Result<()> {
    let w = World::new();
    submit(&w, 250).await;
    let report = of_status(&w, Status::Pending).delete().await?;
    assert_eq!((report.refusals(), report.refused.len()), (250, 100));
    assert_eq!(report.refused[0].1.code(), "not_finished");
    Ok(())
}

#[tokio::test]
async fn it_ends_although_others_go_on_submitting_and_takes_only_what_was_there() -> Result<()> {
    let w = World::new();
    submit(&w, 500).await;
    let (clock, other, submitted) = (
        w.clock.clone(),
        w.other_client(),
        Arc::new(AtomicU64::new(0)),
    );
    let counter = submitted.clone();
    // More comes in with every page than a page holds.
    w.spy.before(move |method| {
        let (clock, other, counter) = (clock.clone(), other.clone(), counter.clone());
        Box::pin(async move {
            // A bulk that never ends is to fail, not to hang.
            if method == Method::List && counter.load(Ordering::Relaxed) < 30_000 {
                clock.advance(Duration::from_millis(1));
                let new = (0..300).map(|_| other.task("q", "k", "new").unwrap());
                let new: Vec<_> = new.collect();
                other.submit_all(new).await;
                counter.fetch_add(300, Ordering::Relaxed);
            }
        })
    });
    let done = of_status(&w, Status::Pending).cancel(None).await?;
    assert_eq!(done, report(500, 500, 0));
    assert_eq!(count(&w, Status::Cancelled).await?, 500);
    assert_eq!(
        count(&w, Status::Pending).await?,
        submitted.load(Ordering::Relaxed)
    );
    Ok(())
}

#[tokio::test]
async fn a_task_that_does_not_match_any_more_is_left_alone() -> Result<()> {
    let w = World::new();
    let mut failed = Vec::new();
    for _ in 0..3 {
        let held = w.held().await?;
        held.fail_fatal("e").await?;
        failed.push(held.task().id());
    }
    // Between the list and the retry, somebody makes one run again and a worker takes it.
    let (other, rescued) = (w.other_client(), failed[1]);
    w.spy.before(move |method| {
        let other = other.clone();
        Box::pin(async move {
            if method == Method::Commit && other.retry(rescued).await.is_ok() {
                let worker = other.worker("quick").unwrap();
                other.claim(rescued, &worker, LEASE).await.ok();
            }
        })
    });
    let done = of_status(&w, Status::Failed).retry(false).await?;
    assert_eq!(done, report(2, 2, 0));
    let task = w.stored(rescued).await?;
    assert_eq!(task.status, Status::Claimed, "not taken from its worker");
    Ok(())
}

#[tokio::test]
async fn a_task_that_changes_and_still_matches_is_acted_on() -> Result<()> {
    let w = World::new();
    let id = submit(&w, 1).await[0];
    let (other, times) = (w.other_client(), Arc::new(AtomicU64::new(0)));
    w.spy.before(move |method| {
        let (other, times) = (other.clone(), times.clone());
        Box::pin(async move {
            if method == Method::Commit && times.fetch_add(1, Ordering::Relaxed) == 0 {
                other.prioritise(id, Priority::LOWEST).await.unwrap();
            }
        })
    });
    let done = of_status(&w, Status::Pending).cancel(None).await?;
    assert_eq!(done, report(1, 1, 0));
    assert_eq!(w.status(id).await?, Status::Cancelled);
    Ok(())
}

#[tokio::test]
async fn a_task_that_never_holds_still_is_given_up() -> Result<()> {
    let w = World::new();
    let ids = submit(&w, 2).await;
    let (other, id, times) = (w.other_client(), ids[0], Arc::new(AtomicU64::new(0)));
    w.spy.before(move |method| {
        let (other, times) = (other.clone(), times.clone());
        Box::pin(async move {
            if method == Method::Commit {
                let n = times.fetch_add(1, Ordering::Relaxed);
                let priority = Priority::new((n % 2) as u8).unwrap();
                other.prioritise(id, priority).await.unwrap();
            }
        })
    });
    let done = of_status(&w, Status::Pending).cancel(None).await?;
    assert_eq!((done.matched, done.changed), (2, 1));
    assert_eq!(done.refused[0].0, ids[0]);
    assert_eq!(done.refused[0].1.code(), "contended");
    assert_eq!(w.status(ids[1]).await?, Status::Cancelled);
    Ok(())
}

#[tokio::test]
async fn a_store_that_stays_away_is_told() -> Result<()> {
    let w = World::new().hasty();
    submit(&w, 3).await;
    for _ in 0..5 {
        w.plan.next(Method::Commit, Fault::ErrorBefore);
    }
    let done = of_status(&w, Status::Pending).cancel(None).await?;
    assert_eq!((done.matched, done.changed, done.refusals()), (3, 0, 3));
    assert_eq!(done.refused[0].1.code(), "unavailable");
    for _ in 0..5 {
        w.plan.next(Method::List, Fault::ErrorBefore);
    }
    let bulk = of_status(&w, Status::Pending);
    assert_eq!(code(bulk.cancel(None).await), "unavailable");
    assert_eq!(bulk.cancel(None).await?.changed, 3);
    Ok(())
}

#[tokio::test]
async fn what_was_done_before_it_broke_off_is_reported() -> Result<()> {
    let w = World::new().hasty();
    submit(&w, 450).await;
    let (plan, times) = (w.plan.clone(), Arc::new(AtomicU64::new(0)));
    // The store goes away behind the first page.
    w.spy.before(move |method| {
        let (plan, times) = (plan.clone(), times.clone());
        Box::pin(async move {
            if method == Method::Commit && times.fetch_add(1, Ordering::Relaxed) == 0 {
                for _ in 0..5 {
                    plan.next(Method::List, Fault::ErrorBefore);
                }
            }
        })
    });
    let (verb, mut done) = (Verb::Cancel { reason: None }, Report::default());
    let broken = of_status(&w, Status::Pending).act(&verb, &mut done).await;
    assert_eq!(code(broken), "unavailable");
    assert!((1..450).contains(&done.changed), "{done:?}");
    assert_eq!(count(&w, Status::Cancelled).await?, done.changed);
    of_status(&w, Status::Pending).act(&verb, &mut done).await?;
    assert_eq!(done, report(450, 450, 0));
    Ok(())
}
