//! Many at once: whatever the order in which concurrent calls take effect, the totals are right.
//! Here: submits and claims.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::{Change, Entry, TaskEvent};
use crate::conformance::act::insist;
use crate::conformance::keys::keys_are_free;
use crate::conformance::parallel;
use crate::conformance::world::{LEASE, World, holder, lane};
use crate::conformance::writes::{settle, submit};
use crate::error::{Conflict, Error, Result};
use crate::ids::{Fence, TaskId};
use crate::names::IdempotencyKey;
use crate::store::{
    Commit, Counts, Ending, List, Outcome, Selector, SubmitOutcome, Submitted, Write,
};
use crate::task::{NewTask, Status};

cases!["concurrency":
    of_two_submits_of_a_key_one_creates_and_both_answer_its_task,
    of_fifty_submits_of_a_key_one_creates_and_all_answer_its_task,
    of_many_keys_that_several_submit_at_once_each_has_one_task,
    each_of_a_thousand_tasks_is_claimed_exactly_once,
    claims_by_id_give_a_task_to_exactly_one_worker,
    fences_of_a_contended_task_grow_with_every_claim,
];

/// As many handles to the namespace, every other one as another process would have it.
pub(super) async fn handles(w: &World, count: usize) -> Result<Vec<World>> {
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

/// Makes one write like [`insist`].
pub(super) async fn insist_on(w: &World, write: Write) -> Result<Outcome> {
    let receipt = insist(w.store.as_ref(), Commit::of(write)).await?;
    let outcome = receipt.outcomes.into_iter().next();
    outcome.ok_or_else(|| Error::Corrupt("a receipt without an outcome".into()))
}

/// Gathers what parallel calls answered.
pub(super) fn all<T>(answers: Vec<Result<T>>) -> Result<Vec<T>> {
    answers.into_iter().collect()
}

/// Submits as many tasks in few commits and answers their ids.
pub(super) async fn submit_in_bulk(w: &World, count: usize) -> Result<Vec<TaskId>> {
    let tasks: Vec<NewTask> = (0..count).map(|_| w.new_task("work")).collect();
    for tasks in tasks.chunks(100) {
        let submits = tasks.iter().cloned().map(Box::new).map(Write::Submit);
        insist(w.store.as_ref(), submits.fold(Commit::new(), Commit::write)).await?;
    }
    Ok(tasks.iter().map(|task| task.id).collect())
}

pub(super) fn changes(entries: &[Entry]) -> impl Iterator<Item = &Change> {
    entries.iter().flat_map(|entry| &entry.changes)
}

/// How often each task had this event.
pub(super) fn times(entries: &[Entry], event: TaskEvent) -> BTreeMap<TaskId, usize> {
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
            match insist_on(&w, submit(task)).await? {
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

/// Submits tasks with these keys in one call, and again what others were in the way of.
async fn submit_keys(w: World, keys: Vec<IdempotencyKey>) -> Result<Vec<(String, Submitted)>> {
    let mut left: Vec<NewTask> = (keys.into_iter())
        .map(|key| w.new_task("work").key(key))
        .collect();
    let mut submitted = Vec::new();
    while !left.is_empty() {
        let commits = left.iter().cloned().map(|new| Commit::of(submit(new)));
        let answers = w.store.commit(commits.collect()).await;
        for (new, answer) in std::mem::take(&mut left).into_iter().zip(answers) {
            match answer {
                Ok(mut receipt) => match receipt.outcomes.remove(0) {
                    Outcome::Submitted(one) => {
                        let key = new.key.map(|request| request.key.to_string());
                        submitted.push((key.unwrap_or_default(), one));
                    }
                    other => panic!("a submit answered {other:?}"),
                },
                Err(Error::Conflict(conflict))
                    if matches!(*conflict, Conflict::Contended { .. }) =>
                {
                    left.push(new);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(submitted)
}

async fn of_many_keys_that_several_submit_at_once_each_has_one_task(w: World) -> Result<()> {
    let worlds = handles(&w, 4).await?;
    for round in 0..3 {
        let keys = (0..300).map(|n| IdempotencyKey::new(format!("{round} {n:03}")));
        let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
        for w in &worlds {
            keys_are_free(w).await?;
        }
        let calls = worlds.iter().cloned().enumerate().map(|(n, w)| {
            let mut keys = keys.clone();
            // Nobody goes through them in the same order, and not everybody has all of them.
            keys.rotate_left(n * 75);
            if n % 2 == 1 {
                keys.reverse();
            }
            keys.truncate(300 - 10 * n);
            submit_keys(w, keys)
        });
        let mut by_key: BTreeMap<String, Vec<Submitted>> = BTreeMap::new();
        for (key, submitted) in all(parallel(calls).await)?.into_iter().flatten() {
            by_key.entry(key).or_default().push(submitted);
        }
        assert_eq!(by_key.len(), keys.len());
        let mut ids = BTreeMap::new();
        for (key, submitted) in by_key {
            let id = assert_one_created(&submitted);
            assert_eq!(w.by_key(&key).await?.map(|task| task.id()), Some(id));
            ids.insert(id, 1);
        }
        let mut submits = times(&w.history().await?.entries, TaskEvent::Submitted);
        submits.retain(|id, _| ids.contains_key(id));
        assert_eq!(submits, ids);
    }
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

async fn fences_of_a_contended_task_grow_with_every_claim(w: World) -> Result<()> {
    let id = w.submit(w.new_task("work")).await?.id();
    let workers = (handles(&w, 8).await?.into_iter().enumerate()).map(|(n, w)| async move {
        let worker = w.worker(&format!("worker-{n}"))?;
        let mut fences = Vec::new();
        for _ in 0..40 {
            let tasks = w.claim_ids(&worker, &[id]).await?.tasks;
            if let [task] = tasks.as_slice() {
                fences.push(task.fence);
                let release = Ending::Release { reason: None };
                insist_on(&w, settle(&holder(task), release)).await?;
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
