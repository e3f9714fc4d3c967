//! Lost replies to those who submit and steer tasks and groups.

use std::time::Duration;

use crate::conformance::lost_replies::{again, creation, once_by_id, outcomes, twice};
use crate::conformance::world::{LEASE, World, complete, holder, lost};
use crate::conformance::writes::{expire, open, retry, submit};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::names::{GroupId, IdempotencyKey};
use crate::store::{Cancel, Commit, Outcome, StoreExt, SubmitOutcome, Submitted, Write};
use crate::task::{KeyLifetime, NewTask, OnConflict, Priority, Status};

cases!["lost_replies_to_clients":
    a_repeated_submit_is_created_once,
    a_repeated_submit_is_created_whatever_became_of_the_task,
    a_repeated_submit_onto_a_taken_key_answers_its_holder_again,
    a_repeated_submit_does_not_conflict_with_itself,
    a_repeated_submit_is_counted_once_in_its_group,
    a_bulk_submit_repeated_after_half_of_it_submits_the_other_half,
    an_arrival_counts_once,
    a_repeated_retry_does_not_revoke_a_claim_made_since,
    a_repeated_reopening_does_not_open_another_generation,
    cancel_prioritise_promote_and_expire_say_that_it_is_so_already,
    opening_and_deleting_a_group_are_repeated_without_effect,
    sealing_a_group_is_repeated_without_effect,
    a_deleted_task_is_deleted_once,
];

fn submitted(id: TaskId, outcome: SubmitOutcome) -> Outcome {
    Outcome::Submitted(Submitted { id, outcome })
}

async fn a_repeated_submit_is_created_once(w: World) -> Result<()> {
    let keyed = w.new_task("keyed").key(IdempotencyKey::new("key")?);
    let later = w.new_task("later").after(Duration::from_secs(60));
    for task in [w.new_task("plain"), keyed, later] {
        let both = outcomes(&w, submit(task.clone())).await?;
        assert_eq!(both, [creation(&task), creation(&task)]);
    }
    let both = once_by_id(&w, Commit::of(submit(w.new_task("with an id")))).await?;
    assert_eq!(both.outcomes.len(), 1);
    Ok(())
}

async fn a_repeated_submit_is_created_whatever_became_of_the_task(w: World) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let task = w
        .new_task("work")
        .key_with(key, KeyLifetime::WhileActive, OnConflict::Attach);
    let (_, held) = w.claimed(task.clone()).await?;
    let commit = Commit::of(submit(task.clone()));
    assert_eq!(again(&w, commit.clone()).await?.outcomes, [creation(&task)]);
    w.store.settle(held, complete()).await?;
    assert_eq!(again(&w, commit.clone()).await?.outcomes, [creation(&task)]);
    let next = NewTask {
        id: w.ids.task(),
        ..task.clone()
    };
    w.submit(next.clone()).await?;
    assert_eq!(again(&w, commit).await?.outcomes, [creation(&task)]);
    let found = w.by_key("key").await?.map(|task| task.id());
    assert_eq!(found, Some(next.id));
    Ok(())
}

async fn a_repeated_submit_onto_a_taken_key_answers_its_holder_again(w: World) -> Result<()> {
    let keyed =
        |payload| -> Result<NewTask> { Ok(w.new_task(payload).key(IdempotencyKey::new("key")?)) };
    let (first, held) = w.claimed(keyed("work")?).await?;
    let same = submitted(first.id(), SubmitOutcome::Existing);
    let both = outcomes(&w, submit(keyed("work")?)).await?;
    assert_eq!(both, [same.clone(), same]);
    let other = submitted(first.id(), SubmitOutcome::ExistingOtherPayload);
    let both = outcomes(&w, submit(keyed("other")?)).await?;
    assert_eq!(both, [other.clone(), other]);
    w.store.settle(held, complete()).await?;
    let finished = SubmitOutcome::ExistingFinished(Status::Completed);
    let finished = submitted(first.id(), finished);
    let both = outcomes(&w, submit(keyed("work")?)).await?;
    assert_eq!(both, [finished.clone(), finished]);
    Ok(())
}

async fn a_repeated_submit_does_not_conflict_with_itself(w: World) -> Result<()> {
    for (key, on_conflict) in [
        ("reject", OnConflict::Reject),
        ("replace", OnConflict::ReplacePending),
        ("cancel", OnConflict::CancelAndReplace),
    ] {
        let key = IdempotencyKey::new(key)?;
        let keyed = |on_conflict| {
            (w.new_task("work")).key_with(key.clone(), KeyLifetime::Forever, on_conflict)
        };
        if on_conflict != OnConflict::Reject {
            w.submit(keyed(OnConflict::Attach)).await?;
        }
        let task = keyed(on_conflict);
        let both = outcomes(&w, submit(task.clone())).await?;
        assert_eq!(both, [creation(&task), creation(&task)]);
        assert_eq!(w.status(task.id).await?, Status::Pending);
    }
    let key = IdempotencyKey::new("held")?;
    let keyed =
        |on_conflict| (w.new_task("work")).key_with(key.clone(), KeyLifetime::Forever, on_conflict);
    w.claimed(keyed(OnConflict::Attach)).await?;
    let task = keyed(OnConflict::CancelAndReplace);
    let both = outcomes(&w, submit(task.clone())).await?;
    assert_eq!(both, [creation(&task), creation(&task)]);
    Ok(())
}

async fn a_repeated_submit_is_counted_once_in_its_group(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    let group = NewGroup::new(id.clone()).expecting(1);
    w.store.write(open(group)).await?;
    let member = w.new_task("member").group(id);
    let both = outcomes(&w, submit(member.clone())).await?;
    assert_eq!(both, [creation(&member), creation(&member)]);
    assert_eq!(w.group("g").await?.spawned, 1);
    w.store.cancel(member.id, None).await?;
    let repeated = again(&w, Commit::of(submit(member.clone()))).await?;
    assert_eq!(repeated.outcomes, [creation(&member)]);
    let group = w.group("g").await?;
    assert_eq!((group.spawned, group.done, group.cancelled), (1, 1, 1));
    Ok(())
}

async fn a_bulk_submit_repeated_after_half_of_it_submits_the_other_half(w: World) -> Result<()> {
    let tasks: Vec<NewTask> = (0..20).map(|_| w.new_task("work")).collect();
    let commits: Vec<Commit> = tasks
        .chunks(4)
        .map(|tasks| (tasks.iter().cloned().map(submit)).fold(Commit::new(), Commit::write))
        .collect();
    let expected: Vec<Vec<Outcome>> = (tasks.chunks(4))
        .map(|tasks| tasks.iter().map(creation).collect())
        .collect();
    let answers = w.store.commit(commits[..2].to_vec()).await;
    assert!(answers.iter().all(|answer| answer.is_ok()));
    for _ in 0..2 {
        let mut found = Vec::new();
        for answer in w.store.commit(commits.clone()).await {
            found.push(answer?.outcomes);
        }
        assert_eq!(found, expected);
        let history = w.history().await?;
        let changes = history.entries.iter().map(|entry| entry.changes.len());
        assert_eq!(changes.sum::<usize>(), 20, "one change for each task");
    }
    Ok(())
}

async fn an_arrival_counts_once(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    let then = w.new_task("then");
    let group = NewGroup::new(id.clone()).expecting(5).then(then.clone());
    w.store.write(open(group)).await?;
    once_by_id(&w, Commit::of(Write::Arrive(id.clone(), 2))).await?;
    assert_eq!(w.group("g").await?.arrived, 2);
    once_by_id(&w, Commit::of(Write::Arrive(id, 3))).await?;
    let group = w.group("g").await?;
    assert_eq!((group.arrived, group.done), (5, 5));
    assert!(group.drained_at.is_some());
    assert_eq!(w.status(then.id).await?, Status::Pending);
    Ok(())
}

async fn a_repeated_retry_does_not_revoke_a_claim_made_since(w: World) -> Result<()> {
    let (task, stale) = w.claimed(w.new_task("work")).await?;
    let commit = Commit::of(retry(task.id(), false)).id(w.ids.commit());
    let (first, second) = twice(&w, commit.clone()).await?;
    assert_eq!(second.outcomes, first.outcomes);
    lost(w.store.settle(stale, complete()).await);
    let taken = w.claim(&w.worker("second")?, 1).await?;
    assert!(again(&w, commit.clone()).await?.repeated);
    w.store.settle(holder(&taken[0]), complete()).await?;
    assert!(again(&w, commit).await?.repeated);
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    Ok(())
}

async fn a_repeated_reopening_does_not_open_another_generation(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    w.store.write(open(NewGroup::new(id.clone()))).await?;
    w.store.write(Write::Seal(id.clone())).await?;
    assert!(w.group("g").await?.drained_at.is_some());
    let commit = Commit::of(Write::Reopen(id.clone())).id(w.ids.commit());
    w.store.commit_one(commit.clone()).await?;
    assert!(again(&w, commit.clone()).await?.repeated);
    w.store.write(Write::Seal(id)).await?;
    let group = w.group("g").await?;
    assert!(group.drained_at.is_some());
    assert!(again(&w, commit).await?.repeated);
    assert_eq!(w.group("g").await?, group);
    assert_eq!(group.generation, 1);
    Ok(())
}

async fn cancel_prioritise_promote_and_expire_say_that_it_is_so_already(w: World) -> Result<()> {
    let cancel = |task| {
        let reason = Some("enough".to_owned());
        Write::Cancel(Cancel { task, reason })
    };
    let waiting = w.submit(w.new_task("waiting")).await?.id();
    let (running, _) = w.claimed(w.new_task("running")).await?;
    let urgent = w.submit(w.new_task("urgent")).await?.id();
    let due = (w.submit(w.new_task("due").after(Duration::from_secs(1)))).await?;
    let (expired, _) = w.claimed(w.new_task("expired")).await?;
    w.advance(LEASE);
    let expire = expire(expired.id(), expired.fence);
    for (write, task, status) in [
        (cancel(waiting), waiting, Status::Cancelled),
        (cancel(running.id()), running.id(), Status::Claimed),
        (
            Write::Prioritise(urgent, Priority::HIGHEST),
            urgent,
            Status::Pending,
        ),
        (Write::Promote(due.id()), due.id(), Status::Pending),
        (expire, expired.id(), Status::Scheduled),
    ] {
        let [first, second] = outcomes(&w, write).await?;
        let revision = w.task(task).await?.revision;
        assert_eq!(first, Outcome::Changed { status, revision });
        assert_eq!(second, Outcome::Already { status });
    }
    assert_eq!(w.task(expired.id()).await?.failures, 1);
    Ok(())
}

async fn opening_and_deleting_a_group_are_repeated_without_effect(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    let group = NewGroup::new(id.clone()).then(w.new_task("then"));
    let [first, second] = outcomes(&w, open(group.clone())).await?;
    assert_eq!(first, second);
    w.submit(w.new_task("member").group(id.clone())).await?;
    again(&w, Commit::of(open(group))).await?;
    let both = outcomes(&w, Write::DeleteGroup(id)).await?;
    assert_eq!(
        both,
        [true, false].map(|existed| Outcome::Removed { existed })
    );
    Ok(())
}

async fn sealing_a_group_is_repeated_without_effect(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    let then = w.new_task("then");
    let group = NewGroup::new(id.clone()).then(then.clone());
    w.store.write(open(group)).await?;
    let member = w.submit(w.new_task("member").group(id.clone())).await?;
    let [first, second] = outcomes(&w, Write::Seal(id.clone())).await?;
    assert_eq!(first, second);
    w.store.cancel(member.id(), None).await?;
    assert!(w.group("g").await?.drained_at.is_some());
    again(&w, Commit::of(Write::Seal(id))).await?;
    assert_eq!(w.status(then.id).await?, Status::Pending);
    Ok(())
}

async fn a_deleted_task_is_deleted_once(w: World) -> Result<()> {
    let keyed = || -> Result<NewTask> { Ok(w.new_task("work").key(IdempotencyKey::new("key")?)) };
    let id = w.submit(keyed()?).await?.id();
    w.store.cancel(id, None).await?;
    let both = outcomes(&w, Write::DeleteTask(id)).await?;
    assert_eq!(
        both,
        [true, false].map(|existed| Outcome::Removed { existed })
    );
    let next = w.submit(keyed()?).await?;
    again(&w, Commit::of(Write::DeleteTask(id))).await?;
    let found = w.by_key("key").await?;
    assert_eq!(found, Some(next), "the key has gone on to another task");
    Ok(())
}
