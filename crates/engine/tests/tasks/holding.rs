//! What the holder of a task can do.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::decorate::Method;
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Logs, Merge, Outcome, SubmitOutcome, Write};
use plimsoll_core::task::{FailureKind, Holder, Progress, Status};
use plimsoll_core::{Fence, Key, Name, Result, StoreExt};
use plimsoll_engine::tasks::{Hold, Settlement, attribute};

use crate::world::{LEASE, World, code};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn each_way_to_settle_leads_where_it_should() -> Result<()> {
    let w = World::new();
    let in_a_minute = Some(w.now().saturating_plus(MINUTE));
    let at = |status, runnable_at| Settlement {
        status,
        runnable_at,
    };
    let now = Some(w.now());
    let settled = [
        (
            w.held().await?.complete("r").await?,
            at(Status::Completed, None),
        ),
        (
            w.held().await?.complete_json(&1).await?,
            at(Status::Completed, None),
        ),
        (
            w.held().await?.fail_fatal("no").await?,
            at(Status::Failed, None),
        ),
        (
            w.held().await?.retry_after(MINUTE, "later").await?,
            at(Status::Scheduled, in_a_minute),
        ),
        (
            w.held().await?.snooze(MINUTE).await?,
            at(Status::Scheduled, in_a_minute),
        ),
        (
            w.held().await?.release(None).await?,
            at(Status::Pending, now),
        ),
        (
            w.held().await?.cancel(None).await?,
            at(Status::Cancelled, None),
        ),
    ];
    for (told, expected) in settled {
        assert_eq!(told, expected);
    }
    let failing = w.held().await?;
    assert_eq!(failing.fail("once").await?.status, Status::Scheduled);
    let task = w.stored(failing.task().id()).await?;
    assert_eq!((task.failures, task.errors.len()), (1, 1));
    assert_eq!(
        (task.errors[0].kind, task.errors[0].message.as_str()),
        (FailureKind::Error, "once")
    );
    Ok(())
}

#[tokio::test]
async fn what_a_snooze_and_a_release_leave_is_not_counted() -> Result<()> {
    let w = World::new();
    for settle in ["snooze", "release"] {
        let held = w.held().await?;
        match settle {
            "snooze" => held.snooze(MINUTE).await?,
            _ => held.release(Some("drain".into())).await?,
        };
        let task = w.stored(held.task().id()).await?;
        assert_eq!((task.attempts, task.failures), (1, 0), "{settle}");
    }
    Ok(())
}

#[tokio::test]
async fn a_completion_and_what_follows_from_it_are_one_commit() -> Result<()> {
    let w = World::new();
    let key = Key::new("done")?;
    let count = || Write::Merge(Merge::new(key.clone()).add(Name::new("n").unwrap(), 1));
    let held = w.held().await?;
    let next = w.task("next");
    let writes = vec![count(), Write::Submit(Box::new(next.clone()))];
    let result = Some(Bytes::from("r"));
    let (settlement, outcomes) = held.complete_with(result.clone(), writes).await?;
    assert_eq!(settlement.status, Status::Completed);
    assert!(matches!(outcomes[0], Outcome::Written { .. }));
    let Outcome::Submitted(told) = &outcomes[1] else {
        panic!("{outcomes:?}");
    };
    assert_eq!((told.id, told.outcome), (next.id, SubmitOutcome::Created));
    assert_eq!(w.stored(held.task().id()).await?.result, result);

    // One bad write: neither the completion nor the rest happens.
    let held = w.held().await?;
    let mut taken = w.task("other");
    taken.id = next.id;
    let writes = vec![count(), Write::Submit(Box::new(taken))];
    assert_eq!(code(held.complete_with(None, writes).await), "id_taken");
    let job = Write::Delete(Key::new("plimsoll.jobs.import")?);
    let refused = held.complete_with(None, vec![count(), job]).await;
    assert_eq!(code(refused), "invalid");
    assert!(held.still_mine().await?);
    let record = w.bare.record(&key).await?.unwrap();
    assert_eq!(record.field("n").unwrap(), "1");
    held.complete_with(None, Vec::new()).await?;
    assert_eq!(w.stored(held.task().id()).await?.result, None);
    Ok(())
}

#[tokio::test]
async fn what_a_holder_says_is_stored_with_the_task() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let id = held.task().id();
    let progress = Progress {
        percent: Some(40),
        message: Some("encoding".into()),
        current_step: Some(2),
        step_count: Some(5),
    };
    held.progress(progress.clone()).await?;
    held.checkpoint("half").await?;
    held.stage(Name::new("processing")?).await?;
    let attributes = [
        attribute::PLAN,
        attribute::OUTPUT_FILES,
        attribute::PARAMS_REF,
        attribute::RESULT_REF,
    ];
    held.set_attributes(fields(attributes.map(|name| (name, "v")))?)
        .await?;
    let names = vec![Name::new(attribute::PLAN)?];
    held.unset_attributes(names).await?;
    let task = w.stored(id).await?;
    assert_eq!(task.progress, Some(progress));
    assert_eq!(task.stage, Some(Name::new("processing")?));
    let left: Vec<&str> = task.attributes.keys().map(Name::as_str).collect();
    assert_eq!(left, ["output_files", "params_ref", "result_ref"]);
    held.retry_after(Duration::ZERO, "again").await?;
    let again = w.tasks.claim(id, &w.worker("w2"), LEASE).await?;
    assert_eq!(again.task().checkpoint, Some("half".into()));
    assert_eq!(again.task().progress, None, "a new attempt begins anew");
    assert_eq!(again.task().attributes.len(), 3);
    let too_far = Progress {
        percent: Some(101),
        ..Progress::default()
    };
    assert_eq!(code(again.progress(too_far).await), "invalid");
    Ok(())
}

#[tokio::test]
async fn log_lines_are_appended_once() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    held.log(Level::Info, "first").await?;
    let line = NewLine::new(w.ids.line(), Level::Warn, "second");
    held.log_lines(vec![line.clone()]).await?;
    held.log_lines(vec![line]).await?;
    let logs = Logs {
        task: held.task().id(),
        level: Level::Debug,
        cursor: None,
        limit: 10,
    };
    let lines = w.tasks.logs(logs).await?.lines;
    let texts: Vec<&str> = lines.iter().map(|l| l.line.message.as_str()).collect();
    assert_eq!(texts, ["first", "second"]);
    Ok(())
}

#[tokio::test]
async fn a_renewal_prolongs_and_tells_to_stop() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    w.clock.advance(LEASE / 2);
    let renewed = held.renew(LEASE).await?;
    assert_eq!(renewed.until, w.now().saturating_plus(LEASE));
    assert!(!renewed.asked_to_stop);
    let id = held.task().id();
    w.tasks.cancel(id, Some("typo".into())).await?;
    let renewed = held.renew(LEASE).await?;
    assert_eq!(
        (renewed.asked_to_stop, renewed.reason.as_deref()),
        (true, Some("typo"))
    );
    held.cancel(None).await?;
    assert_eq!(w.stored(id).await?.reason.as_deref(), Some("typo"));
    Ok(())
}

#[tokio::test]
async fn a_success_wins_over_a_request_to_stop() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    w.tasks.cancel(held.task().id(), None).await?;
    assert_eq!(held.complete("r").await?.status, Status::Completed);
    let held = w.held().await?;
    w.tasks.cancel(held.task().id(), None).await?;
    assert_eq!(held.snooze(MINUTE).await?.status, Status::Cancelled);
    Ok(())
}

/// Every verb of this hold is refused with this code, and nothing changes.
async fn assert_lost(w: &World, hold: &Hold, expected: &str) -> Result<()> {
    let before = w.everything().await?;
    let answers = [
        hold.complete("").await.map(drop),
        hold.complete_json(&1).await.map(drop),
        hold.complete_with(None, vec![Write::Submit(Box::new(w.task("x")))])
            .await
            .map(drop),
        hold.fail("e").await.map(drop),
        hold.fail_fatal("e").await.map(drop),
        hold.retry_after(MINUTE, "e").await.map(drop),
        hold.snooze(MINUTE).await.map(drop),
        hold.cancel(None).await.map(drop),
        hold.renew(LEASE).await.map(drop),
        hold.progress(Progress::default()).await,
        hold.checkpoint("c").await,
        hold.stage(Name::new("s")?).await,
        hold.set_attributes(fields([("a", "b")])?).await,
        hold.unset_attributes(vec![Name::new("a")?]).await,
        hold.log(Level::Info, "l").await,
    ];
    for (n, answer) in answers.into_iter().enumerate() {
        let error = answer.unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            ("lease_lost", expected),
            "{n}"
        );
    }
    assert!(!hold.still_mine().await?);
    assert_eq!(w.everything().await?, before);
    Ok(())
}

#[tokio::test]
async fn a_lost_lease_refuses_every_verb_and_says_why() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let id = held.task().id();
    assert!(held.still_mine().await?);
    held.release(None).await?;
    assert_lost(&w, &held, "not_claimed").await?;
    let second = w.tasks.claim(id, &w.worker("second"), LEASE).await?;
    assert_lost(&w, &held, "wrong_worker").await?;
    let old = w.tasks.hold(Holder {
        fence: Fence::new(1),
        ..second.holder().clone()
    });
    assert_lost(&w, &old, "superseded").await?;
    second.fail_fatal("no").await?;
    assert_lost(&w, &held, "task_failed").await?;
    w.tasks.delete(id).await?;
    assert_lost(&w, &held, "task_not_found").await?;
    Ok(())
}

#[tokio::test]
async fn a_stored_holder_goes_on_elsewhere() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let stored = serde_json::to_string(held.holder()).unwrap();
    let holder: Holder = serde_json::from_str(&stored).unwrap();
    let elsewhere = w.other_client().hold(holder);
    elsewhere.complete("r").await?;
    assert_eq!(w.status(held.task().id()).await?, Status::Completed);
    assert_eq!(held.complete("r").await?.status, Status::Completed);
    Ok(())
}

#[tokio::test]
async fn asking_whether_it_is_still_mine_is_one_read() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let before = w.spy.all_calls();
    held.still_mine().await?;
    assert_eq!(w.spy.all_calls() - before, 1);
    assert_eq!(w.spy.calls(Method::Tasks), 1);
    Ok(())
}
