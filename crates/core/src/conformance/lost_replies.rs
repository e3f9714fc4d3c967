//! Lost replies: a call repeated by a client that never saw its answer is answered as it was the
//! first time, and leaves everything as it was after one call. Here: records, and commits as such.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::change::Change;
use crate::conformance::observe;
use crate::conformance::observe::{created, field};
use crate::conformance::world::{LEASE, World, complete, conflict, holder, name, text};
use crate::conformance::writes::{retry, settle, submit};
use crate::error::{Conflict, NotFound, Result};
use crate::group::Group;
use crate::limits::MEMORY;
use crate::log::Line;
use crate::names::{Key, Prefix};
use crate::record::{Record, fields};
use crate::store::{
    ChangePage, Commit, Compact, Exchange, Groups, Guard, Merge, Outcome, Put, Receipt, Renew,
    Scan, StoreExt, Tasks, Write,
};
use crate::task::{NewTask, Priority, Task};

cases!["lost_replies":
    record_writes_with_a_commit_id_are_applied_once,
    record_writes_without_an_id_leave_the_same_fields_again,
    a_guarded_write_repeated_without_an_id_names_its_guard,
    an_increment_counts_once_and_answers_its_own_sum,
    the_expiry_of_a_record_is_noticed_once,
    an_exchange_repeats_all_its_parts,
    a_commit_id_is_remembered_for_ten_minutes_whatever_happens,
    a_refused_commit_is_not_remembered,
];

/// Everything that the history leads to, and the history itself.
#[derive(Debug, PartialEq)]
pub(super) struct Everything {
    history: ChangePage,
    records: Vec<Record>,
    tasks: Vec<Option<Task>>,
    groups: Vec<Option<Group>>,
    lines: Vec<Line>,
}

pub(super) async fn everything(w: &World) -> Result<Everything> {
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
        lines.extend(observe::lines(w, task).await?);
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
pub(super) async fn twice(w: &World, commit: Commit) -> Result<(Receipt, Receipt)> {
    let first = w.store.commit_one(commit.clone()).await?;
    let second = again(w, commit).await?;
    Ok((first, second))
}

/// Makes a commit that was made before, and checks that nothing happens.
pub(super) async fn again(w: &World, commit: Commit) -> Result<Receipt> {
    let before = everything(w).await?;
    w.advance(Duration::from_secs(1));
    let receipt = w.second().await?.commit_one(commit).await?;
    assert_eq!(everything(w).await?, before, "the second time changed it");
    Ok(receipt)
}

/// Makes a commit with an id twice: the second receipt must be the first one, marked.
pub(super) async fn once_by_id(w: &World, commit: Commit) -> Result<Receipt> {
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
pub(super) async fn outcomes(w: &World, write: Write) -> Result<[Outcome; 2]> {
    let (first, second) = twice(w, Commit::of(write)).await?;
    match (first.outcomes.as_slice(), second.outcomes.as_slice()) {
        ([first], [second]) => Ok([first.clone(), second.clone()]),
        other => panic!("one write has one outcome: {other:?}"),
    }
}

pub(super) fn creation(task: &NewTask) -> Outcome {
    Outcome::Submitted(created(task.id))
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
    assert_eq!(field(&w, "sum", "n").await?.as_deref(), Some("5"));
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
    assert_eq!(field(&w, "sum", "n").await?.as_deref(), Some("3"));
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

async fn an_exchange_repeats_all_its_parts(w: World) -> Result<()> {
    w.submit_many(4).await?;
    let worker = w.worker("worker")?;
    let held = w.claim(&worker, 2).await?;
    let add = Merge::new(Key::new("sum")?).add(name("n")?, 1);
    let next = w.new_task("next").priority(Priority::HIGHEST);
    let missing = w.ids.task();
    let exchange = Exchange {
        commits: vec![
            Commit::of(settle(&holder(&held[0]), complete()))
                .write(Write::Merge(add))
                .id(w.ids.commit()),
            Commit::of(submit(next.clone())),
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
    assert_eq!(field(&w, "sum", "n").await?.as_deref(), Some("1"));
    Ok(())
}

async fn a_commit_id_is_remembered_for_ten_minutes_whatever_happens(w: World) -> Result<()> {
    let add = Merge::new(Key::new("sum")?).add(name("n")?, 1);
    let (task, _) = w.claimed(w.new_task("work")).await?;
    let commit = Commit::of(Write::Merge(add))
        .write(retry(task.id(), false))
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
