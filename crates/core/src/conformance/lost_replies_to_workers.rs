//! Lost replies to workers: claims, renewals, settles, amendments and log lines.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::conformance::lost_replies::{again, creation, everything, outcomes, twice};
use crate::conformance::observe::{field, lines};
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, fail, fail_with, holder, lost, name,
};
use crate::conformance::writes::{log, open, settle, submit};
use crate::error::{Lost, Result};
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::log::{Level, NewLine};
use crate::names::{GroupId, IdempotencyKey, Key};
use crate::store::{
    Amend, Claimed, Commit, Ending, FailRetry, Merge, Outcome, Renew, Renewal, StoreExt, Write,
};
use crate::task::{Holder, KeyLifetime, OnConflict, Priority, Progress, Status, Task};

cases!["lost_replies_to_workers":
    each_way_to_settle_answers_its_first_result_again,
    a_settle_is_answered_again_although_another_worker_has_claimed_since,
    a_settle_repeated_in_another_way_is_lost,
    a_settle_is_not_repeated_for_a_worker_that_never_held_the_task,
    a_repeated_settle_applies_nothing_else_of_its_commit,
    a_settle_with_other_writes_is_refused_when_repeated_without_an_id,
    a_repeated_settle_tells_the_submit_it_made_although_its_key_went_on,
    settles_of_several_tasks_are_repeated_together,
    a_repeated_claim_answers_the_same_tasks_and_leases_and_takes_nothing_more,
    a_repeated_claim_answers_only_what_it_still_holds,
    a_repeated_claim_by_ids_answers_all_that_the_first_one_did,
    a_repeated_claim_that_had_found_nothing_may_take_what_came_since,
    a_repeated_renewal_answers_the_same,
    a_repeated_amendment_with_a_commit_id_is_applied_once,
    log_lines_are_appended_once,
];

async fn each_way_to_settle_answers_its_first_result_again(w: World) -> Result<()> {
    let delay = Duration::from_secs(60);
    for (how, status, wait) in [
        (complete(), Status::Completed, None),
        (fail("again"), Status::Scheduled, Some(RETRY_DELAY)),
        (
            fail_with("later", FailRetry::After(delay)),
            Status::Scheduled,
            Some(delay),
        ),
        (fail_with("no", FailRetry::Fatal), Status::Failed, None),
        (Ending::Snooze { delay }, Status::Scheduled, Some(delay)),
        (
            Ending::Release { reason: None },
            Status::Pending,
            Some(Duration::ZERO),
        ),
        (Ending::Cancel { reason: None }, Status::Cancelled, None),
    ] {
        let (_, holder) = w.claimed(w.new_task("work")).await?;
        let runnable_at = wait.map(|wait| w.now().saturating_plus(wait));
        let settled = Outcome::Settled {
            status,
            runnable_at,
        };
        let commit = Commit::of(settle(&holder, how));
        let (first, second) = twice(&w, commit).await?;
        assert_eq!(first.outcomes, [settled]);
        assert_eq!(second.outcomes, first.outcomes);
        assert_eq!((first.repeated, second.repeated), (false, true));
    }
    Ok(())
}

async fn a_settle_is_answered_again_although_another_worker_has_claimed_since(
    w: World,
) -> Result<()> {
    let (task, holder) = w.claimed(w.new_task("work")).await?;
    let how = fail("once");
    let commit = Commit::of(settle(&holder, how));
    let first = w.store.commit_one(commit.clone()).await?;
    w.advance(RETRY_DELAY);
    w.sweep().await?;
    let taken = w.claim(&w.worker("second")?, 1).await?;
    assert_eq!(taken[0].id(), task.id());
    let second = again(&w, commit).await?;
    assert_eq!(second.outcomes, first.outcomes);
    assert!(second.repeated);
    assert_eq!(w.task(task.id()).await?.failures, 1);
    Ok(())
}

async fn a_settle_repeated_in_another_way_is_lost(w: World) -> Result<()> {
    let (_, held) = w.claimed(w.new_task("work")).await?;
    w.store.settle(held.clone(), complete()).await?;
    let (_, freed) = w.claimed(w.new_task("work")).await?;
    let release = Ending::Release { reason: None };
    w.store.settle(freed.clone(), release).await?;
    let before = everything(&w).await?;
    for how in [fail("late"), Ending::Cancel { reason: None }] {
        let status = Status::Completed;
        let why = lost(w.store.settle(held.clone(), how).await);
        assert_eq!(why, Lost::Finished { status });
    }
    let status = Status::Pending;
    let why = lost(w.store.settle(freed, complete()).await);
    assert_eq!(why, Lost::NotClaimed { status });
    assert_eq!(everything(&w).await?, before);
    Ok(())
}

async fn a_settle_is_not_repeated_for_a_worker_that_never_held_the_task(w: World) -> Result<()> {
    let (_, held) = w.claimed(w.new_task("work")).await?;
    w.store.settle(held.clone(), complete()).await?;
    let stranger = Holder {
        worker: w.worker("worker")?,
        ..held
    };
    let status = Status::Completed;
    let why = lost(w.store.settle(stranger, complete()).await);
    assert_eq!(why, Lost::Finished { status });
    Ok(())
}

async fn a_repeated_settle_applies_nothing_else_of_its_commit(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    w.store.write(open(NewGroup::new(id.clone()))).await?;
    let (_, holder) = w.claimed(w.new_task("work")).await?;
    let next = w
        .new_task("next")
        .key(IdempotencyKey::new("next")?)
        .group(id.clone());
    let add = Merge::new(Key::new("sum")?).add(name("n")?, 5).returning();
    let commit = Commit::of(settle(&holder, complete()))
        .write(Write::Merge(add))
        .write(submit(next.clone()))
        .write(Write::Arrive(id, 2))
        .id(w.ids.commit());
    let (first, second) = twice(&w, commit.clone()).await?;
    assert_eq!((first.repeated, second.repeated), (false, true));
    assert_eq!(second.outcomes, first.outcomes);
    assert_eq!(field(&w, "sum", "n").await?.as_deref(), Some("5"));
    let group = w.group("g").await?;
    assert_eq!((group.spawned, group.arrived, group.done), (1, 2, 2));
    w.store.cancel(next.id, None).await?;
    w.put("sum", [("n", "100")]).await?;
    assert!(again(&w, commit).await?.repeated);
    Ok(())
}

async fn a_settle_with_other_writes_is_refused_when_repeated_without_an_id(w: World) -> Result<()> {
    let (_, holder) = w.claimed(w.new_task("work")).await?;
    let add = Merge::new(Key::new("sum")?).add(name("n")?, 5);
    let commit = Commit::of(settle(&holder, complete())).write(Write::Merge(add));
    w.store.commit_one(commit.clone()).await?;
    let before = everything(&w).await?;
    let status = Status::Completed;
    let why = lost(w.store.commit_one(commit).await);
    assert_eq!(why, Lost::Finished { status });
    assert_eq!(everything(&w).await?, before);
    assert_eq!(field(&w, "sum", "n").await?.as_deref(), Some("5"));
    Ok(())
}

async fn a_repeated_settle_tells_the_submit_it_made_although_its_key_went_on(
    w: World,
) -> Result<()> {
    let (_, holder) = w.claimed(w.new_task("work")).await?;
    let key = IdempotencyKey::new("next")?;
    let keyed =
        || (w.new_task("next")).key_with(key.clone(), KeyLifetime::WhileActive, OnConflict::Attach);
    let next = keyed();
    let commit = Commit::of(settle(&holder, complete()))
        .write(submit(next.clone()))
        .id(w.ids.commit());
    let first = w.store.commit_one(commit.clone()).await?;
    assert_eq!(first.outcomes[1], creation(&next));
    w.store.cancel(next.id, None).await?;
    w.submit(keyed()).await?;
    let second = again(&w, commit).await?;
    assert_eq!(second.outcomes, first.outcomes);
    Ok(())
}

async fn settles_of_several_tasks_are_repeated_together(w: World) -> Result<()> {
    let mut commit = Commit::new();
    let mut holders = Vec::new();
    for _ in 0..3 {
        let (_, holder) = w.claimed(w.new_task("work")).await?;
        holders.push(holder.clone());
        commit = commit.write(settle(&holder, complete()));
    }
    let (first, second) = twice(&w, commit).await?;
    assert_eq!((first.repeated, second.repeated), (false, true));
    assert_eq!(second.outcomes, first.outcomes);
    let (fresh, holder) = w.claimed(w.new_task("fresh")).await?;
    let mixed = Commit::of(settle(&holder, complete())).write(settle(&holders[0], complete()));
    let before = everything(&w).await?;
    let status = Status::Completed;
    let why = lost(w.store.commit_one(mixed).await);
    assert_eq!(why, Lost::Finished { status });
    assert_eq!(everything(&w).await?, before);
    assert_eq!(w.status(fresh.id()).await?, Status::Claimed);
    Ok(())
}

async fn a_repeated_claim_answers_the_same_tasks_and_leases_and_takes_nothing_more(
    w: World,
) -> Result<()> {
    w.submit_many(5).await?;
    let claim = w.next(&w.worker("worker")?, 3);
    let first = w.store.claim(claim.clone()).await?;
    assert_eq!(first.tasks.len(), 3);
    w.submit(w.new_task("urgent").priority(Priority::HIGHEST))
        .await?;
    let before = everything(&w).await?;
    w.advance(Duration::from_secs(1));
    for _ in 0..2 {
        let second = w.second().await?.claim(claim.clone()).await?;
        assert_eq!(second, first);
    }
    assert_eq!(everything(&w).await?, before);
    Ok(())
}

async fn a_repeated_claim_answers_only_what_it_still_holds(w: World) -> Result<()> {
    w.submit_many(5).await?;
    let claim = w.next(&w.worker("worker")?, 3);
    let first = w.store.claim(claim.clone()).await?.tasks;
    let release = Ending::Release { reason: None };
    w.store.settle(holder(&first[0]), release).await?;
    w.store.settle(holder(&first[1]), complete()).await?;
    let before = everything(&w).await?;
    let second = w.store.claim(claim).await?.tasks;
    assert_eq!(second, first[2..]);
    assert_eq!(everything(&w).await?, before);
    Ok(())
}

async fn a_repeated_claim_by_ids_answers_all_that_the_first_one_did(w: World) -> Result<()> {
    let ids = w.submit_many(4).await?;
    let (worker, other) = (w.worker("worker")?, w.worker("other")?);
    w.claim_ids(&worker, &ids[1..2]).await?;
    w.claim_ids(&other, &ids[2..3]).await?;
    let missing = w.ids.task();
    let asked = [ids[3], ids[1], ids[2], missing, ids[0]];
    let claim = w.by_id(&worker, &asked, w.ids.request());
    let first: Claimed = w.store.claim(claim.clone()).await?;
    let taken: BTreeSet<TaskId> = first.tasks.iter().map(Task::id).collect();
    assert_eq!(taken, BTreeSet::from([ids[0], ids[1], ids[3]]));
    let refused: Vec<TaskId> = first.refused.iter().map(|(id, _)| *id).collect();
    assert_eq!(refused, [ids[2], missing]);
    let before = everything(&w).await?;
    let second = w.second().await?.claim(claim).await?;
    assert_eq!(second, first);
    assert_eq!(everything(&w).await?, before);
    Ok(())
}

async fn a_repeated_claim_that_had_found_nothing_may_take_what_came_since(w: World) -> Result<()> {
    let claim = w.next(&w.worker("worker")?, 2);
    let first = w.store.claim(claim.clone()).await?;
    assert_eq!((first.tasks, first.next_due), (vec![], None));
    let task = w.submit(w.new_task("work")).await?;
    let second = w.store.claim(claim.clone()).await?.tasks;
    assert_eq!(second.iter().map(Task::id).collect::<Vec<_>>(), [task.id()]);
    w.submit(w.new_task("more")).await?;
    assert_eq!(w.store.claim(claim).await?.tasks, second);
    Ok(())
}

async fn a_repeated_renewal_answers_the_same(w: World) -> Result<()> {
    let (_, held) = w.claimed(w.new_task("held")).await?;
    let (asked, stopping) = w.claimed(w.new_task("stopping")).await?;
    w.store.cancel(asked.id(), Some("enough".into())).await?;
    let (_, gone) = w.claimed(w.new_task("gone")).await?;
    w.store.settle(gone.clone(), complete()).await?;
    w.advance(Duration::from_secs(1));
    let renew = Renew {
        holders: vec![held, gone, stopping],
        lease: LEASE,
    };
    let first = w.store.renew(renew.clone()).await?;
    let until = w.now().saturating_plus(LEASE);
    assert_eq!(first[0], Renewal::Held { until });
    assert!(matches!(first[1], Renewal::Lost(_)));
    assert!(matches!(first[2], Renewal::CancelRequested { .. }));
    let before = everything(&w).await?;
    assert_eq!(w.second().await?.renew(renew).await?, first);
    assert_eq!(everything(&w).await?, before);
    Ok(())
}

async fn a_repeated_amendment_with_a_commit_id_is_applied_once(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let amend = |percent| {
        let progress = Progress {
            percent: Some(percent),
            ..Progress::default()
        };
        let amend = Amend {
            progress: Some(progress),
            ..Amend::new(held.clone())
        };
        Commit::of(Write::Amend(Box::new(amend))).id(w.ids.commit())
    };
    let early = amend(10);
    let (first, second) = twice(&w, early.clone()).await?;
    assert_eq!(second.outcomes, first.outcomes);
    w.store.commit_one(amend(90)).await?;
    assert!(again(&w, early).await?.repeated);
    let progress = w.task(task.id()).await?.progress.clone();
    assert_eq!(progress.and_then(|progress| progress.percent), Some(90));
    Ok(())
}

async fn log_lines_are_appended_once(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let line = |message| NewLine::new(w.ids.line(), Level::Info, message);
    let mut said = vec![line("one"), line("two")];
    let both = outcomes(&w, log(&held, &said)).await?;
    assert_eq!(both, [Outcome::Logged, Outcome::Logged]);
    said.push(line("three"));
    w.store.write(log(&held, &said)).await?;
    let lines = lines(&w, task.id()).await?;
    let said: Vec<&str> = lines
        .iter()
        .map(|line| line.line.message.as_str())
        .collect();
    assert_eq!(said, ["one", "two", "three"]);
    Ok(())
}
