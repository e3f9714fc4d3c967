//! Lost replies: a call repeated by a client that never saw its answer is answered as it was the
//! first time, and leaves everything as it was after one call.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::change::Change;
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, fail_with, holder, lost, name, text,
};
use crate::error::{Conflict, Lost, NotFound, Result};
use crate::group::{Group, NewGroup};
use crate::ids::TaskId;
use crate::limits::MEMORY;
use crate::log::{Level, Line, NewLine};
use crate::names::{GroupId, IdempotencyKey, Key, Prefix};
use crate::record::{Record, fields};
use crate::store::{
    Amend, Cancel, ChangePage, Claimed, Commit, Compact, Ending, Exchange, Expire, FailRetry,
    Groups, Guard, Log, Logs, Merge, Outcome, Put, Receipt, Renew, Renewal, Retry, Scan, Settle,
    StoreExt, SubmitOutcome, Submitted, Tasks, Write,
};
use crate::task::{Holder, KeyLifetime, NewTask, OnConflict, Priority, Progress, Status, Task};

cases!["lost_replies":
    a_repeated_submit_is_created_once,
    a_repeated_submit_is_created_whatever_became_of_the_task,
    a_repeated_submit_onto_a_taken_key_answers_its_holder_again,
    a_repeated_submit_does_not_conflict_with_itself,
    a_repeated_submit_is_counted_once_in_its_group,
    a_bulk_submit_repeated_after_half_of_it_submits_the_other_half,
    each_way_to_settle_answers_its_first_result_again,
    a_settle_is_answered_again_although_another_worker_has_claimed_since,
    a_settle_repeated_in_another_way_is_lost,
    a_settle_is_not_repeated_for_a_worker_that_never_held_the_task,
    a_repeated_settle_applies_nothing_else_of_its_commit,
    a_repeated_settle_tells_the_submit_it_made_although_its_key_went_on,
    settles_of_several_tasks_are_repeated_together,
    a_repeated_claim_answers_the_same_tasks_and_leases_and_takes_nothing_more,
    a_repeated_claim_answers_only_what_it_still_holds,
    a_repeated_claim_by_ids_answers_all_that_the_first_one_did,
    a_repeated_claim_that_had_found_nothing_may_take_what_came_since,
    a_repeated_renewal_answers_the_same,
    record_writes_with_a_commit_id_are_applied_once,
    record_writes_without_an_id_leave_the_same_fields_again,
    a_guarded_write_repeated_without_an_id_names_its_guard,
    an_increment_counts_once_and_answers_its_own_sum,
    an_arrival_counts_once,
    a_repeated_retry_does_not_revoke_a_claim_made_since,
    a_repeated_reopening_does_not_open_another_generation,
    cancel_prioritise_promote_and_expire_say_that_it_is_so_already,
    the_expiry_of_a_record_is_noticed_once,
    opening_and_deleting_a_group_are_repeated_without_effect,
    sealing_a_group_is_repeated_without_effect,
    a_repeated_amendment_with_a_commit_id_is_applied_once,
    log_lines_are_appended_once,
    a_deleted_task_is_deleted_once,
    an_exchange_repeats_all_its_parts,
    a_commit_id_is_remembered_for_ten_minutes_whatever_happens,
    a_refused_commit_is_not_remembered,
];

/// Everything that the history leads to, and the history itself.
#[derive(Debug, PartialEq)]
struct Everything {
    history: ChangePage,
    records: Vec<Record>,
    tasks: Vec<Option<Task>>,
    groups: Vec<Option<Group>>,
    lines: Vec<Line>,
}

async fn everything(w: &World) -> Result<Everything> {
    let history = w.history().await?;
    let (mut tasks, mut groups) = (BTreeSet::new(), BTreeSet::new());
    for change in history.entries.iter().flat_map(|entry| &entry.changes) {
        match change {
            Change::Task(task) => drop(tasks.insert(task.id)),
            Change::Group { id, .. } => drop(groups.insert(id.clone())),
            Change::Put(_) | Change::Removed { .. } => {}
        }
    }
    let mut lines = Vec::new();
    for task in tasks.iter().copied() {
        let logs = Logs {
            task,
            level: Level::Debug,
            cursor: None,
            limit: 1_000,
        };
        lines.extend(w.store.logs(logs).await?.lines);
    }
    let tasks = Tasks {
        ids: tasks.into_iter().collect(),
    };
    let groups = Groups {
        ids: groups.into_iter().collect(),
    };
    Ok(Everything {
        history,
        records: w.store.scan(Scan::new(Prefix::any(), 1_000)).await?.rows,
        tasks: w.store.tasks(tasks).await?,
        groups: w.store.groups(groups).await?,
        lines,
    })
}

/// Makes a commit, then makes it again as another connection would a moment later, and checks
/// that the second time nothing happened. Answers both receipts.
async fn twice(w: &World, commit: Commit) -> Result<(Receipt, Receipt)> {
    let first = w.store.commit_one(commit.clone()).await?;
    let second = again(w, commit).await?;
    Ok((first, second))
}

/// Makes a commit that was made before, and checks that nothing happens.
async fn again(w: &World, commit: Commit) -> Result<Receipt> {
    let before = everything(w).await?;
    w.advance(Duration::from_secs(1));
    let receipt = w.second().await?.commit_one(commit).await?;
    assert_eq!(everything(w).await?, before, "the second time changed it");
    Ok(receipt)
}

/// Makes a commit with an id twice: the second receipt must be the first one, marked.
async fn once_by_id(w: &World, commit: Commit) -> Result<Receipt> {
    let (first, second) = twice(w, commit.id(w.ids.commit())).await?;
    assert!(!first.repeated);
    let repeated = Receipt {
        repeated: true,
        ..first.clone()
    };
    assert_eq!(second, repeated);
    Ok(first)
}

/// Makes a write twice, without an id, and answers both outcomes.
async fn outcomes(w: &World, write: Write) -> Result<[Outcome; 2]> {
    let (first, second) = twice(w, Commit::of(write)).await?;
    match (first.outcomes.as_slice(), second.outcomes.as_slice()) {
        ([first], [second]) => Ok([first.clone(), second.clone()]),
        other => panic!("one write has one outcome: {other:?}"),
    }
}

fn submit(task: &NewTask) -> Write {
    Write::Submit(Box::new(task.clone()))
}

fn submitted(id: TaskId, outcome: SubmitOutcome) -> Outcome {
    Outcome::Submitted(Submitted { id, outcome })
}

fn created(task: &NewTask) -> Outcome {
    submitted(task.id, SubmitOutcome::Created)
}

fn open(group: NewGroup) -> Write {
    Write::OpenGroup(Box::new(group))
}

fn retry(task: TaskId) -> Write {
    Write::Retry(Retry {
        task,
        force: false,
        delay: Duration::ZERO,
    })
}

async fn number(w: &World, key: &str, field: &str) -> Result<Option<String>> {
    let record = w.record(key).await?;
    Ok(record.and_then(|record| text(&record.fields, field)))
}

async fn a_repeated_submit_is_created_once(w: World) -> Result<()> {
    let keyed = w.new_task("keyed").key(IdempotencyKey::new("key")?);
    let later = w.new_task("later").after(Duration::from_secs(60));
    for task in [w.new_task("plain"), keyed, later] {
        let both = outcomes(&w, submit(&task)).await?;
        assert_eq!(both, [created(&task), created(&task)]);
    }
    let both = once_by_id(&w, Commit::of(submit(&w.new_task("with an id")))).await?;
    assert_eq!(both.outcomes.len(), 1);
    Ok(())
}

async fn a_repeated_submit_is_created_whatever_became_of_the_task(w: World) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let task = w
        .new_task("work")
        .key_with(key, KeyLifetime::WhileActive, OnConflict::Attach);
    let (_, held) = w.claimed(task.clone()).await?;
    let commit = Commit::of(submit(&task));
    assert_eq!(again(&w, commit.clone()).await?.outcomes, [created(&task)]);
    w.store.settle(held, complete()).await?;
    assert_eq!(again(&w, commit.clone()).await?.outcomes, [created(&task)]);
    let next = NewTask {
        id: w.ids.task(),
        ..task.clone()
    };
    w.submit(next.clone()).await?;
    assert_eq!(again(&w, commit).await?.outcomes, [created(&task)]);
    let found = w.by_key("key").await?.map(|task| task.id());
    assert_eq!(found, Some(next.id));
    Ok(())
}

async fn a_repeated_submit_onto_a_taken_key_answers_its_holder_again(w: World) -> Result<()> {
    let keyed =
        |payload| -> Result<NewTask> { Ok(w.new_task(payload).key(IdempotencyKey::new("key")?)) };
    let (first, held) = w.claimed(keyed("work")?).await?;
    let same = submitted(first.id(), SubmitOutcome::Existing);
    let both = outcomes(&w, submit(&keyed("work")?)).await?;
    assert_eq!(both, [same.clone(), same]);
    let other = submitted(first.id(), SubmitOutcome::ExistingOtherPayload);
    let both = outcomes(&w, submit(&keyed("other")?)).await?;
    assert_eq!(both, [other.clone(), other]);
    w.store.settle(held, complete()).await?;
    let finished = SubmitOutcome::ExistingFinished(Status::Completed);
    let finished = submitted(first.id(), finished);
    let both = outcomes(&w, submit(&keyed("work")?)).await?;
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
        let both = outcomes(&w, submit(&task)).await?;
        assert_eq!(both, [created(&task), created(&task)]);
        assert_eq!(w.status(task.id).await?, Status::Pending);
    }
    let key = IdempotencyKey::new("held")?;
    let keyed =
        |on_conflict| (w.new_task("work")).key_with(key.clone(), KeyLifetime::Forever, on_conflict);
    w.claimed(keyed(OnConflict::Attach)).await?;
    let task = keyed(OnConflict::CancelAndReplace);
    let both = outcomes(&w, submit(&task)).await?;
    assert_eq!(both, [created(&task), created(&task)]);
    Ok(())
}

async fn a_repeated_submit_is_counted_once_in_its_group(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    let group = NewGroup::new(id.clone()).expecting(1);
    w.store.write(open(group)).await?;
    let member = w.new_task("member").group(id);
    let both = outcomes(&w, submit(&member)).await?;
    assert_eq!(both, [created(&member), created(&member)]);
    assert_eq!(w.group("g").await?.spawned, 1);
    w.store.cancel(member.id, None).await?;
    let repeated = again(&w, Commit::of(submit(&member))).await?;
    assert_eq!(repeated.outcomes, [created(&member)]);
    let group = w.group("g").await?;
    assert_eq!((group.spawned, group.done, group.cancelled), (1, 1, 1));
    Ok(())
}

async fn a_bulk_submit_repeated_after_half_of_it_submits_the_other_half(w: World) -> Result<()> {
    let tasks: Vec<NewTask> = (0..20).map(|_| w.new_task("work")).collect();
    let commits: Vec<Commit> = tasks
        .chunks(4)
        .map(|tasks| (tasks.iter().map(submit)).fold(Commit::new(), Commit::write))
        .collect();
    let expected: Vec<Vec<Outcome>> = (tasks.chunks(4))
        .map(|tasks| tasks.iter().map(created).collect())
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
        let commit = Commit::of(Write::Settle(Settle { holder, how }));
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
    let commit = Commit::of(Write::Settle(Settle { holder, how }));
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
    let settle = Settle {
        holder,
        how: complete(),
    };
    let commit = Commit::of(Write::Settle(settle))
        .write(Write::Merge(add))
        .write(submit(&next))
        .write(Write::Arrive(id, 2));
    let (first, second) = twice(&w, commit.clone()).await?;
    assert_eq!((first.repeated, second.repeated), (false, true));
    assert_eq!(second.outcomes, first.outcomes);
    assert_eq!(number(&w, "sum", "n").await?.as_deref(), Some("5"));
    let group = w.group("g").await?;
    assert_eq!((group.spawned, group.arrived, group.done), (1, 2, 2));
    w.store.cancel(next.id, None).await?;
    w.put("sum", [("n", "100")]).await?;
    assert!(again(&w, commit).await?.repeated);
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
    let settle = Settle {
        holder,
        how: complete(),
    };
    let commit = Commit::of(Write::Settle(settle)).write(submit(&next));
    let first = w.store.commit_one(commit.clone()).await?;
    assert_eq!(first.outcomes[1], created(&next));
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
        let how = complete();
        commit = commit.write(Write::Settle(Settle { holder, how }));
    }
    let (first, second) = twice(&w, commit).await?;
    assert_eq!((first.repeated, second.repeated), (false, true));
    assert_eq!(second.outcomes, first.outcomes);
    let (fresh, holder) = w.claimed(w.new_task("fresh")).await?;
    let how = complete();
    let mixed = Commit::of(Write::Settle(Settle { holder, how })).write(Write::Settle(Settle {
        holder: holders[0].clone(),
        how: complete(),
    }));
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

/// A put, a merge, a touch and a delete of one record.
fn record_writes() -> Result<[Write; 4]> {
    let key = Key::new("key")?;
    let put = Put::new(key.clone(), fields([("a", "1"), ("b", "2")])?);
    let merge = Merge::new(key.clone())
        .set(fields([("c", "3")])?)
        .unset(name("a")?)
        .raise(name("n")?, 7);
    Ok([
        Write::Put(put.ttl(Duration::from_secs(60))),
        Write::Merge(merge),
        Write::Touch(key.clone(), Some(Duration::from_secs(90))),
        Write::Delete(key),
    ])
}

async fn record_writes_with_a_commit_id_are_applied_once(w: World) -> Result<()> {
    for write in record_writes()? {
        once_by_id(&w, Commit::of(write)).await?;
    }
    let both = once_by_id(&w, Commit::of(Write::Delete(Key::new("key")?))).await?;
    assert_eq!(both.outcomes, [Outcome::Removed { existed: false }]);
    Ok(())
}

async fn record_writes_without_an_id_leave_the_same_fields_again(w: World) -> Result<()> {
    let [put, merge, touch, delete] = record_writes()?;
    for write in [put, merge, touch] {
        w.store.write(write.clone()).await?;
        let first = w.record("key").await?;
        w.store.write(write.clone()).await?;
        let second = w.record("key").await?;
        let (Some(first), Some(second)) = (first, second) else {
            panic!("the record is gone after {write:?}");
        };
        assert!(second.revision >= first.revision);
        let revision = second.revision;
        assert_eq!(second, Record { revision, ..first }, "after {write:?}");
    }
    let both = outcomes(&w, delete).await?;
    assert_eq!(
        both,
        [true, false].map(|existed| Outcome::Removed { existed })
    );
    Ok(())
}

async fn a_guarded_write_repeated_without_an_id_names_its_guard(w: World) -> Result<()> {
    let record = w.put("key", [("n", "1")]).await?;
    let put = Put::new(record.key.clone(), fields([("n", "2")])?);
    let guard = Guard::RecordAt(record.key, record.revision);
    let commit = Commit::of(Write::Put(put)).guard(guard.clone());
    w.store.commit_one(commit.clone()).await?;
    let before = everything(&w).await?;
    let index = 0;
    let refused = conflict(w.store.commit_one(commit).await);
    assert_eq!(refused, Conflict::Guard { index, guard });
    assert_eq!(everything(&w).await?, before);
    Ok(())
}

async fn an_increment_counts_once_and_answers_its_own_sum(w: World) -> Result<()> {
    let add = |number| -> Result<Commit> {
        let merge = Merge::new(Key::new("sum")?).add(name("n")?, number);
        Ok(Commit::of(Write::Merge(merge.returning())).id(w.ids.commit()))
    };
    let commit = add(5)?;
    let (first, _) = twice(&w, commit.clone()).await?;
    assert_eq!(number(&w, "sum", "n").await?.as_deref(), Some("5"));
    w.store.commit_one(add(-2)?).await?;
    let repeated = Receipt {
        repeated: true,
        ..first.clone()
    };
    assert_eq!(again(&w, commit).await?, repeated);
    let Outcome::Written {
        record: Some(record),
        ..
    } = &first.outcomes[0]
    else {
        panic!("the record was asked for: {first:?}");
    };
    assert_eq!(text(&record.fields, "n").as_deref(), Some("5"));
    assert_eq!(number(&w, "sum", "n").await?.as_deref(), Some("3"));
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
    let commit = Commit::of(retry(task.id())).id(w.ids.commit());
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
    let expire = Write::Expire(Expire {
        task: expired.id(),
        fence: expired.fence,
        jitter: Default::default(),
    });
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

async fn the_expiry_of_a_record_is_noticed_once(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let put = Put::new(key.clone(), fields([("a", "1")])?);
    let ttl = Duration::from_secs(5);
    w.store.write(Write::Put(put.ttl(ttl))).await?;
    w.advance(ttl);
    let both = outcomes(&w, Write::ExpireRecord(key)).await?;
    assert_eq!(
        both,
        [true, false].map(|existed| Outcome::Removed { existed })
    );
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
    let mut log = Log {
        holder: held,
        lines: vec![line("one"), line("two")],
    };
    let both = outcomes(&w, Write::Log(log.clone())).await?;
    assert_eq!(both, [Outcome::Logged, Outcome::Logged]);
    log.lines.push(line("three"));
    w.store.write(Write::Log(log)).await?;
    let logs = Logs {
        task: task.id(),
        level: Level::Debug,
        cursor: None,
        limit: 10,
    };
    let lines = w.store.logs(logs).await?.lines;
    let said: Vec<&str> = lines
        .iter()
        .map(|line| line.line.message.as_str())
        .collect();
    assert_eq!(said, ["one", "two", "three"]);
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

async fn an_exchange_repeats_all_its_parts(w: World) -> Result<()> {
    w.submit_many(4).await?;
    let worker = w.worker("worker")?;
    let held = w.claim(&worker, 2).await?;
    let add = Merge::new(Key::new("sum")?).add(name("n")?, 1);
    let settle = Settle {
        holder: holder(&held[0]),
        how: complete(),
    };
    let next = w.new_task("next").priority(Priority::HIGHEST);
    let missing = w.ids.task();
    let exchange = Exchange {
        commits: vec![
            Commit::of(Write::Settle(settle)).write(Write::Merge(add)),
            Commit::of(submit(&next)),
            Commit::of(Write::Promote(missing)),
        ],
        renew: Some(Renew {
            holders: vec![holder(&held[1])],
            lease: LEASE * 2,
        }),
        claim: Some(w.next(&worker, 2)),
    };
    let first = w.store.exchange(exchange.clone()).await?;
    let before = everything(&w).await?;
    let second = w.second().await?.exchange(exchange).await?;
    assert_eq!(everything(&w).await?, before);
    assert_eq!(second.renewals, first.renewals);
    assert_eq!(second.claimed, first.claimed);
    for (second, first) in second.commits.iter().zip(&first.commits) {
        let outcomes = |answer: &Result<Receipt>| match answer {
            Ok(receipt) => Ok(receipt.outcomes.clone()),
            Err(error) => Err(error.clone()),
        };
        assert_eq!(outcomes(second), outcomes(first));
    }
    assert_eq!(first.commits[2], Err(NotFound::Task(missing).into()));
    let Some(Ok(claimed)) = first.claimed else {
        panic!("nothing was claimed: {first:?}");
    };
    assert_eq!(claimed.tasks.len(), 2);
    assert_eq!(claimed.tasks[0].id(), next.id);
    assert_eq!(number(&w, "sum", "n").await?.as_deref(), Some("1"));
    Ok(())
}

async fn a_commit_id_is_remembered_for_ten_minutes_whatever_happens(w: World) -> Result<()> {
    let add = Merge::new(Key::new("sum")?).add(name("n")?, 1);
    let (task, _) = w.claimed(w.new_task("work")).await?;
    let commit = Commit::of(Write::Merge(add))
        .write(retry(task.id()))
        .guard(Guard::RecordAbsent(Key::new("sum")?))
        .id(w.ids.commit());
    let first = w.store.commit_one(commit.clone()).await?;
    let repeated = Receipt {
        repeated: true,
        ..first
    };
    for _ in 0..20 {
        let write = Write::Merge(Merge::new(Key::new("sum")?).add(name("n")?, 1));
        w.write_with_id(write).await?;
    }
    w.store.cancel(task.id(), None).await?;
    w.store.write(Write::DeleteTask(task.id())).await?;
    w.store.write(Write::Delete(Key::new("sum")?)).await?;
    w.advance(MEMORY - Duration::from_secs(3));
    let compact = Compact {
        limit: 1_000,
        ..Compact::default()
    };
    assert_eq!(w.store.compact(compact.clone()).await?.remembered, 0);
    assert_eq!(again(&w, commit.clone()).await?, repeated);
    w.store.compact(compact).await?;
    assert_eq!(again(&w, commit).await?, repeated);
    assert_eq!(w.record("sum").await?, None);
    Ok(())
}

async fn a_refused_commit_is_not_remembered(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let put = Put::new(Key::new("done")?, fields([("a", "1")])?);
    let commit = Commit::of(Write::Put(put))
        .guard(Guard::RecordPresent(key))
        .id(w.ids.commit());
    conflict(w.store.commit_one(commit.clone()).await);
    conflict(w.store.commit_one(commit.clone()).await);
    w.put("key", [("a", "1")]).await?;
    let receipt = w.store.commit_one(commit.clone()).await?;
    assert!(!receipt.repeated);
    assert!(w.record("done").await?.is_some());
    assert!(again(&w, commit).await?.repeated);
    Ok(())
}
