//! Tasks as rows: what never changes, what changes, and what few of them have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::ids::Fingerprint;
use plimsoll_core::lifecycle::Lifecycle;
use plimsoll_core::record::Fields;
use plimsoll_core::task::{
    AttemptError, CancelRequest, KeyLifetime, Lane, Lease, NewTask, Priority, Progress,
    RetryPolicy, Settled, Status, Task, TaskSpec, TaskState, Verb, Waiting, WorkerId,
};
use plimsoll_core::{Fence, GroupId, IdempotencyKey, Incarnation, Invalid, Name, Revision, TaskId};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use crate::codec::{At, Id, Json, column, decode, encode, status_from, unsigned};
use crate::error::{Answer, Fault};

/// How many attempts a task has whose row does not say: whatever the default of new ones is.
pub(crate) const USUAL_ATTEMPTS: i32 = 4;
/// How many columns [`task_from`] reads: what a statement selects besides comes after them.
pub(crate) const TASK_COLUMNS: usize = 37;
/// Where the priority is among them. The moment from which a task can be claimed comes next.
pub(crate) const PRIORITY_COLUMN: usize = 16;

/// What few tasks have from the beginning.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpecMore {
    key_lifetime: Option<KeyLifetime>,
    retry: Option<RetryPolicy>,
    first_stage: Option<Name>,
    on_failure: Option<Box<NewTask>>,
    lifecycle: Option<Lifecycle>,
}

impl SpecMore {
    fn of(spec: &TaskSpec) -> Self {
        let usual = RetryPolicy {
            max_attempts: spec.retry.max_attempts,
            ..RetryPolicy::default()
        };
        let lifetime = spec.key.as_ref().map(|(_, lifetime)| *lifetime);
        Self {
            key_lifetime: lifetime.filter(|lifetime| *lifetime != KeyLifetime::default()),
            retry: (spec.retry != usual || i32::try_from(usual.max_attempts).is_err())
                .then(|| spec.retry.clone()),
            first_stage: spec.first_stage.clone(),
            on_failure: spec.on_failure.clone(),
            lifecycle: spec.lifecycle.clone(),
        }
    }

    /// Its stored form; `None`: the task has nothing of it.
    pub(crate) fn stored(spec: &TaskSpec) -> Answer<Option<Vec<u8>>> {
        stored(&Self::of(spec))
    }
}

/// What few tasks have in the course of time.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StateMore {
    settled: Option<Settled>,
    defeats: u32,
    redrives: u32,
    cancel: Option<CancelRequest>,
    waiting: Option<Waiting>,
    successor: Option<TaskId>,
    checkpoint: Option<Bytes>,
    attributes: Fields,
    errors: Vec<AttemptError>,
    /// Of a task that has not ended: what has ended has columns for these.
    result: Option<Bytes>,
    reason: Option<String>,
}

impl StateMore {
    fn of(state: &TaskState) -> Self {
        let live = !state.status.is_terminal();
        Self {
            settled: (state.settled.clone()).filter(|_| settler(state).is_none()),
            defeats: state.defeats,
            redrives: state.redrives,
            cancel: state.cancel.clone(),
            waiting: state.waiting.clone(),
            successor: state.successor,
            checkpoint: state.checkpoint.clone(),
            attributes: state.attributes.clone(),
            errors: state.errors.clone(),
            result: state.result.clone().filter(|_| live),
            reason: state.reason.clone().filter(|_| live),
        }
    }

    /// Its stored form; `None`: the task has nothing of it.
    pub(crate) fn stored(state: &TaskState) -> Answer<Option<Vec<u8>>> {
        stored(&Self::of(state))
    }
}

/// The worker that ended a task, if there is no more to say about how it did.
pub(crate) fn settler(state: &TaskState) -> Option<WorkerId> {
    let settled = state.settled.as_ref()?;
    let worker = WorkerId {
        name: settled.worker.clone()?,
        incarnation: settled.by,
    };
    (settled_by(state.status, state.fence, &worker)? == *settled).then_some(worker)
}

/// How a worker that is named in the columns of a finished task has settled it.
fn settled_by(status: Status, fence: Fence, worker: &WorkerId) -> Option<Settled> {
    let verb = match status {
        Status::Completed => Verb::Complete,
        Status::Failed => Verb::Fail,
        Status::Cancelled => Verb::Cancel,
        Status::Scheduled | Status::Pending | Status::Claimed => return None,
    };
    Some(Settled {
        fence,
        by: worker.incarnation,
        verb,
        status,
        runnable_at: None,
        worker: Some(worker.name.clone()),
    })
}

fn stored<T: Serialize + Default + PartialEq>(more: &T) -> Answer<Option<Vec<u8>>> {
    match *more == T::default() {
        true => Ok(None),
        false => encode(more).map(Some),
    }
}

/// The task in the columns of `sql/task_row/live_columns.sql` or `done_columns.sql`.
pub(crate) fn task_from(row: &Row) -> Answer<Task> {
    let id = column::<Id>(row, 0)?.task();
    let what = format!("task {id}");
    let spec = spec_from(row, id, &what)?;
    let state = state_from(row, &what)?;
    Ok(Task {
        spec: Arc::new(spec),
        state,
    })
}

fn spec_from(row: &Row, id: TaskId, what: &str) -> Answer<TaskSpec> {
    let corrupt = |error: Invalid| Fault::Corrupt(format!("{what}: {error}"));
    let more = match column::<Option<&[u8]>>(row, 14)? {
        Some(body) => decode(what, body)?,
        None => SpecMore::default(),
    };
    let payload = Bytes::copy_from_slice(column(row, 6)?);
    let max_attempts: i32 = column(row, 12)?;
    let timeout: Option<i64> = column(row, 13)?;
    let key: Option<&str> = column(row, 7)?;
    let labels: BTreeMap<Name, Name> = match column::<Option<Json>>(row, 10)? {
        Some(labels) => labels.read(what)?,
        None => BTreeMap::new(),
    };
    Ok(TaskSpec {
        id,
        lane: Lane::new(column::<&str>(row, 1)?, column::<&str>(row, 2)?).map_err(corrupt)?,
        fingerprint: Fingerprint::of(&payload),
        payload,
        key: (key.map(IdempotencyKey::new).transpose().map_err(corrupt)?)
            .map(|key| (key, more.key_lifetime.unwrap_or_default())),
        group: (column::<Option<&str>>(row, 8)?)
            .map(GroupId::new)
            .transpose()
            .map_err(corrupt)?,
        group_born: optional_revision(row, 5)?,
        owner: name(row, 9, what)?,
        labels,
        retry: more.retry.unwrap_or(RetryPolicy {
            max_attempts: max_attempts.unsigned_abs(),
            ..RetryPolicy::default()
        }),
        attempt_timeout: timeout.map(|micros| Duration::from_micros(micros.unsigned_abs())),
        first_stage: more.first_stage,
        on_failure: more.on_failure,
        trace: column(row, 11)?,
        created_at: column::<At>(row, 4)?.0,
        born: Revision::new(unsigned(column(row, 3)?)?),
        lifecycle: more.lifecycle,
    })
}

fn state_from(row: &Row, what: &str) -> Answer<TaskState> {
    let corrupt = |error: Invalid| Fault::Corrupt(format!("{what}: {error}"));
    let more = match column::<Option<&[u8]>>(row, 27)? {
        Some(body) => decode(what, body)?,
        None => StateMore::default(),
    };
    let priority: i16 = column(row, 16)?;
    let counter = |number| Ok::<_, Fault>(column::<i32>(row, number)?.unsigned_abs());
    let progress: Option<Progress> = match column::<Option<Json>>(row, 26)? {
        Some(progress) => Some(progress.read(what)?),
        None => None,
    };
    let result: Option<&[u8]> = column(row, 33)?;
    let (status, fence) = (
        status_from(column(row, 15)?)?,
        Fence::new(unsigned(column(row, 20)?)?),
    );
    let settled = match worker_from(row, (35, 36), what)? {
        Some(worker) => settled_by(status, fence, &worker),
        None => more.settled,
    };
    Ok(TaskState {
        status,
        priority: Priority::new(u8::try_from(priority).unwrap_or(u8::MAX)).map_err(corrupt)?,
        fence,
        attempts: counter(21)?,
        failures: counter(22)?,
        defeats: more.defeats,
        redrives: more.redrives,
        runnable_at: column::<At>(row, 17)?.0,
        lease: lease_from(row, what)?,
        cancel: more.cancel,
        settled,
        waiting: more.waiting,
        successor: more.successor,
        stage: name(row, 25, what)?,
        progress,
        checkpoint: more.checkpoint,
        attributes: more.attributes,
        errors: more.errors,
        result: result.map(Bytes::copy_from_slice).or(more.result),
        reason: column::<Option<String>>(row, 34)?.or(more.reason),
        started_at: moment(row, 23)?,
        claimed_at: moment(row, 24)?,
        finished_at: moment(row, 32)?,
        modified_at: column::<At>(row, 18)?.0,
        revision: Revision::new(unsigned(column(row, 19)?)?),
    })
}

fn lease_from(row: &Row, what: &str) -> Answer<Option<Lease>> {
    let Some(until) = moment(row, 28)? else {
        return Ok(None);
    };
    match worker_from(row, (30, 31), what)? {
        Some(worker) => Ok(Some(Lease {
            worker,
            until,
            deadline: moment(row, 29)?,
        })),
        None => Err(Fault::Corrupt(format!("{what}: a lease without a holder"))),
    }
}

/// The worker in the columns of its incarnation and its name.
fn worker_from(
    row: &Row,
    (incarnation, worker): (usize, usize),
    what: &str,
) -> Answer<Option<WorkerId>> {
    let incarnation: Option<Id> = column(row, incarnation)?;
    let name = name(row, worker, what)?;
    Ok((name.zip(incarnation)).map(|(name, incarnation)| WorkerId {
        name,
        incarnation: Incarnation::from_u128(incarnation.0),
    }))
}

fn moment(row: &Row, number: usize) -> Answer<Option<plimsoll_core::Timestamp>> {
    Ok(column::<Option<At>>(row, number)?.map(|at| at.0))
}

fn optional_revision(row: &Row, number: usize) -> Answer<Option<Revision>> {
    let found: Option<i64> = column(row, number)?;
    Ok(found.map(unsigned).transpose()?.map(Revision::new))
}

fn name(row: &Row, number: usize, what: &str) -> Answer<Option<Name>> {
    let found: Option<&str> = column(row, number)?;
    let name = found.map(Name::new).transpose();
    name.map_err(|error| Fault::Corrupt(format!("{what}: {error}")))
}
