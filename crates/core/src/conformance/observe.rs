//! What can be seen of a store: reads that cases compare before and after, and the outcomes,
//! changes and errors that they expect.

use crate::change::{Change, Entry, Removal, TaskEvent};
use crate::conformance::world::{World, text};
use crate::error::Result;
use crate::ids::TaskId;
use crate::log::{Level, Line};
use crate::record::{Fields, Record};
use crate::store::{List, Logs, Outcome, Start, SubmitOutcome, Submitted, Tasks};
use crate::task::{AttemptError, FailureKind, Holder, Status, Task};
use crate::time::Timestamp;

/// Where the history ends now.
pub(super) async fn here(w: &World) -> Result<Start> {
    Ok(Start::After(w.history_from(Start::Newest).await?.next))
}

/// Every change from here to the end of the history.
pub(super) async fn changes_since(w: &World, start: Start) -> Result<Vec<Change>> {
    let entries = w.history_from(start).await?.entries;
    Ok(entries.into_iter().flat_map(|e| e.changes).collect())
}

/// What happened to tasks since; nothing else may have happened.
pub(super) async fn events_since(w: &World, start: Start) -> Result<Vec<(TaskId, TaskEvent)>> {
    let changes = changes_since(w, start).await?.into_iter();
    Ok(changes
        .map(|change| match change {
            Change::Task(task) => (task.id, task.event),
            other => panic!("expected changes of tasks only, got {other:?}"),
        })
        .collect())
}

/// What happened to a task so far, and what it was then.
pub(super) async fn events_of(w: &World, task: TaskId) -> Result<Vec<(TaskEvent, Status)>> {
    let changes = changes_since(w, Start::Oldest).await?.into_iter();
    let of_task = changes.filter_map(|change| match change {
        Change::Task(change) if change.id == task => Some((change.event, change.status)),
        Change::Task(_) | Change::Put(_) | Change::Removed { .. } | Change::Group { .. } => None,
    });
    Ok(of_task.collect())
}

/// These tasks and the whole history: what a call without effect leaves as it was.
pub(super) async fn seen(w: &World, tasks: &[TaskId]) -> Result<(Vec<Option<Task>>, Vec<Entry>)> {
    let ids = tasks.to_vec();
    let tasks = w.store.tasks(Tasks { ids }).await?;
    Ok((tasks, w.history().await?.entries))
}

/// The log of a task, as far as one page goes.
pub(super) async fn lines(w: &World, task: TaskId) -> Result<Vec<Line>> {
    let logs = Logs {
        task,
        level: Level::Debug,
        cursor: None,
        limit: 1_000,
    };
    Ok(w.store.logs(logs).await?.lines)
}

/// Reads all pages of a list.
pub(super) async fn listed(w: &World, mut list: List) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    for _ in 0..2_000 {
        let page = w.store.list(list.clone()).await?;
        assert!(page.rows.len() <= list.limit, "a page is too long");
        tasks.extend(page.rows);
        match page.next {
            Some(next) => list.cursor = Some(next),
            None => return Ok(tasks),
        }
    }
    panic!("the listing does not end: {list:?}");
}

/// A field of a record as text, if both are there.
pub(super) async fn field(w: &World, key: &str, name: &str) -> Result<Option<String>> {
    let record = w.record(key).await?;
    Ok(record.and_then(|record| text(&record.fields, name)))
}

/// Asserts that the record is there with these fields.
pub(super) async fn assert_fields(w: &World, key: &str, expected: Fields) -> Result<()> {
    let record = w.record(key).await?;
    assert_eq!(record.map(|record| record.fields), Some(expected), "{key}");
    Ok(())
}

/// Asserts that `after` is `before`, written just now, with this edit and no other.
pub(super) fn assert_only(w: &World, before: &Task, after: &Task, edit: impl FnOnce(&mut Task)) {
    let mut expected = before.clone();
    expected.modified_at = w.now();
    expected.revision = after.revision;
    edit(&mut expected);
    assert_eq!(*after, expected);
    assert!(after.revision > before.revision, "the revision must grow");
}

pub(super) fn created(id: TaskId) -> Submitted {
    Submitted {
        id,
        outcome: SubmitOutcome::Created,
    }
}

pub(super) fn already(status: Status) -> Outcome {
    Outcome::Already { status }
}

pub(super) fn settled(status: Status, runnable_at: Option<Timestamp>) -> Outcome {
    Outcome::Settled {
        status,
        runnable_at,
    }
}

/// That a record has gone, as the history tells it.
pub(super) fn removed(record: &Record, how: Removal) -> Change {
    Change::Removed {
        key: record.key.clone(),
        revision: record.revision,
        how,
    }
}

/// What is kept of an attempt that ended just now.
pub(super) fn attempt_error(
    w: &World,
    held: &Holder,
    kind: FailureKind,
    message: &str,
) -> AttemptError {
    AttemptError {
        fence: held.fence,
        worker: held.worker.clone(),
        at: w.now(),
        kind,
        message: message.to_owned(),
        stage: None,
    }
}
