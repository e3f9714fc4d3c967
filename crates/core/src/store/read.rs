//! The parameters and answers of the reading methods.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::change::{Entry, Interest};
use crate::error::{Invalid, Problem};
use crate::ids::{Fingerprint, Position, TaskId};
use crate::log::{Level, Line};
use crate::names::{GroupId, IdempotencyKey, Key, Name, Prefix};
use crate::record::{Filter, Index, Record};
use crate::store::Range;
use crate::task::{Lane, Status, Task};
use crate::time::Timestamp;

/// Where a page ended. Its text means something to the store that made it, and to nobody else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(String);

impl Cursor {
    /// The cursor of what `scope` names, after the row at `place`.
    pub fn new(scope: &str, place: impl fmt::Display) -> Self {
        Self(format!("{}:{place}", Self::mark(scope)))
    }

    /// The cursor with this text, which a store has answered before.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The place in a cursor that was made for `scope`; anything else is `Invalid`.
    pub fn place<T>(
        cursor: Option<&Self>,
        scope: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Invalid> {
        let Some(cursor) = cursor else {
            return Ok(None);
        };
        let place = cursor.0.strip_prefix(&Self::mark(scope));
        match place.and_then(|place| read(place.strip_prefix(':')?)) {
            Some(place) => Ok(Some(place)),
            None => Err(Invalid::new(
                "cursor",
                Problem::Malformed {
                    expected: "a cursor that was answered for the same question".into(),
                },
            )),
        }
    }

    /// Sixteen digits that are the same for the same scope: long enough to tell a mistake.
    fn mark(scope: &str) -> String {
        let mut mark = Fingerprint::of(scope.as_bytes()).to_string();
        mark.truncate(16);
        mark
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A part of a longer answer. It may be short, even empty, and still not be the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// What was found.
    pub rows: Vec<T>,
    /// Where to go on; `None`: this was the last page.
    pub next: Option<Cursor>,
}

/// Reads records by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// The keys.
    pub keys: Vec<Key>,
}

/// Reads records by prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// What the keys begin with.
    pub prefix: Prefix,
    /// Only what a declared index has in this range, in the order of that index.
    pub range: Option<Range>,
    /// Conditions that all must hold.
    pub filters: Vec<Filter>,
    /// Where the page before ended.
    pub cursor: Option<Cursor>,
    /// How many rows at most.
    pub limit: usize,
}

impl Scan {
    /// The first page of everything with this prefix.
    pub fn new(prefix: Prefix, limit: usize) -> Self {
        Self {
            prefix,
            range: None,
            filters: Vec::new(),
            cursor: None,
            limit,
        }
    }

    /// Reads through the index on this field of the prefix.
    pub fn range(mut self, range: Range) -> Self {
        self.range = Some(range);
        self
    }
}

impl Scan {
    /// The index that a scan of this range reads through.
    pub fn index(&self, range: &Range) -> Index {
        Index {
            prefix: self.prefix.clone(),
            field: range.field.clone(),
        }
    }

    /// Whether to show this record, which was found at `now`.
    pub fn shows(&self, record: &Record, now: Timestamp) -> bool {
        !record.is_expired(now) && (self.filters.iter()).all(|one| one.matches(&record.fields))
    }

    /// What a cursor of this scan is bound to.
    pub fn scope(&self) -> String {
        match &self.range {
            None => format!("scan {}", self.prefix),
            Some(range) => format!("range {:?} {range:?}", self.prefix),
        }
    }
}

impl List {
    /// What a cursor of this list is bound to.
    pub fn scope(&self) -> String {
        format!("list {:?}", self.selector)
    }
}

impl Logs {
    /// What a cursor of this log is bound to.
    pub fn scope(&self) -> String {
        format!("logs {}", self.task)
    }
}

/// Reads tasks by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// The ids.
    pub ids: Vec<TaskId>,
}

/// Reads the task that a key was last given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskByKey {
    /// The key.
    pub key: IdempotencyKey,
}

/// Lists tasks: one indexed selector, then filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Which tasks.
    pub selector: Selector,
    /// Which of these.
    pub filter: TaskFilter,
    /// Where the page before ended.
    pub cursor: Option<Cursor>,
    /// How many rows at most.
    pub limit: usize,
}

impl List {
    /// The first page of everything that the selector selects.
    pub fn new(selector: Selector, limit: usize) -> Self {
        Self {
            selector,
            filter: TaskFilter::default(),
            cursor: None,
            limit,
        }
    }
}

/// What a list is taken from. Each is indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The tasks of a lane that have this status, in id order.
    Lane(Lane, Status),
    /// The members of a group, in id order.
    Group(GroupId),
    /// The tasks of an owner, in id order.
    Owner(Name),
    /// The tasks that keys with this prefix were last given to, in key order.
    Key(Prefix),
    /// The finished tasks of a status that have been kept for at least this long, the longest kept
    /// first: those that [`compact`](crate::Store::compact) with this duration would remove.
    KeptFor(Status, Duration),
}

/// Which of the selected tasks to show. Everything given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// One of these; empty: any.
    pub statuses: Vec<Status>,
    /// With all these labels.
    pub labels: BTreeMap<Name, Name>,
    /// Held by a worker of this name.
    pub worker: Option<Name>,
    /// In this stage.
    pub stage: Option<Name>,
    /// Submitted at or after this moment.
    pub created_from: Option<Timestamp>,
    /// Submitted before this moment.
    pub created_before: Option<Timestamp>,
    /// Ended at or after this moment.
    pub finished_from: Option<Timestamp>,
    /// Ended before this moment.
    pub finished_before: Option<Timestamp>,
}

impl TaskFilter {
    /// Whether to show this task.
    pub fn matches(&self, task: &Task) -> bool {
        let worker = task.lease.as_ref().map(|lease| &lease.worker.name);
        let created = task.spec.created_at;
        let finished = task.finished_at;
        (self.statuses.is_empty() || self.statuses.contains(&task.status))
            && (self.labels.iter()).all(|(name, value)| task.spec.labels.get(name) == Some(value))
            && (self.worker.is_none() || self.worker.as_ref() == worker)
            && (self.stage.is_none() || self.stage == task.stage)
            && self.created_from.is_none_or(|from| created >= from)
            && self.created_before.is_none_or(|before| created < before)
            && (self.finished_from).is_none_or(|from| finished.is_some_and(|at| at >= from))
            && (self.finished_before).is_none_or(|before| finished.is_some_and(|at| at < before))
    }
}

/// Shows the tasks that the next claim would take, without taking them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    /// From these lanes.
    pub lanes: Vec<Lane>,
    /// How many at most.
    pub limit: usize,
}

/// Counts tasks by lane and status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Only of this queue.
    pub queue: Option<Name>,
    /// Only of this kind.
    pub kind: Option<Name>,
}

/// How many tasks a lane has in each status. A status without tasks is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounts {
    /// The lane.
    pub lane: Lane,
    /// How many by status.
    pub by_status: BTreeMap<Status, u64>,
}

/// Reads groups by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The ids.
    pub ids: Vec<GroupId>,
}

/// Reads the log of a task, oldest line first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// The task.
    pub task: TaskId,
    /// Only lines that matter at least as much.
    pub level: Level,
    /// Where the page before ended.
    pub cursor: Option<Cursor>,
    /// How many lines at most.
    pub limit: usize,
}

/// A part of a log. Unlike other pages it always says where to go on: more lines may come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogPage {
    /// The lines.
    pub lines: Vec<Line>,
    /// Where to go on.
    pub next: Cursor,
    /// Whether there is more to read now.
    pub more: bool,
}

/// Reads history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Where to begin.
    pub start: Start,
    /// What to show; empty: everything.
    pub interests: Vec<Interest>,
    /// About how many changes: entries are never split, and there is at least one.
    pub limit: usize,
}

impl Changes {
    /// Everything after this position.
    pub fn after(position: Position, limit: usize) -> Self {
        Self {
            start: Start::After(position),
            interests: Vec::new(),
            limit,
        }
    }

    /// Whether to show this change.
    pub fn shows(&self, change: &crate::change::Change) -> bool {
        self.interests.is_empty() || self.interests.iter().any(|one| one.matches(change))
    }
}

/// Where a reader of history begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest entry that is kept.
    Oldest,
    /// After this position.
    After(Position),
    /// After the newest entry that can be read: answers nothing but where that is.
    Newest,
}

/// A part of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangePage {
    /// Entries with at least one change to show.
    pub entries: Vec<Entry>,
    /// Where to go on. It moves past entries that had nothing to show, too.
    pub next: Position,
    /// Whether there is more to read now.
    pub more: bool,
    /// The newest entry there was. Whoever has read up to here knows all that other reads showed before this one. What
    /// is in flight may hold it back for a moment: then nobody can go on from here yet.
    pub newest: Position,
}
