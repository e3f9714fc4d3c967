//! The largest numbers, and stores that were closed.

use bytes::Bytes;

use super::{SECOND, amend, line_of, list, log, put, settle, step};
use crate::conformance::world::{World, complete, conflict, lane, lost, name};
use crate::error::{Conflict, Error, Lost, NotFound, Result};
use crate::ids::{Fence, Position, Revision};
use crate::log::{ExecutionStep, Level};
use crate::names::{GroupId, IdempotencyKey, Key, Prefix};
use crate::record::{Fields, Index};
use crate::store::{
    Changes, Commit, Compact, Counts, DeclareIndex, DropIndex, Due, Exchange, Expire, Get, Groups,
    Guard, Logs, Merge, Outcome, Peek, Renew, Renewal, Scan, Selector, Start, StoreExt, TaskByKey,
    Tasks, Write,
};
use crate::task::{Holder, Progress, RetryPolicy, Status};
use crate::time::Timestamp;

cases!["bad_input":
    the_largest_counters_match_nothing,
    the_largest_numbers_are_kept_exactly,
    every_call_to_a_closed_store_answers_closed,
    closing_twice_is_fine_and_data_stays,
];

async fn the_largest_counters_match_nothing(w: World) -> Result<()> {
    let record = w.put("k", [("f", "v")]).await?;
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let before = w.history().await?;
    let fence = Fence::new(u64::MAX);
    let stale = Holder {
        fence,
        ..held.clone()
    };
    let superseded = Lost::Superseded { fence: held.fence };
    let answer = w.store.settle(stale.clone(), complete()).await;
    assert_eq!(lost(answer), superseded);
    let guarded = Commit::new().guard(Guard::Held(stale.clone()));
    let answer = w.store.commit_one(guarded).await;
    assert_eq!(lost(answer), superseded);
    let renew = Renew {
        holders: vec![stale],
        lease: SECOND,
    };
    match w.store.renew(renew).await?.as_slice() {
        [Renewal::Lost(lost)] => assert_eq!(lost.why, superseded),
        other => panic!("expected a lost lease, got {other:?}"),
    }
    let expire = Expire {
        task: task.id(),
        fence,
        jitter: Default::default(),
    };
    let outcome = w.store.write(Write::Expire(expire)).await?;
    let status = Status::Claimed;
    assert_eq!(outcome, Outcome::Already { status });
    let revision = Revision::new(u64::MAX);
    for guard in [
        Guard::RecordAt(record.key.clone(), revision),
        Guard::TaskAt(task.id(), revision),
    ] {
        let answer = w.store.commit_one(Commit::new().guard(guard.clone())).await;
        assert_eq!(conflict(answer), Conflict::Guard { index: 0, guard });
    }
    let after = Start::After(Position::new(u64::MAX));
    let oldest = Position::ZERO;
    let answer = w.history_from(after).await;
    assert_eq!(answer, Err(NotFound::History { oldest }.into()));
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.history().await?, before);
    Ok(())
}

async fn the_largest_numbers_are_kept_exactly(w: World) -> Result<()> {
    let (task, held) = w
        .claimed(w.new_task("work").retry(RetryPolicy {
            max_attempts: u32::MAX,
            ..RetryPolicy::default()
        }))
        .await?;
    assert_eq!(task.spec.retry.max_attempts, u32::MAX);
    let progress = Some(Progress {
        percent: Some(0),
        message: Some(String::new()),
        current_step: Some(u32::MAX),
        step_count: Some(u32::MAX),
    });
    let shown = progress.clone();
    let change = amend(&held, |amend| amend.progress = shown);
    w.store.write(change).await?;
    assert_eq!(w.task(task.id()).await?.progress, progress);

    let steps = [i32::MIN, -1, i32::MAX].map(|exit_code| {
        Ok(ExecutionStep {
            exit_code: Some(exit_code),
            started_at: Timestamp::MIN,
            completed_at: Some(Timestamp::MAX),
            duration_ms: Some(u64::from(u32::MAX)),
            ..step(&w)?
        })
    });
    let steps = steps.into_iter().collect::<Result<Vec<_>>>()?;
    let lines: Vec<_> = steps.into_iter().map(|step| line_of(&w, step)).collect();
    w.store.write(log(&held, &lines)).await?;
    let logs = Logs {
        task: task.id(),
        level: Level::Debug,
        cursor: None,
        limit: 10,
    };
    let stored = w.store.logs(logs).await?.lines.into_iter();
    assert_eq!(stored.map(|line| line.line).collect::<Vec<_>>(), lines);

    let key = Key::new("numbers")?;
    let merge = Merge::new(key)
        .add(name("least")?, i64::MIN)
        .add(name("most")?, i64::MAX)
        .raise(name("raised")?, i64::MIN);
    w.write_with_id(Write::Merge(merge)).await?;
    let record = w.record("numbers").await?.map(|record| record.fields);
    let text = |number: i64| Bytes::from(number.to_string());
    let expected = Fields::from([
        (name("least")?, text(i64::MIN)),
        (name("most")?, text(i64::MAX)),
        (name("raised")?, text(i64::MIN)),
    ]);
    assert_eq!(record, Some(expected));
    Ok(())
}

async fn every_call_to_a_closed_store_answers_closed(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let limit = 1;
    let logs = Logs {
        task: task.id(),
        level: Level::Debug,
        cursor: None,
        limit,
    };
    let by_key = TaskByKey {
        key: IdempotencyKey::new("key")?,
    };
    let peek = Peek {
        lanes: vec![lane()],
        limit,
    };
    let renew = Renew {
        holders: vec![held.clone()],
        lease: SECOND,
    };
    let compact = Compact {
        limit,
        ..Compact::default()
    };
    let closed = Some(Error::Closed);
    let store = w.second().await?;
    store.close().await?;
    let keys = vec![Key::new("k")?];
    assert_eq!(store.get(Get { keys }).await.err(), closed);
    let scan = Scan::new(Prefix::any(), limit);
    assert_eq!(store.scan(scan).await.err(), closed);
    let index = Index {
        prefix: Prefix::any(),
        field: name("n")?,
    };
    let dropped = store.drop_index(DropIndex {
        index: index.clone(),
    });
    assert_eq!(dropped.await.err(), closed);
    let declare = DeclareIndex { index, limit };
    assert_eq!(store.declare_index(declare).await.err(), closed);
    assert_eq!(store.indexes().await.err(), closed);
    let ids = vec![task.id()];
    assert_eq!(store.tasks(Tasks { ids }).await.err(), closed);
    assert_eq!(store.task_by_key(by_key).await.err(), closed);
    let by_lane = Selector::Lane(lane(), Status::Claimed);
    assert_eq!(store.list(list(None, limit, by_lane)).await.err(), closed);
    assert_eq!(store.peek(peek).await.err(), closed);
    assert_eq!(store.counts(Counts::default()).await.err(), closed);
    let ids = vec![GroupId::new("g")?];
    assert_eq!(store.groups(Groups { ids }).await.err(), closed);
    assert_eq!(store.logs(logs).await.err(), closed);
    let changes = Changes::after(Position::ZERO, limit);
    assert_eq!(store.changes(changes).await.err(), closed);
    let commits = vec![
        Commit::of(put("k", 1)?),
        Commit::of(settle(&held, complete())),
    ];
    let answers = store.commit(commits.clone()).await;
    assert_eq!(answers, vec![Err(Error::Closed); 2]);
    let claim = w.next(&worker, limit);
    assert_eq!(store.claim(claim.clone()).await.err(), closed);
    assert_eq!(store.renew(renew.clone()).await.err(), closed);
    let exchange = Exchange {
        commits,
        renew: Some(renew),
        claim: Some(claim),
    };
    assert_eq!(store.exchange(exchange).await.err(), closed);
    assert_eq!(store.due(Due { limit }).await.err(), closed);
    assert_eq!(store.compact(compact).await.err(), closed);
    assert_eq!(store.ping().await.err(), closed);
    assert_eq!(store.namespace(), w.store.namespace());
    assert_eq!(store.capabilities(), w.store.capabilities());
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.record("k").await?, None);
    Ok(())
}

async fn closing_twice_is_fine_and_data_stays(w: World) -> Result<()> {
    let record = w.put("k", [("f", "v")]).await?;
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let mut other = w.clone();
    other.store = w.second().await?;
    let before = w.history().await?;
    assert_eq!(w.store.close().await, Ok(()));
    assert_eq!(w.store.close().await, Ok(()));
    assert_eq!(w.record("k").await, Err(Error::Closed));
    let late = w.second().await?;
    assert_eq!(late.record(&record.key).await?, Some(record));
    assert_eq!(late.task(task.id()).await?, Some(task.clone()));
    assert_eq!(other.history().await?, before);
    other.store.settle(held, complete()).await?;
    assert_eq!(other.status(task.id()).await?, Status::Completed);
    Ok(())
}
