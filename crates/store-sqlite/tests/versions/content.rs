//! What a fixture holds: something in every table, tasks in every status.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::group::NewGroup;
use plimsoll_core::log::{ExecutionStep, Level, NewLine};
use plimsoll_core::record::{Index, fields};
use plimsoll_core::store::{
    Amend, Changes, Claim, Commit, Counts, Due, Ending, FailRetry, Get, Groups, List, Log, Logs,
    Merge, Peek, Pick, Put, Range, Scan, Selector, Start, TaskByKey, Tasks, Write,
};
use plimsoll_core::task::{
    Backoff, Holder, KeyLifetime, Lane, NewTask, OnConflict, Priority, Progress, RetryPolicy,
    Status, WorkerId,
};
use plimsoll_core::{
    CommitId, Fence, GroupId, Incarnation, Key, LineId, Name, Namespace, Prefix, RequestId, Result,
    Store, StoreExt, TaskId,
};
use plimsoll_store_sqlite::{Config, Sqlite, SqliteStore};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// How long after the clock's beginning everything was written.
pub(crate) const AGE: Duration = Duration::from_secs(60);
/// How many ids of tasks are in use, from one.
const TASKS: u128 = 16;

pub(crate) fn id(n: u128) -> TaskId {
    TaskId::from_u128(n)
}

pub(crate) fn lane() -> Result<Lane> {
    Ok(Lane::new("queue", "kind")?)
}

pub(crate) fn worker() -> Result<WorkerId> {
    Ok(WorkerId {
        name: Name::new("worker")?,
        incarnation: Incarnation::from_u128(1),
    })
}

pub(crate) fn held(n: u128, fence: u64) -> Result<Holder> {
    Ok(Holder {
        task: id(n),
        worker: worker()?,
        fence: Fence::new(fence),
    })
}

pub(crate) async fn open(
    path: &std::path::Path,
    clock: &ManualClock,
    namespace: &str,
) -> Result<SqliteStore> {
    let config = Config {
        clock: Arc::new(clock.clone()),
        ..Config::new(path)
    };
    Sqlite::open(config)?
        .namespace(Namespace::new(namespace)?)
        .await
}

fn task(n: u128, payload: &'static str) -> Result<NewTask> {
    let retry = RetryPolicy {
        max_attempts: 2,
        backoff: Backoff::Fixed(HOUR),
        jitter_percent: 0,
        total: None,
    };
    Ok(NewTask::new(id(n), lane()?, payload).retry(retry))
}

fn by_id(n: u128) -> Result<Claim> {
    Ok(Claim {
        pick: Pick::Ids(vec![id(n)]),
        worker: worker()?,
        lease: HOUR,
        request: RequestId::from_u128(n),
    })
}

/// The one claim of the next, which is remembered.
pub(crate) fn next(request: u128) -> Result<Claim> {
    Ok(Claim {
        pick: Pick::Next {
            lanes: vec![lane()?],
            limit: 1,
        },
        request: RequestId::from_u128(request),
        ..by_id(0)?
    })
}

/// The commit that is remembered.
pub(crate) fn counted() -> Result<Commit> {
    let merge = Merge::new(Key::new("counter")?)
        .add("n".try_into()?, 7)
        .returning();
    Ok(Commit::of(Write::Merge(merge)).id(CommitId::from_u128(1)))
}

/// An index that has something.
pub(crate) fn index() -> Result<Index> {
    Ok(Index {
        prefix: Prefix::new("count")?,
        field: Name::new("n")?,
    })
}

/// What the index has, page after page.
pub(crate) fn indexed() -> Result<Scan> {
    let Index { prefix, field } = index()?;
    Ok(Scan::new(prefix, 10).range(Range::new(field).from(7).before(8)))
}

pub(crate) fn said(line: u128, level: Level, message: &str) -> NewLine {
    NewLine::new(LineId::from_u128(line), level, message)
}

fn fail(error: &str, retry: FailRetry) -> Ending {
    Ending::Fail {
        error: error.into(),
        retry,
        jitter: Default::default(),
    }
}

pub(crate) async fn fill(store: &SqliteStore, clock: &ManualClock) -> Result<()> {
    records(store).await?;
    store.ensure_index(&index()?).await?;
    groups(store).await?;
    active(store).await?;
    ended(store).await?;
    work(store).await?;
    clock.advance(AGE);
    Ok(())
}

async fn records(store: &SqliteStore) -> Result<()> {
    let put = |key: &str, value: &'static [u8]| -> Result<Put> {
        Ok(Put::new(Key::new(key)?, fields([("value", value)])?))
    };
    store.write(Write::Put(put("a/1", b"text")?)).await?;
    store
        .write(Write::Put(put("a/2", b"\0\xff")?.ttl(HOUR)))
        .await?;
    let expired = put("a/3", b"gone")?.ttl(Duration::from_secs(1));
    store.write(Write::Put(expired)).await?;
    store.write(Write::Put(put("b", b"deleted")?)).await?;
    store.write(Write::Delete(Key::new("b")?)).await?;
    store.commit_one(counted()?).await.map(drop)
}

async fn groups(store: &SqliteStore) -> Result<()> {
    let open = NewGroup::new(GroupId::new("open")?)
        .expecting(3)
        .then(task(10, "then")?)
        .on_first_failure(task(11, "first failure")?);
    store.write(Write::OpenGroup(Box::new(open))).await?;
    let drained = NewGroup::new(GroupId::new("drained")?).then(task(12, "drained")?);
    store.write(Write::OpenGroup(Box::new(drained))).await?;
    store
        .write(Write::Seal(GroupId::new("drained")?))
        .await
        .map(drop)
}

/// Tasks that wait.
async fn active(store: &SqliteStore) -> Result<()> {
    let mut full = task(1, "scheduled")?
        .after(HOUR)
        .key_with(
            "for a time".try_into()?,
            KeyLifetime::For(HOUR),
            OnConflict::Reject,
        )
        .group(GroupId::new("open")?);
    full.owner = Some(Name::new("owner")?);
    full.labels = [("color".try_into()?, "red".try_into()?)].into();
    full.attempt_timeout = Some(HOUR);
    full.first_stage = Some(Name::new("stage")?);
    full.on_failure = Some(Box::new(task(13, "on failure")?));
    full.trace = Some("00-trace".into());
    store.submit(full).await?;
    let urgent = task(2, "pending")?.priority(Priority::HIGHEST);
    store.submit(urgent.key("for ever".try_into()?)).await?;
    store.submit(task(3, "also pending")?).await?;
    // A lane that has lost its last task.
    let mut elsewhere = task(4, "deleted")?;
    elsewhere.lane = Lane::new("2029-12-31", "kind")?;
    store.submit(elsewhere).await?;
    store.cancel(id(4), None).await?;
    store.write(Write::DeleteTask(id(4))).await.map(drop)
}

/// Tasks that have ended, each in its own way.
async fn ended(store: &SqliteStore) -> Result<()> {
    store.submit(task(5, "completed")?).await?;
    store.claim(by_id(5)?).await?;
    let lines = vec![said(50, Level::Info, "of one that has ended")];
    let holder = held(5, 1)?;
    store.write(Write::Log(Log { holder, lines })).await?;
    let result = Some("result".into());
    store
        .settle(held(5, 1)?, Ending::Complete { result })
        .await?;
    let failing = task(6, "failed")?.group(GroupId::new("open")?);
    store.submit(failing).await?;
    store.claim(by_id(6)?).await?;
    store
        .settle(held(6, 1)?, fail("for good", FailRetry::Fatal))
        .await?;
    store.submit(task(7, "cancelled")?).await?;
    store.cancel(id(7), Some("not wanted".into())).await?;
    store.submit(task(8, "waits for a retry")?).await?;
    store.claim(by_id(8)?).await?;
    store
        .settle(held(8, 1)?, fail("once", FailRetry::Policy))
        .await
        .map(drop)
}

/// Tasks that are held.
async fn work(store: &SqliteStore) -> Result<()> {
    store.claim(next(100)?).await?;
    let amend = Amend {
        stage: Some(Name::new("late")?),
        progress: Some(Progress {
            percent: Some(50),
            message: Some("half".into()),
            current_step: Some(1),
            step_count: Some(2),
        }),
        checkpoint: Some("checkpoint".into()),
        set: fields([("attribute", "value")])?,
        ..Amend::new(held(2, 1)?)
    };
    let step = ExecutionStep {
        step_id: Name::new("step")?,
        kind: Name::new("download")?,
        command: Some("fetch".into()),
        exit_code: Some(-1),
        stdout: Some("out".into()),
        stderr: Some("err".into()),
        started_at: plimsoll_core::Timestamp::MIN,
        completed_at: Some(plimsoll_core::Timestamp::MIN),
        duration_ms: Some(1),
        success: Some(false),
        error: Some("failed".into()),
    };
    let whole = NewLine {
        stage: Some(Name::new("late")?),
        metadata: Some("metadata".into()),
        step: Some(Box::new(step)),
        ..said(20, Level::Error, "whole")
    };
    let log = Log {
        holder: held(2, 1)?,
        lines: vec![whole, said(21, Level::Debug, "short")],
    };
    let commit = Commit::of(Write::Amend(Box::new(amend))).write(Write::Log(log));
    store.commit_one(commit).await?;
    let keyed = |n, payload| -> Result<NewTask> {
        Ok(task(n, payload)?.key_with(
            "replaced".try_into()?,
            KeyLifetime::WhileActive,
            OnConflict::CancelAndReplace,
        ))
    };
    store.submit(keyed(9, "asked to stop")?).await?;
    store.claim(by_id(9)?).await?;
    store
        .submit(keyed(14, "waits for another")?)
        .await
        .map(drop)
}

/// What every read answers, a line for each.
pub(crate) async fn answers(store: &SqliteStore) -> Result<String> {
    let mut lines = Vec::new();
    let mut say = |what: String, answer: &dyn std::fmt::Debug| {
        lines.push(format!("{what}: {answer:?}\n"));
    };
    for key in ["a/1", "a/2", "a/3", "b", "counter"] {
        let keys = vec![Key::new(key)?];
        say(format!("get {key}"), &store.get(Get { keys }).await?);
    }
    let scan = Scan::new(Prefix::new("a/")?, 10);
    say("scan a/".into(), &store.scan(scan).await?);
    let indexes = store.indexes().await?;
    say("indexes".into(), &indexes);
    if !indexes.is_empty() {
        say("range".into(), &store.scan(indexed()?).await?);
    }
    for n in 1..=TASKS {
        let tasks = store.tasks(Tasks { ids: vec![id(n)] }).await?;
        say(format!("task {n}"), &tasks);
        let logs = Logs {
            task: id(n),
            level: Level::Debug,
            cursor: None,
            limit: 10,
        };
        say(format!("log {n}"), &store.logs(logs).await?);
    }
    for key in ["for a time", "for ever", "replaced", "unknown"] {
        let by = TaskByKey {
            key: key.try_into()?,
        };
        say(format!("key {key}"), &store.task_by_key(by).await?);
    }
    let lanes = Status::ALL.map(|status| Ok(Selector::Lane(lane()?, status)));
    let mut selectors = lanes.into_iter().collect::<Result<Vec<_>>>()?;
    selectors.push(Selector::Group(GroupId::new("open")?));
    selectors.push(Selector::Owner(Name::new("owner")?));
    selectors.push(Selector::Key(Prefix::new("for ")?));
    for selector in selectors {
        let what = format!("list {selector:?}");
        let page = store.list(List::new(selector, 10)).await?;
        let found: Vec<TaskId> = page.rows.iter().map(|task| task.id()).collect();
        say(what, &(found, page.next));
    }
    let peek = Peek {
        lanes: vec![lane()?],
        limit: 10,
    };
    let next: Vec<TaskId> = (store.peek(peek).await?.iter())
        .map(|task| task.id())
        .collect();
    say("peek".into(), &next);
    say("counts".into(), &store.counts(Counts::default()).await?);
    for group in ["open", "drained", "unknown"] {
        let ids = vec![GroupId::new(group)?];
        say(
            format!("group {group}"),
            &store.groups(Groups { ids }).await?,
        );
    }
    let changes = Changes {
        start: Start::Oldest,
        interests: Vec::new(),
        limit: 1_000,
    };
    let history = store.changes(changes).await?;
    for entry in &history.entries {
        say("entry".into(), entry);
    }
    say("history".into(), &(history.next, history.more));
    say("due".into(), &store.due(Due { limit: 10 }).await?);
    Ok(lines.concat())
}
