//! Values with something in every part.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::error::Invalid;
use plimsoll_core::ids::Fingerprint;
use plimsoll_core::lifecycle::Lifecycle;
use plimsoll_core::record::{Record, fields};
use plimsoll_core::task::{
    AttemptError, Backoff, CancelRequest, Due, FailureKind, KeyLifetime, Lane, Lease, NewTask,
    OnConflict, Priority, Progress, RetryPolicy, Settled, Status, Task, TaskSpec, TaskState, Verb,
    Waiting,
};
use plimsoll_core::{Fence, GroupId, IdempotencyKey, Incarnation, Key, Name, Revision, Timestamp};

use crate::{at, id, worker};

pub(crate) fn raw() -> Bytes {
    Bytes::from_static(&[0, 1, 127, 128, 255])
}

pub(crate) fn new_task(number: u128) -> Result<NewTask, Invalid> {
    let mut task = NewTask::new(id(number), Lane::new("queue", "kind")?, raw())
        .priority(Priority::HIGHEST)
        .key_with(
            IdempotencyKey::new("🚢")?,
            KeyLifetime::For(Duration::new(3, 7)),
            OnConflict::CancelAndReplace,
        )
        .group(GroupId::new("g")?);
    task.due = Due::At(Timestamp::MAX);
    task.owner = Some(Name::new("owner")?);
    task.labels = BTreeMap::from([(Name::new("a")?, Name::new("b")?)]);
    task.retry = RetryPolicy {
        max_attempts: u32::MAX,
        backoff: Backoff::Fixed(Duration::from_millis(1)),
        jitter_percent: 100,
        total: Some(Duration::MAX),
    };
    task.attempt_timeout = Some(Duration::from_nanos(1));
    task.first_stage = Some(Name::new("validating")?);
    task.trace = Some("00-trace".into());
    task.lifecycle = Some(Lifecycle::row(["one", "two"])?);
    let inner = NewTask::new(id(number + 1), Lane::new("queue", "kind")?, "");
    task.on_failure = Some(Box::new(inner));
    Ok(task)
}

pub(crate) fn task() -> Result<Task, Invalid> {
    let new = new_task(1)?;
    let spec = TaskSpec {
        id: new.id,
        lane: new.lane,
        fingerprint: Fingerprint::from_u128(7),
        payload: new.payload,
        key: new.key.map(|key| (key.key, key.lifetime)),
        group: new.group,
        group_born: Some(Revision::new(u64::MAX)),
        owner: new.owner,
        labels: new.labels,
        retry: new.retry,
        attempt_timeout: new.attempt_timeout,
        first_stage: new.first_stage,
        on_failure: new.on_failure,
        trace: new.trace,
        created_at: Timestamp::MIN,
        born: Revision::new(u64::MAX),
        lifecycle: new.lifecycle,
    };
    let state = TaskState {
        status: Status::Claimed,
        priority: Priority::LOWEST,
        fence: Fence::new(u64::MAX),
        attempts: u32::MAX,
        failures: 1,
        defeats: 3,
        redrives: 2,
        runnable_at: at(1),
        lease: Some(Lease {
            worker: worker()?,
            until: at(30),
            deadline: Some(at(60)),
        }),
        cancel: Some(CancelRequest {
            at: at(2),
            reason: Some("why".into()),
        }),
        settled: Some(Settled {
            fence: Fence::new(1),
            by: Incarnation::from_u128(u128::MAX),
            verb: Verb::Snooze,
            status: Status::Scheduled,
            runnable_at: Some(at(3)),
            worker: Some(Name::new("w1")?),
        }),
        waiting: Some(Waiting {
            on: id(4),
            then_at: at(4),
        }),
        successor: Some(id(5)),
        stage: Some(Name::new("processing")?),
        progress: Some(Progress {
            percent: Some(50),
            message: Some("half".into()),
            current_step: Some(1),
            step_count: Some(u32::MAX),
        }),
        checkpoint: Some(raw()),
        attributes: fields([("a", raw())])?,
        errors: vec![AttemptError {
            fence: Fence::new(1),
            worker: worker()?,
            at: at(5),
            kind: FailureKind::DeadlineExceeded,
            message: "oops".into(),
            stage: Some(Name::new("encoding")?),
        }],
        result: Some(Bytes::new()),
        reason: Some("reason".into()),
        started_at: Some(at(6)),
        claimed_at: Some(at(7)),
        finished_at: Some(at(8)),
        modified_at: Timestamp::MAX,
        revision: Revision::new(u64::MAX),
    };
    Ok(Task {
        spec: Arc::new(spec),
        state,
    })
}

pub(crate) fn record() -> Result<Record, Invalid> {
    Ok(Record {
        key: Key::new("a.🚢")?,
        fields: fields([("raw", raw()), ("empty", Bytes::new())])?,
        revision: Revision::new(u64::MAX),
        modified_at: at(1),
        expires_at: Some(Timestamp::MAX),
    })
}
