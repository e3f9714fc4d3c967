//! Many at once: whatever the order in which concurrent calls take effect, the totals are right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::change::{Change, Entry, GroupEvent, TaskEvent};
use crate::conformance::parallel;
use crate::conformance::world::{
    LEASE, World, complete, fail, fail_with, holder, lane, name, text,
};
use crate::error::{Conflict, Error, Lost, Result};
use crate::group::NewGroup;
use crate::ids::{Fence, Ids, Position, Revision, TaskId};
use crate::log::{Level, NewLine};
use crate::names::{GroupId, IdempotencyKey, Key, Prefix};
use crate::record::fields;
use crate::store::{
    Amend, Cancel, Changes, Commit, Counts, Ending, Expire, FailRetry, Get, Guard, List, Log,
    Merge, Outcome, Put, Receipt, Renew, Renewal, Retry, Scan, Selector, Settle, Start, StoreExt,
    SubmitOutcome, Submitted, Write,
};
use crate::task::{Holder, KeyLifetime, Lane, NewTask, OnConflict, Priority, Status, Task};

cases!["concurrency":
    of_two_submits_of_a_key_one_creates_and_both_answer_its_task,
    of_fifty_submits_of_a_key_one_creates_and_all_answer_its_task,
    each_of_a_thousand_tasks_is_claimed_exactly_once,
    claims_by_id_give_a_task_to_exactly_one_worker,
    concurrent_increments_add_up,
    every_compare_and_swap_counts_exactly_once,
    exactly_one_writer_finds_a_record_absent,
    commits_with_the_same_id_are_applied_once,
    a_read_of_many_keys_never_shows_half_a_commit,
    a_scan_shows_each_lasting_key_once_while_others_come_and_go,
    cancel_racing_complete_leaves_one_terminal_status,
    cancel_racing_claim_either_ends_the_task_or_flags_it,
    retry_racing_complete_and_claim_leaves_one_of_them_with_the_task,
    renewal_racing_expiry_either_keeps_the_lease_or_loses_it,
    sweeps_at_once_decide_everything_once,
    sealing_while_the_last_members_end_drains_once,
    two_hundred_members_settled_by_many_workers_drain_once,
    concurrent_commits_stay_whole_and_each_key_in_order,
    a_reader_that_tails_concurrent_writers_sees_every_entry_once_in_order if TotalOrder,
    fences_of_a_contended_task_grow_with_every_claim,
    a_key_is_not_free_while_the_task_that_was_to_be_replaced_still_runs,
    a_retried_replacement_waits_again_for_the_task_that_still_runs,
    everything_adds_up_after_a_random_history,
];

/// As many handles to the namespace, every other one as another process would have it.
async fn handles(w: &World, count: usize) -> Result<Vec<World>> {
    let mut handles = Vec::with_capacity(count);
    let mut second = w.clone();
    second.store = w.second().await?;
    let mut third = w.clone();
    third.store = w.second().await?;
    for n in 0..count {
        handles.push(match n % 4 {
            0 | 2 => w.clone(),
            1 => second.clone(),
            _ => third.clone(),
        });
    }
    Ok(handles)
}

/// Makes a commit, again and again while the store gives up against others: nothing was written.
async fn insist(w: &World, commit: Commit) -> Result<Receipt> {
    for _ in 0..10_000 {
        match w.store.commit_one(commit.clone()).await {
            Err(Error::Conflict(conflict)) if matches!(*conflict, Conflict::Contended { .. }) => {
                tokio::task::yield_now().await;
            }
            answer => return answer,
        }
    }
    panic!("the store never stops giving up on {commit:?}");
}

/// Makes one write like [`insist`].
async fn insist_on(w: &World, write: Write) -> Result<Outcome> {
    let receipt = insist(w, Commit::of(write)).await?;
    let outcome = receipt.outcomes.into_iter().next();
    outcome.ok_or_else(|| Error::Corrupt("a receipt without an outcome".into()))
}

async fn settle(w: &World, holder: Holder, how: Ending) -> Result<Outcome> {
    insist_on(w, Write::Settle(Settle { holder, how })).await
}

/// Gathers what parallel calls answered.
fn all<T>(answers: Vec<Result<T>>) -> Result<Vec<T>> {
    answers.into_iter().collect()
}

/// Submits as many tasks in few commits and answers their ids.
async fn submit_in_bulk(w: &World, count: usize) -> Result<Vec<TaskId>> {
    let tasks: Vec<NewTask> = (0..count).map(|_| w.new_task("work")).collect();
    for tasks in tasks.chunks(100) {
        let submits = tasks.iter().cloned().map(Box::new).map(Write::Submit);
        insist(w, submits.fold(Commit::new(), Commit::write)).await?;
    }
    Ok(tasks.iter().map(|task| task.id).collect())
}

fn changes(entries: &[Entry]) -> impl Iterator<Item = &Change> {
    entries.iter().flat_map(|entry| &entry.changes)
}

/// How often each task had this event.
fn times(entries: &[Entry], event: TaskEvent) -> BTreeMap<TaskId, usize> {
    let mut times = BTreeMap::new();
    for change in changes(entries) {
        if let Change::Task(task) = change
            && task.event == event
        {
            *times.entry(task.id).or_default() += 1;
        }
    }
    times
}

async fn submitted_at_once(worlds: &[World], key: &str) -> Result<Vec<Submitted>> {
    let key = IdempotencyKey::new(key)?;
    let calls = worlds.iter().cloned().map(|w| {
        let task = w.new_task("work").key(key.clone());
        async move {
            match insist_on(&w, Write::Submit(Box::new(task))).await? {
                Outcome::Submitted(submitted) => Ok(submitted),
                other => panic!("a submit answered {other:?}"),
            }
        }
    });
    all(parallel(calls).await)
}

fn assert_one_created(submitted: &[Submitted]) -> TaskId {
    let created: Vec<&Submitted> = (submitted.iter())
        .filter(|one| one.outcome == SubmitOutcome::Created)
        .collect();
    assert_eq!(created.len(), 1, "{submitted:?}");
    for one in submitted {
        assert_eq!(one.id, created[0].id);
        assert!(
            matches!(
                one.outcome,
                SubmitOutcome::Created | SubmitOutcome::Existing
            ),
            "{one:?}"
        );
    }
    created[0].id
}

async fn of_two_submits_of_a_key_one_creates_and_both_answer_its_task(w: World) -> Result<()> {
    let mut ids = BTreeSet::new();
    let worlds = handles(&w, 2).await?;
    for n in 0..20 {
        let key = format!("key-{n}");
        let submitted = submitted_at_once(&worlds, &key).await?;
        let id = assert_one_created(&submitted);
        assert_eq!(w.by_key(&key).await?.map(|task| task.id()), Some(id));
        ids.insert(id);
    }
    let submits = times(&w.history().await?.entries, TaskEvent::Submitted);
    assert_eq!(submits, ids.into_iter().map(|id| (id, 1)).collect());
    Ok(())
}

async fn of_fifty_submits_of_a_key_one_creates_and_all_answer_its_task(w: World) -> Result<()> {
    let submitted = submitted_at_once(&handles(&w, 50).await?, "key").await?;
    let id = assert_one_created(&submitted);
    let submits = times(&w.history().await?.entries, TaskEvent::Submitted);
    assert_eq!(submits, BTreeMap::from([(id, 1)]));
    Ok(())
}

async fn each_of_a_thousand_tasks_is_claimed_exactly_once(w: World) -> Result<()> {
    let ids = submit_in_bulk(&w, 1_000).await?;
    let claimers = (handles(&w, 100).await?.into_iter().enumerate()).map(|(n, w)| async move {
        let worker = w.worker(&format!("worker-{n}"))?;
        let mut taken = Vec::new();
        loop {
            let limit = 1 + n % 16;
            let tasks = w.claim(&worker, limit).await?;
            assert!(tasks.len() <= limit, "more than asked");
            if tasks.is_empty() {
                return Ok((worker, taken));
            }
            taken.extend(tasks);
            tokio::task::yield_now().await;
        }
    });
    let mut taken = BTreeMap::new();
    let mut claims = all(parallel(claimers).await)?;
    // A claim among many may come back empty while others hold what is left for a moment.
    let last = w.worker("last")?;
    loop {
        let tasks = w.claim(&last, 100).await?;
        if tasks.is_empty() {
            break;
        }
        claims.push((last.clone(), tasks));
    }
    for (worker, tasks) in claims {
        for task in tasks {
            assert_eq!(holder(&task).worker, worker);
            assert_eq!((task.fence, task.attempts), (Fence::new(1), 1));
            let before = taken.insert(task.id(), task);
            assert_eq!(before, None, "claimed twice");
        }
    }
    assert_eq!(taken.keys().copied().collect::<Vec<_>>(), ids);
    let counts = w.store.counts(Counts::default()).await?;
    assert_eq!(counts.len(), 1);
    assert_eq!(
        counts[0].by_status,
        BTreeMap::from([(Status::Claimed, 1_000)])
    );
    let mut list = List::new(Selector::Lane(lane(), Status::Claimed), 1_000);
    let mut stored = 0;
    loop {
        let page = w.store.list(list.clone()).await?;
        for task in &page.rows {
            assert_eq!(Some(task), taken.get(&task.id()));
        }
        stored += page.rows.len();
        match page.next {
            Some(next) => list.cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(stored, 1_000);
    Ok(())
}

async fn claims_by_id_give_a_task_to_exactly_one_worker(w: World) -> Result<()> {
    let ids = submit_in_bulk(&w, 20).await?;
    let claimers = (handles(&w, 8).await?.into_iter().enumerate()).map(|(n, w)| {
        let mut ids = ids.clone();
        ids.rotate_left(n * 3 % 20);
        async move {
            let worker = w.worker(&format!("worker-{n}"))?;
            let claimed = w.claim_ids(&worker, &ids).await?;
            assert_eq!(claimed.tasks.len() + claimed.refused.len(), ids.len());
            Ok((worker, claimed))
        }
    });
    let claims = all(parallel(claimers).await)?;
    let mut holders = BTreeMap::new();
    for (worker, claimed) in &claims {
        for task in &claimed.tasks {
            let before = holders.insert(task.id(), worker.clone());
            assert_eq!(before, None, "{} was given to two", task.id());
        }
    }
    assert_eq!(holders.len(), 20);
    for (id, error) in claims.iter().flat_map(|(_, claimed)| &claimed.refused) {
        let until = w.now().saturating_plus(LEASE);
        let taken = Conflict::AlreadyClaimed {
            task: *id,
            holder: holders[id].clone(),
            until,
        };
        assert_eq!(*error, taken.into());
    }
    Ok(())
}

async fn concurrent_increments_add_up(w: World) -> Result<()> {
    let adders = (handles(&w, 16).await?.into_iter().enumerate()).map(|(n, w)| async move {
        let mut sums = Vec::new();
        for _ in 0..10 {
            let add = Merge::new(Key::new("sum")?)
                .add(name("all")?, 1)
                .add(name(&format!("of-{}", n % 4))?, 2);
            let commit = Commit::of(Write::Merge(add.returning())).id(w.ids.commit());
            let receipt = insist(&w, commit).await?;
            match &receipt.outcomes[0] {
                Outcome::Written {
                    record: Some(record),
                    ..
                } => sums.extend(text(&record.fields, "all")),
                other => panic!("the record was asked for: {other:?}"),
            }
        }
        Ok(sums)
    });
    let sums: BTreeSet<String> = (all(parallel(adders).await)?.into_iter().flatten()).collect();
    let expected: BTreeSet<String> = (1..=160).map(|n| n.to_string()).collect();
    assert_eq!(sums, expected, "each increment saw a sum of its own");
    let record = w.record("sum").await?;
    let expected = [
        ("all", "160"),
        ("of-0", "80"),
        ("of-1", "80"),
        ("of-2", "80"),
        ("of-3", "80"),
    ];
    assert_eq!(record.map(|record| record.fields), Some(fields(expected)?));
    Ok(())
}

async fn every_compare_and_swap_counts_exactly_once(w: World) -> Result<()> {
    w.put("count", [("n", "0")]).await?;
    let swappers = (handles(&w, 8).await?.into_iter()).map(|w| async move {
        let mut reached = Vec::new();
        while reached.len() < 5 {
            let Some(record) = w.record("count").await? else {
                panic!("the record is gone");
            };
            let next = text(&record.fields, "n").and_then(|n| n.parse::<u64>().ok());
            let next = next.map_or(0, |n| n + 1);
            let put = Put::new(record.key.clone(), fields([("n", next.to_string())])?);
            let commit =
                Commit::of(Write::Put(put)).guard(Guard::RecordAt(record.key, record.revision));
            match insist(&w, commit).await {
                Ok(_) => reached.push(next),
                Err(Error::Conflict(conflict)) => {
                    assert!(matches!(*conflict, Conflict::Guard { index: 0, .. }));
                    tokio::task::yield_now().await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(reached)
    });
    let mut reached: Vec<u64> = (all(parallel(swappers).await)?.into_iter().flatten()).collect();
    reached.sort_unstable();
    assert_eq!(reached, (1..=40).collect::<Vec<_>>());
    let record = w.record("count").await?;
    assert_eq!(record.map(|r| r.fields), Some(fields([("n", "40")])?));
    Ok(())
}

async fn exactly_one_writer_finds_a_record_absent(w: World) -> Result<()> {
    let worlds = handles(&w, 8).await?;
    for n in 0..20 {
        let key = Key::new(format!("leader-{n}"))?;
        let contenders = (worlds.iter().cloned().enumerate()).map(|(who, w)| {
            let put =
                fields([("who", who.to_string())]).map(|fields| Put::new(key.clone(), fields));
            let guard = Guard::RecordAbsent(key.clone());
            async move {
                let commit = Commit::of(Write::Put(put?)).guard(guard.clone());
                match insist(&w, commit).await {
                    Ok(_) => Ok(Some(who.to_string())),
                    Err(Error::Conflict(conflict)) => {
                        assert_eq!(*conflict, Conflict::Guard { index: 0, guard });
                        Ok(None)
                    }
                    Err(error) => Err(error),
                }
            }
        });
        let winners: Vec<String> =
            (all(parallel(contenders).await)?.into_iter().flatten()).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        let record = w.store.record(&key).await?;
        let stored = record.and_then(|record| text(&record.fields, "who"));
        assert_eq!(stored.as_ref(), Some(&winners[0]));
    }
    Ok(())
}

async fn commits_with_the_same_id_are_applied_once(w: World) -> Result<()> {
    let group = GroupId::new("g")?;
    let new = Box::new(NewGroup::new(group.clone()));
    w.store.write(Write::OpenGroup(new)).await?;
    let add = Merge::new(Key::new("sum")?).add(name("n")?, 1);
    let commit = Commit::of(Write::Merge(add.returning()))
        .write(Write::Arrive(group, 1))
        .id(w.ids.commit());
    let calls = (handles(&w, 20).await?.into_iter()).map(|w| {
        let commit = commit.clone();
        async move { insist(&w, commit).await }
    });
    let receipts = all(parallel(calls).await)?;
    let fresh: Vec<&Receipt> = receipts.iter().filter(|one| !one.repeated).collect();
    assert_eq!(fresh.len(), 1, "{receipts:?}");
    for receipt in &receipts {
        let expected = Receipt {
            repeated: receipt.repeated,
            ..fresh[0].clone()
        };
        assert_eq!(*receipt, expected);
    }
    let record = w.record("sum").await?;
    assert_eq!(record.map(|r| r.fields), Some(fields([("n", "1")])?));
    assert_eq!(w.group("g").await?.arrived, 1);
    Ok(())
}

async fn a_read_of_many_keys_never_shows_half_a_commit(w: World) -> Result<()> {
    let keys = [Key::new("left")?, Key::new("middle")?, Key::new("right")?];
    let write = |value: String| -> Result<Commit> {
        let mut commit = Commit::new();
        for key in &keys {
            let put = Put::new(key.clone(), fields([("value", value.clone())])?);
            commit = commit.write(Write::Put(put));
        }
        Ok(commit)
    };
    w.store.commit_one(write("start".into())?).await?;
    let worlds = handles(&w, 8).await?;
    let mut calls = Vec::new();
    for (n, w) in worlds.into_iter().enumerate() {
        let keys = keys.to_vec();
        let mut commits = Vec::new();
        for turn in 0..20 {
            commits.push(write(format!("{n}-{turn}"))?);
        }
        calls.push(async move {
            for commit in commits {
                if n % 2 == 0 {
                    insist(&w, commit).await?;
                } else {
                    let get = Get { keys: keys.clone() };
                    let records = w.store.get(get).await?;
                    let values: BTreeSet<Option<String>> = (records.iter())
                        .map(|record| record.as_ref().and_then(|r| text(&r.fields, "value")))
                        .collect();
                    assert_eq!(values.len(), 1, "half a commit: {records:?}");
                    let revisions: BTreeSet<Option<Revision>> = (records.iter())
                        .map(|record| record.as_ref().map(|r| r.revision))
                        .collect();
                    assert!(!revisions.contains(&None));
                }
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    }
    all(parallel(calls).await)?;
    Ok(())
}

async fn a_scan_shows_each_lasting_key_once_while_others_come_and_go(w: World) -> Result<()> {
    let mut lasting = Vec::new();
    for n in 0..40 {
        let key = format!("key.{n:02}");
        w.put(&key, [("n", "0")]).await?;
        lasting.push(key);
    }
    let calls = (handles(&w, 8).await?.into_iter().enumerate()).map(|(n, w)| {
        let lasting = lasting.clone();
        async move {
            if n % 2 == 0 {
                for turn in 0..30 {
                    let passing = Key::new(format!("key.{turn:02}.{n}"))?;
                    let put = Put::new(passing.clone(), fields([("n", "1")])?);
                    insist_on(&w, Write::Put(put)).await?;
                    let rewritten = Key::new(&lasting[(turn * 7 + n) % 40])?;
                    let put = Put::new(rewritten, fields([("n", turn.to_string())])?);
                    insist_on(&w, Write::Put(put)).await?;
                    if turn % 3 > 0 {
                        insist_on(&w, Write::Delete(passing)).await?;
                    }
                    tokio::task::yield_now().await;
                }
                return Ok(());
            }
            for limit in [3, 7, 11] {
                let mut scan = Scan::new(Prefix::new("key.")?, limit);
                let mut found = Vec::new();
                loop {
                    let page = w.store.scan(scan.clone()).await?;
                    found.extend(page.rows.into_iter().map(|record| record.key.to_string()));
                    match page.next {
                        Some(next) => scan.cursor = Some(next),
                        None => break,
                    }
                    tokio::task::yield_now().await;
                }
                assert!(
                    found.is_sorted_by(|a, b| a < b),
                    "once, in order: {found:?}"
                );
                found.retain(|key| key.len() == 6);
                assert_eq!(found, lasting);
            }
            Ok(())
        }
    });
    all(parallel(calls).await)?;
    Ok(())
}

async fn cancel_racing_complete_leaves_one_terminal_status(w: World) -> Result<()> {
    let worlds = handles(&w, 3).await?;
    for _ in 0..30 {
        let (task, held) = w.claimed(w.new_task("work")).await?;
        let id = task.id();
        let calls = (worlds.iter().cloned().enumerate()).map(|(n, w)| {
            let held = held.clone();
            async move {
                match n {
                    0 => settle(&w, held, complete()).await,
                    1 => settle(&w, held, Ending::Cancel { reason: None }).await,
                    _ => {
                        let reason = None;
                        insist_on(&w, Write::Cancel(Cancel { task: id, reason })).await
                    }
                }
            }
        });
        let answers = parallel(calls).await;
        let after = w.task(id).await?;
        let status = after.status;
        assert!(status == Status::Completed || status == Status::Cancelled);
        assert_eq!((after.lease.clone(), after.cancel.clone()), (None, None));
        let settled = Ok(Outcome::Settled {
            status,
            runnable_at: None,
        });
        let (won, lost) = match status {
            Status::Completed => (&answers[0], &answers[1]),
            _ => (&answers[1], &answers[0]),
        };
        assert_eq!(*won, settled);
        match lost {
            Err(Error::LeaseLost(lost)) => assert_eq!(lost.why, Lost::Finished { status }),
            other => panic!("both settled: {other:?}"),
        }
        match &answers[2] {
            Ok(Outcome::Changed { status, .. }) => assert_eq!(*status, Status::Claimed),
            Ok(Outcome::Already { status: already }) => assert_eq!(*already, status),
            other => panic!("a cancel answered {other:?}"),
        }
        let history = w.history().await?.entries;
        let ends = changes(&history).filter(
            |change| matches!(change, Change::Task(task) if task.id == id && task.status.is_terminal()),
        );
        assert_eq!(ends.count(), 1);
    }
    Ok(())
}

async fn cancel_racing_claim_either_ends_the_task_or_flags_it(w: World) -> Result<()> {
    let ids = submit_in_bulk(&w, 30).await?;
    let worker = w.worker("worker")?;
    let calls = (handles(&w, 60).await?.into_iter().enumerate()).map(|(n, w)| {
        let (task, worker) = (ids[n / 2], worker.clone());
        async move {
            if n % 2 == 0 {
                let claimed = w.claim_ids(&worker, &[task]).await?;
                return Ok((!claimed.tasks.is_empty()).then_some(Status::Claimed));
            }
            let reason = None;
            match insist_on(&w, Write::Cancel(Cancel { task, reason })).await? {
                Outcome::Changed { status, .. } => Ok(Some(status)),
                other => panic!("a first cancel answered {other:?}"),
            }
        }
    });
    let answers = all(parallel(calls).await)?;
    for (id, answers) in ids.iter().zip(answers.chunks(2)) {
        let task = w.task(*id).await?;
        match task.status {
            Status::Claimed => {
                assert_eq!(answers, [Some(Status::Claimed); 2]);
                assert!(task.lease.is_some() && task.cancel.is_some());
            }
            Status::Cancelled => {
                assert_eq!(answers, [None, Some(Status::Cancelled)]);
                assert_eq!((task.lease.clone(), task.attempts), (None, 0));
            }
            other => panic!("{id} is {other}"),
        }
    }
    Ok(())
}

async fn retry_racing_complete_and_claim_leaves_one_of_them_with_the_task(w: World) -> Result<()> {
    let worlds = handles(&w, 4).await?;
    for _ in 0..30 {
        let (task, held) = w.claimed(w.new_task("work")).await?;
        let id = task.id();
        let retry = Commit::of(Write::Retry(Retry {
            task: id,
            force: false,
            delay: Duration::ZERO,
        }));
        let retry = retry.id(w.ids.commit());
        let second = w.worker("second")?;
        let settle = Settle {
            holder: held.clone(),
            how: complete(),
        };
        let complete = Commit::of(Write::Settle(settle));
        let commits = parallel([
            insist_owned(worlds[0].clone(), retry),
            insist_owned(worlds[1].clone(), complete),
        ]);
        let claim = async {
            for _ in 0..5 {
                let claimed = worlds[3].claim_ids(&second, &[id]).await?.tasks;
                if !claimed.is_empty() {
                    return Ok::<Vec<Task>, Error>(claimed);
                }
                tokio::task::yield_now().await;
            }
            Ok(Vec::new())
        };
        let (answers, claimed) = tokio::join!(commits, claim);
        let (retried, completed) = (&answers[0], &answers[1]);
        let claimed = claimed?;
        let after = w.task(id).await?;
        if completed.is_ok() {
            assert_eq!(after.status, Status::Completed);
            assert_eq!(claimed, []);
            let status = Status::Completed;
            let finished = Error::from(Conflict::Finished { task: id, status });
            assert_eq!(*retried, Err(finished));
            continue;
        }
        assert!(retried.is_ok(), "{retried:?}");
        assert!(after.fence > held.fence);
        match claimed.as_slice() {
            [] => assert_eq!((after.status, after.lease.clone()), (Status::Pending, None)),
            [taken] => {
                assert_eq!(*taken, after);
                assert_eq!(holder(taken).worker, second);
                assert!(taken.fence > held.fence);
            }
            other => panic!("one task was asked for: {other:?}"),
        }
        w.store.cancel(id, None).await?;
    }
    Ok(())
}

async fn insist_owned(w: World, commit: Commit) -> Result<Receipt> {
    insist(&w, commit).await
}

async fn renewal_racing_expiry_either_keeps_the_lease_or_loses_it(w: World) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(w.claimed(w.new_task("work")).await?.1);
    }
    w.advance(LEASE);
    let calls = (handles(&w, 60).await?.into_iter().enumerate()).map(|(n, w)| {
        let holder = held[n / 2].clone();
        async move {
            if n % 2 == 0 {
                let renew = Renew {
                    holders: vec![holder],
                    lease: LEASE,
                };
                let renewals = w.store.renew(renew).await?;
                return Ok(matches!(renewals.as_slice(), [Renewal::Held { .. }]));
            }
            let expire = Expire {
                task: holder.task,
                fence: holder.fence,
                jitter: Default::default(),
            };
            match insist_on(&w, Write::Expire(expire)).await? {
                Outcome::Changed { .. } => Ok(true),
                Outcome::Already { status } => {
                    assert_eq!(status, Status::Claimed);
                    Ok(false)
                }
                other => panic!("an expiry answered {other:?}"),
            }
        }
    });
    let answers = all(parallel(calls).await)?;
    let expiries = times(&w.history().await?.entries, TaskEvent::Expired);
    for (held, answers) in held.iter().zip(answers.chunks(2)) {
        let task = w.task(held.task).await?;
        let (kept, expired) = (answers[0], answers[1]);
        assert!(kept != expired, "either held or lost: {answers:?}");
        assert_eq!(expiries.contains_key(&held.task), expired);
        if kept {
            assert_eq!(task.holder().as_ref(), Some(held));
            let until = task.lease.clone().map(|lease| lease.until);
            assert_eq!(until, Some(w.now().saturating_plus(LEASE)));
            assert_eq!(task.failures, 0);
        } else {
            assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
            assert_eq!(task.lease, None);
        }
    }
    Ok(())
}

async fn sweeps_at_once_decide_everything_once(w: World) -> Result<()> {
    let mut scheduled = BTreeSet::new();
    let mut leased = BTreeSet::new();
    for n in 0..30 {
        let later = w.new_task("later").after(LEASE);
        scheduled.insert(w.submit(later).await?.id());
        leased.insert(w.claimed(w.new_task("held")).await?.0.id());
        let put = Put::new(Key::new(format!("key.{n}"))?, fields([("n", "1")])?);
        w.store.write(Write::Put(put.ttl(LEASE))).await?;
    }
    w.advance(LEASE);
    let sweeps = (handles(&w, 6).await?.into_iter()).map(|w| async move { w.sweep().await });
    let mut swept = all(parallel(sweeps).await)?;
    for error in swept.iter().flat_map(|swept| &swept.errors) {
        let contended = matches!(error, Error::Conflict(conflict) if matches!(**conflict, Conflict::Contended { .. }));
        assert!(contended, "{error}");
    }
    swept.push(w.sweep().await?);
    let entries = w.history().await?.entries;
    let once = |ids: BTreeSet<TaskId>| ids.into_iter().map(|id| (id, 1)).collect();
    assert_eq!(times(&entries, TaskEvent::Promoted), once(scheduled));
    assert_eq!(times(&entries, TaskEvent::Expired), once(leased));
    let removed = changes(&entries).filter(|change| matches!(change, Change::Removed { .. }));
    assert_eq!(removed.count(), 30);
    assert_eq!(swept.iter().map(|swept| swept.promoted).sum::<u64>(), 30);
    assert_eq!(swept.iter().map(|swept| swept.expired).sum::<u64>(), 30);
    assert_eq!(swept.iter().map(|swept| swept.records).sum::<u64>(), 30);
    Ok(())
}

/// A group, whose `then` is in another lane so that workers do not claim it.
async fn open_group(w: &World, id: &str) -> Result<TaskId> {
    let then = NewTask {
        lane: Lane::new("queue", "then")?,
        ..w.new_task("then")
    };
    let group = NewGroup::new(GroupId::new(id)?).then(then.clone());
    w.store.write(Write::OpenGroup(Box::new(group))).await?;
    Ok(then.id)
}

/// The group has drained once, and has submitted its task once.
async fn assert_drained_once(w: &World, group: &str, then: TaskId) -> Result<()> {
    assert!(w.group(group).await?.drained_at.is_some());
    assert_eq!(w.status(then).await?, Status::Pending);
    let entries = w.history().await?.entries;
    assert_eq!(times(&entries, TaskEvent::Submitted)[&then], 1);
    let drains = changes(&entries).filter(|change| {
        matches!(change, Change::Group { id, event: GroupEvent::Drained, .. } if id.as_str() == group)
    });
    assert_eq!(drains.count(), 1);
    Ok(())
}

async fn sealing_while_the_last_members_end_drains_once(w: World) -> Result<()> {
    let worlds = handles(&w, 8).await?;
    for turn in 0..8 {
        let name = format!("group-{turn}");
        let id = GroupId::new(&name)?;
        let then = open_group(&w, &name).await?;
        let mut held = Vec::new();
        for _ in 0..7 {
            let member = w.new_task("member").group(id.clone());
            held.push(Some(w.claimed(member).await?.1));
        }
        held.insert(turn, None);
        let calls = (worlds.iter().cloned().zip(held)).map(|(w, held)| {
            let id = id.clone();
            async move {
                match held {
                    Some(held) => settle(&w, held, complete()).await,
                    None => insist_on(&w, Write::Seal(id)).await,
                }
            }
        });
        all(parallel(calls).await)?;
        let group = w.group(&name).await?;
        assert_eq!((group.spawned, group.done, group.sealed), (7, 7, true));
        assert_drained_once(&w, &name, then).await?;
    }
    Ok(())
}

async fn two_hundred_members_settled_by_many_workers_drain_once(w: World) -> Result<()> {
    let id = GroupId::new("group")?;
    let then = open_group(&w, "group").await?;
    let members: Vec<NewTask> = (0..200)
        .map(|_| w.new_task("member").group(id.clone()))
        .collect();
    for members in members.chunks(100) {
        let submits = members.iter().cloned().map(Box::new).map(Write::Submit);
        insist(&w, submits.fold(Commit::new(), Commit::write)).await?;
    }
    w.store.write(Write::Seal(id)).await?;
    let workers = (handles(&w, 12).await?.into_iter().enumerate()).map(|(n, w)| async move {
        let worker = w.worker(&format!("worker-{n}"))?;
        let mut failed = 0;
        loop {
            let tasks = w.claim(&worker, 5).await?;
            if tasks.is_empty() {
                return Ok(failed);
            }
            for (turn, task) in tasks.iter().enumerate() {
                let fails = turn == 0;
                failed += u64::from(fails);
                let how = if fails {
                    fail_with("no", FailRetry::Fatal)
                } else {
                    complete()
                };
                settle(&w, holder(task), how).await?;
                tokio::task::yield_now().await;
            }
        }
    });
    let failed: u64 = all(parallel(workers).await)?.into_iter().sum();
    // A claim among many may come back empty while others hold what is left for a moment.
    let last = w.worker("last")?;
    loop {
        let tasks = w.claim(&last, 100).await?;
        if tasks.is_empty() {
            break;
        }
        for task in &tasks {
            settle(&w, holder(task), complete()).await?;
        }
    }
    let group = w.group("group").await?;
    assert_eq!((group.spawned, group.done), (200, 200));
    assert_eq!((group.failed, group.cancelled), (failed, 0));
    assert_drained_once(&w, "group", then).await
}

/// Ten commits by each of eight writers, each of a shared key, a key of a pair and an own key.
fn writers(worlds: Vec<World>) -> Vec<impl Future<Output = Result<Vec<(String, Receipt)>>>> {
    (worlds.into_iter().enumerate())
        .map(|(n, w)| async move {
            let mut receipts = Vec::new();
            for turn in 0..10 {
                let mark = format!("{n}-{turn}");
                let mut commit = Commit::new();
                for key in ["shared".to_owned(), format!("pair-{}", n / 2), mark.clone()] {
                    let put = Put::new(Key::new(key)?, fields([("mark", mark.clone())])?);
                    commit = commit.write(Write::Put(put));
                }
                receipts.push((mark, insist(&w, commit).await?));
                tokio::task::yield_now().await;
            }
            Ok(receipts)
        })
        .collect()
}

/// For each key the revisions grow, and each commit is whole where its receipt says.
fn assert_whole_and_in_order(entries: &[Entry], receipts: &[(String, Receipt)]) {
    let mut revisions: BTreeMap<&Key, Revision> = BTreeMap::new();
    let mut commits: BTreeMap<String, Vec<(Position, &str)>> = BTreeMap::new();
    for entry in entries {
        for change in &entry.changes {
            let Change::Put(record) = change else {
                panic!("unexpected {change:?}");
            };
            let before = revisions.insert(&record.key, record.revision);
            assert!(
                before < Some(record.revision),
                "{record:?} after {before:?}"
            );
            let mark = text(&record.fields, "mark").unwrap_or_default();
            let told = (entry.position, record.key.as_str());
            commits.entry(mark).or_default().push(told);
        }
    }
    assert_eq!(commits.len(), receipts.len());
    for (mark, receipt) in receipts {
        let told = &commits[mark];
        let keys: Vec<&str> = told.iter().map(|(_, key)| *key).collect();
        assert_eq!(keys.len(), 3, "{mark} wrote {keys:?}");
        assert_eq!((keys[0], keys[2]), ("shared", mark.as_str()));
        for (position, _) in told {
            assert_eq!(Some(*position), receipt.position, "{mark} was split");
        }
    }
}

async fn concurrent_commits_stay_whole_and_each_key_in_order(w: World) -> Result<()> {
    let receipts = all(parallel(writers(handles(&w, 8).await?)).await)?.concat();
    assert_eq!(receipts.len(), 80);
    let entries = w.history().await?.entries;
    assert_whole_and_in_order(&entries, &receipts);
    assert!(entries.is_sorted_by(|a, b| a.position < b.position));
    Ok(())
}

async fn a_reader_that_tails_concurrent_writers_sees_every_entry_once_in_order(
    w: World,
) -> Result<()> {
    let start = w.history().await?.next;
    let done = Arc::new(AtomicBool::new(false));
    let readers = (handles(&w, 2).await?.into_iter().zip([1, 5])).map(|(w, limit)| {
        let done = done.clone();
        async move {
            let (mut position, mut seen) = (start, Vec::new());
            loop {
                let last_look = done.load(Ordering::Acquire);
                let changes = Changes::after(position, limit);
                let page = w.store.changes(changes).await?;
                seen.extend(page.entries);
                position = page.next;
                if last_look && !page.more {
                    return Ok(seen);
                }
                tokio::task::yield_now().await;
            }
        }
    });
    let writers = writers(handles(&w, 8).await?);
    let write = async {
        let receipts = parallel(writers).await;
        done.store(true, Ordering::Release);
        receipts
    };
    let (receipts, seen) = tokio::join!(write, parallel(readers));
    let receipts = all(receipts)?.concat();
    let entries = w.history_from(Start::After(start)).await?.entries;
    assert_whole_and_in_order(&entries, &receipts);
    for seen in all(seen)? {
        assert_eq!(seen, entries);
    }
    Ok(())
}

async fn fences_of_a_contended_task_grow_with_every_claim(w: World) -> Result<()> {
    let id = w.submit(w.new_task("work")).await?.id();
    let workers = (handles(&w, 8).await?.into_iter().enumerate()).map(|(n, w)| async move {
        let worker = w.worker(&format!("worker-{n}"))?;
        let mut fences = Vec::new();
        for _ in 0..40 {
            let tasks = w.claim_ids(&worker, &[id]).await?.tasks;
            if let [task] = tasks.as_slice() {
                fences.push(task.fence);
                settle(&w, holder(task), Ending::Release { reason: None }).await?;
            }
            tokio::task::yield_now().await;
        }
        assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
        Ok(fences)
    });
    let mut fences: Vec<Fence> = all(parallel(workers).await)?.concat();
    fences.sort_unstable();
    let task = w.task(id).await?;
    let expected: Vec<Fence> = (1..=u64::from(task.attempts)).map(Fence::new).collect();
    assert_eq!(fences, expected, "no two claims have the same fence");
    assert_eq!(fences.last(), Some(&task.fence));
    let entries = w.history().await?.entries;
    let claimed: Vec<Fence> = changes(&entries)
        .filter_map(|change| match change {
            Change::Task(task) if task.event == TaskEvent::Claimed => Some(task.fence),
            _ => None,
        })
        .collect();
    assert_eq!(claimed, expected, "in the history they grow, too");
    Ok(())
}

/// A task that is held although it is to be replaced, and the replacement, which was cancelled.
async fn cancelled_replacement(w: &World, key: &IdempotencyKey) -> Result<(Holder, TaskId)> {
    let keyed = |on_conflict| {
        (w.new_task("work")).key_with(key.clone(), KeyLifetime::WhileActive, on_conflict)
    };
    let (_, held) = w.claimed(keyed(OnConflict::Attach)).await?;
    let replacement = w.submit(keyed(OnConflict::CancelAndReplace)).await?;
    w.store.cancel(replacement.id(), None).await?;
    Ok((held, replacement.id()))
}

async fn a_key_is_not_free_while_the_task_that_was_to_be_replaced_still_runs(
    w: World,
) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let (held, _) = cancelled_replacement(&w, &key).await?;
    let third = w.new_task("work").key(key);
    w.store.submit(third).await?;
    let second = w.worker("second")?;
    assert_eq!(w.claim(&second, 10).await?, [], "two run under one key");
    assert_eq!(w.status(held.task).await?, Status::Claimed);
    Ok(())
}

async fn a_retried_replacement_waits_again_for_the_task_that_still_runs(w: World) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let (held, replacement) = cancelled_replacement(&w, &key).await?;
    let retry = Retry {
        task: replacement,
        force: false,
        delay: Duration::ZERO,
    };
    match w.write_with_id(Write::Retry(retry)).await {
        Ok(_) | Err(Error::Conflict(_)) => {}
        Err(error) => return Err(error),
    }
    let second = w.worker("second")?;
    assert_eq!(w.claim(&second, 10).await?, [], "two run under one key");
    assert_eq!(w.status(held.task).await?, Status::Claimed);
    Ok(())
}

const RANDOM_LANES: [&str; 3] = ["one", "two", "three"];
const RANDOM_GROUPS: [&str; 3] = ["group-0", "group-1", "group-2"];

/// One worker of a random history.
struct Actor {
    w: World,
    random: Ids,
    worker: crate::task::Worker,
    held: Vec<Holder>,
    known: Vec<TaskId>,
}

impl Actor {
    fn pick(&self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap_or(0)
    }

    fn some_task(&self) -> TaskId {
        match self.known.len() {
            0 => TaskId::from_u128(1),
            len => self.known[self.pick(len)],
        }
    }

    fn some_held(&mut self) -> Option<Holder> {
        match self.held.len() {
            0 => None,
            len => Some(self.held.swap_remove(self.pick(len))),
        }
    }

    fn new_task(&self) -> Result<NewTask> {
        let mut task = self.w.new_task(self.pick(3).to_string());
        task.lane = Lane::new("random", RANDOM_LANES[self.pick(3)])?;
        match self.pick(4) {
            0 => task.group = Some(GroupId::new(RANDOM_GROUPS[self.pick(3)])?),
            1 => {
                let key = IdempotencyKey::new(format!("key-{}", self.pick(4)))?;
                let policy = [
                    OnConflict::Attach,
                    OnConflict::Reject,
                    OnConflict::ReplacePending,
                    OnConflict::CancelAndReplace,
                ][self.pick(4)];
                task = task.key_with(key, KeyLifetime::WhileActive, policy);
            }
            2 => task = task.after(Duration::from_secs(1 + self.random.below(20))),
            _ => {}
        }
        Ok(task)
    }

    async fn claim(&mut self) -> Result<()> {
        let mut claim = self.w.next(&self.worker, 1 + self.pick(4));
        if let crate::store::Pick::Next { lanes, .. } = &mut claim.pick {
            *lanes = vec![
                Lane::new("random", RANDOM_LANES[0])?,
                Lane::new("random", RANDOM_LANES[1 + self.pick(2)])?,
            ];
        }
        let claimed = self.w.store.claim(claim).await?;
        self.held.extend(claimed.tasks.iter().map(holder));
        Ok(())
    }

    /// Does one thing. What others did before may forbid it; anything else is a fault.
    async fn act(&mut self) -> Result<()> {
        let write = match self.pick(20) {
            0..4 => {
                let task = self.new_task()?;
                self.known.push(task.id);
                Write::Submit(Box::new(task))
            }
            4..7 => return self.claim().await,
            7..11 => {
                let Some(holder) = self.some_held() else {
                    return Ok(());
                };
                let delay = Duration::from_secs(self.random.below(10));
                let how = match self.pick(6) {
                    0 | 1 => complete(),
                    2 => fail("again"),
                    3 => fail_with("no", FailRetry::Fatal),
                    4 => Ending::Snooze { delay },
                    _ => Ending::Release { reason: None },
                };
                Write::Settle(Settle { holder, how })
            }
            11 => {
                let renew = Renew {
                    holders: self.held.clone(),
                    lease: LEASE,
                };
                self.w.store.renew(renew).await?;
                return Ok(());
            }
            12 => {
                self.w.advance(Duration::from_secs(self.random.below(8)));
                self.w.store.sweep(10, &self.w.ids).await?;
                return Ok(());
            }
            13 => Write::Cancel(Cancel {
                task: self.some_task(),
                reason: None,
            }),
            14 => Write::Retry(Retry {
                task: self.some_task(),
                force: self.pick(2) == 0,
                delay: Duration::from_secs(self.random.below(3)),
            }),
            15 => {
                let priority = u8::try_from(self.pick(11)).unwrap_or(0);
                Write::Prioritise(self.some_task(), Priority::new(priority)?)
            }
            16 => {
                let task = self.some_task();
                match self.w.store.task(task).await? {
                    // The counts of a group go on counting members that were deleted.
                    Some(task) if task.spec.group.is_some() => return Ok(()),
                    _ => Write::DeleteTask(task),
                }
            }
            17 => Write::Arrive(GroupId::new(RANDOM_GROUPS[self.pick(3)])?, 1),
            18 => {
                let group = GroupId::new(RANDOM_GROUPS[self.pick(3)])?;
                match self.pick(4) {
                    0 => Write::Reopen(group),
                    1 => Write::Seal(group),
                    _ => Write::Merge(Merge::new(Key::new("sum")?).add(name("n")?, 1)),
                }
            }
            _ => {
                let Some(holder) = self.held.last().cloned() else {
                    return Ok(());
                };
                let line = NewLine::new(self.w.ids.line(), Level::Info, "said");
                match self.pick(2) {
                    0 => Write::Log(Log {
                        holder,
                        lines: vec![line],
                    }),
                    _ => Write::Amend(Box::new(Amend {
                        stage: Some(name("stage")?),
                        ..Amend::new(holder)
                    })),
                }
            }
        };
        let commit = Commit::of(write).id(self.w.ids.commit());
        match insist(&self.w, commit).await {
            Ok(_) | Err(Error::Conflict(_) | Error::LeaseLost(_) | Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn everything_adds_up_after_a_random_history(w: World) -> Result<()> {
    for group in RANDOM_GROUPS {
        open_group(&w, group).await?;
    }
    let worlds = handles(&w, 6).await?;
    for seed in [1, 2, 3] {
        let actors = (worlds.iter().cloned().enumerate()).map(|(n, w)| {
            let random = Ids::seeded(seed * 100 + n as u64, Arc::new(w.clock.clone()));
            async move {
                let mut actor = Actor {
                    worker: w.worker(&format!("worker-{n}"))?,
                    w,
                    random,
                    held: Vec::new(),
                    known: Vec::new(),
                };
                for _ in 0..60 {
                    actor.act().await?;
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
        });
        all(parallel(actors).await)?;
        assert_adds_up(&w, seed).await?;
    }
    Ok(())
}

/// All tasks of a selector.
async fn listed(w: &World, selector: Selector) -> Result<Vec<Task>> {
    let mut list = List::new(selector, 1_000);
    let mut tasks = Vec::new();
    loop {
        let page = w.store.list(list.clone()).await?;
        tasks.extend(page.rows);
        match page.next {
            Some(next) => list.cursor = Some(next),
            None => return Ok(tasks),
        }
    }
}

async fn assert_adds_up(w: &World, seed: u64) -> Result<()> {
    let entries = w.history().await?.entries;
    let mut told = BTreeMap::new();
    for change in changes(&entries) {
        let Change::Task(now) = change else { continue };
        if let Some((status, fence, revision)) =
            told.insert(now.id, (now.status, now.fence, now.revision))
        {
            let grows = fence <= now.fence && revision <= now.revision;
            assert!(
                grows,
                "seed {seed}: {now:?} after {status} {fence} {revision}"
            );
        }
        if now.event == TaskEvent::Deleted {
            told.remove(&now.id);
        }
    }
    let mut found = BTreeMap::new();
    for counts in w.store.counts(Counts::default()).await? {
        for status in Status::ALL {
            let tasks = listed(w, Selector::Lane(counts.lane.clone(), status)).await?;
            let count = counts.by_status.get(&status).copied().unwrap_or(0);
            let lane = &counts.lane;
            assert_eq!(count, tasks.len() as u64, "seed {seed}: {status} in {lane}");
            for task in tasks {
                let context = format!("seed {seed}: {task:?}");
                assert_eq!(task.status, status, "{context}");
                assert_eq!(task.lease.is_some(), status == Status::Claimed, "{context}");
                assert_eq!(
                    task.finished_at.is_some(),
                    status.is_terminal(),
                    "{context}"
                );
                assert!(
                    task.cancel.is_none() || status == Status::Claimed,
                    "{context}"
                );
                let (last_status, last_fence, _) = told[&task.id()];
                assert_eq!((last_status, last_fence), (status, task.fence), "{context}");
                found.insert(task.id(), task);
            }
        }
    }
    let (found_ids, told_ids): (Vec<_>, Vec<_>) = (
        found.keys().copied().collect(),
        told.keys().copied().collect(),
    );
    assert_eq!(found_ids, told_ids, "seed {seed}: what is there was told");
    let mut active: BTreeMap<&IdempotencyKey, &Task> = BTreeMap::new();
    for task in found.values().filter(|task| !task.status.is_terminal()) {
        // One that waits for its predecessor to end shares the key with it until then.
        if let (Some((key, _)), None) = (&task.spec.key, &task.waiting)
            && let Some(other) = active.insert(key, task)
        {
            panic!("seed {seed}: {key} stands for {task:?} and for {other:?}");
        }
    }
    for group in RANDOM_GROUPS {
        let members = listed(w, Selector::Group(GroupId::new(group)?)).await?;
        let group = w.group(group).await?;
        let ended = |status| members.iter().filter(|task| task.status == status).count() as u64;
        let (failed, cancelled) = (ended(Status::Failed), ended(Status::Cancelled));
        let done = ended(Status::Completed) + failed + cancelled;
        assert_eq!(
            group.spawned,
            members.len() as u64,
            "seed {seed}: {group:?}"
        );
        assert_eq!(group.done, done + group.arrived, "seed {seed}: {group:?}");
        let counted = (group.failed, group.cancelled);
        assert_eq!(counted, (failed, cancelled), "seed {seed}: {group:?}");
        let complete = group.total() == Some(group.done);
        assert_eq!(
            group.drained_at.is_some(),
            complete,
            "seed {seed}: {group:?}"
        );
        let Some(then) = &group.then else { continue };
        for generation in 0..=group.generation {
            let drained = generation < group.generation || complete;
            let submitted = found.contains_key(&then.id.nth(generation));
            assert_eq!(submitted, drained, "seed {seed}: {group:?}");
        }
    }
    Ok(())
}
