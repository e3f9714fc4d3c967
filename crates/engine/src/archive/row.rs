//! How records spell an archived task.
//!
//! The record of a task has one field for each thing that is known of it, under the names of the
//! `jobs` table that people know. What does not fit into one record lies in parts beside it, which
//! come and go with it. The author's attributes are a record of their own.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::limits::Limits;
use plimsoll_core::record::{Fields, Record, fields_size};
use plimsoll_core::store::Put;
use plimsoll_core::task::{Lane, Status, Task};
use plimsoll_core::{Invalid, Key, Name, Result, TaskId, Timestamp};
use serde_json::json;

use crate::fields::Reader;

/// The records of tasks.
pub(super) const HEADS: &str = "plimsoll.archive.tasks.";
/// What did not fit into them.
const PARTS: &str = "plimsoll.archive.parts.";
/// Ends the name of a field that says how many parts another field has.
const COUNT: &str = ".parts";
/// Says that there is a record of attributes.
const ATTRIBUTES: &str = "attributes";
/// The only field of a part.
const PART: &str = "part";

/// What is kept of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Its id.
    pub id: TaskId,
    /// How it ended.
    pub status: Status,
    /// Queue and kind.
    pub lane: Lane,
    /// Whose it was.
    pub owner: Option<Name>,
    /// All that is known of it, by the names of the guide to workers.
    pub fields: Fields,
    /// What its author had attached to it.
    pub attributes: Fields,
    /// Fields that were too large for a list.
    pub left_out: BTreeSet<Name>,
}

impl Archived {
    /// What is kept of this task.
    pub fn of(task: &Task) -> Result<Self, Invalid> {
        let mut fields = Fields::new();
        for (name, value) in facts(task) {
            fields.extend(match value {
                Some(value) => Some((Name::new(name)?, value)),
                None => None,
            });
        }
        Ok(Self {
            id: task.id(),
            status: task.status,
            lane: task.spec.lane.clone(),
            owner: task.spec.owner.clone(),
            fields,
            attributes: task.attributes.clone(),
            left_out: BTreeSet::new(),
        })
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&Bytes> {
        self.fields.get(name)
    }

    /// The records that keep it: one, and more for what does not fit into one.
    pub(super) fn puts(&self, limits: &Limits, ttl: Option<Duration>) -> Result<Vec<Put>, Invalid> {
        let mut head = Fields::new();
        let mut puts = Vec::new();
        // What is small and searched for comes first, so it always fits.
        let mut by_size: Vec<(&Name, &Bytes)> = self.fields.iter().collect();
        by_size.sort_by_key(|(_, value)| value.len());
        // Room for the counts of parts.
        let head_max = limits.record_bytes_max - limits.record_bytes_max / 16;
        let part_max = limits
            .value_bytes_max
            .min(limits.record_bytes_max - PART.len());
        for (name, value) in by_size {
            let size = fields_size(&head) + name.as_str().len() + value.len();
            if size <= head_max && value.len() <= limits.value_bytes_max {
                head.insert(name.clone(), value.clone());
                continue;
            }
            let parts = value.chunks(part_max.max(1));
            head.insert(Name::new(format!("{name}{COUNT}"))?, number(parts.len()));
            for (n, part) in parts.enumerate() {
                let part = (Name::new(PART)?, value.slice_ref(part));
                puts.push(Put::new(part_key(self.id, name, n)?, [part].into()));
            }
        }
        if !self.attributes.is_empty() {
            let count = Name::new(format!("{ATTRIBUTES}{COUNT}"))?;
            head.insert(count, number(1));
            let key = part_key(self.id, &Name::new(ATTRIBUTES)?, 0)?;
            puts.push(Put::new(key, self.attributes.clone()));
        }
        puts.push(Put::new(head_key(self.id)?, head));
        for put in &mut puts {
            put.ttl = ttl;
        }
        Ok(puts)
    }

    /// Reads it from its record, and leaves out what is in parts.
    pub(super) fn listed(head: &Record) -> Result<Self> {
        let mut archived = Self::head(head)?;
        let left_out = counts(head)?.into_iter().map(|(name, _)| name);
        archived.left_out = left_out.collect();
        Ok(archived)
    }

    /// Reads it from its record and all its parts, in the order of [`part_keys`]. One that is missing
    /// is `Corrupt`.
    pub(super) fn whole(head: &Record, parts: Vec<Record>) -> Result<Self> {
        let bad = |field: &Name| Reader(head).bad(field.as_str());
        let mut archived = Self::head(head)?;
        let mut parts = parts.into_iter().peekable();
        for (name, count) in counts(head)? {
            let mut value = Vec::new();
            for n in 0..count {
                let key = part_key(archived.id, &name, n)?;
                let part = parts.next_if(|part| part.key == key);
                let part = part.ok_or_else(|| bad(&name))?;
                if name.as_str() == ATTRIBUTES {
                    archived.attributes = part.fields;
                    continue;
                }
                value.extend_from_slice(part.field(PART).ok_or_else(|| bad(&name))?);
            }
            if name.as_str() != ATTRIBUTES {
                archived.fields.insert(name, value.into());
            }
        }
        Ok(archived)
    }

    /// What its record alone says.
    fn head(head: &Record) -> Result<Self> {
        let read = Reader(head);
        let status = read.text("status")?;
        let status = Status::ALL.into_iter().find(|one| one.as_str() == status);
        let name = |read: &Reader<'_>, field: &str| {
            Name::new(read.text(field)?).map_err(|_| read.bad(field))
        };
        let mut fields = head.fields.clone();
        fields.retain(|name, _| !name.as_str().ends_with(COUNT));
        Ok(Self {
            id: TaskId::parse(read.text("job_id")?).map_err(|_| read.bad("job_id"))?,
            status: status.ok_or_else(|| read.bad("status"))?,
            lane: Lane {
                queue: name(&read, "queue")?,
                kind: name(&read, "kind")?,
            },
            owner: read.optional("user_id", name)?,
            fields,
            attributes: Fields::new(),
            left_out: BTreeSet::new(),
        })
    }
}

/// What is known of a task, by name.
fn facts(task: &Task) -> [(&'static str, Option<Bytes>); 29] {
    let spec = &task.spec;
    let text = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    let at = |at: Timestamp| Some(number(at.as_micros()));
    let key = spec.key.as_ref();
    let errors = (!task.errors.is_empty()).then(|| Bytes::from(json!(task.errors).to_string()));
    let labels = (!spec.labels.is_empty()).then(|| Bytes::from(json!(spec.labels).to_string()));
    let progress = task.progress.as_ref();
    let max_retries = spec.retry.max_attempts.checked_sub(1);
    [
        ("job_id", text(&task.id().to_string())),
        (
            "user_id",
            spec.owner.as_ref().and_then(|owner| text(owner.as_str())),
        ),
        ("status", text(task.status.as_str())),
        ("priority", Some(number(task.priority.get()))),
        ("queue", text(spec.lane.queue.as_str())),
        ("kind", text(spec.lane.kind.as_str())),
        ("spec", Some(spec.payload.clone())),
        ("output", task.result.clone()),
        ("checkpoint", task.checkpoint.clone()),
        ("created_at", at(spec.created_at)),
        ("updated_at", at(task.modified_at)),
        ("started_at", task.started_at.and_then(at)),
        ("completed_at", task.finished_at.and_then(at)),
        ("worker_claimed_at", task.claimed_at.and_then(at)),
        ("run_at", at(task.runnable_at)),
        (
            "stage",
            task.stage.as_ref().and_then(|stage| text(stage.as_str())),
        ),
        (
            "progress",
            progress.map(|progress| Bytes::from(json!(progress).to_string())),
        ),
        ("error", task.reason.as_deref().and_then(text)),
        ("errors", errors),
        ("worker_id", worker(task).and_then(|worker| text(&worker))),
        ("attempts", Some(number(task.attempts))),
        ("retry_count", Some(number(task.failures))),
        // No limit is no number.
        ("max_retries", max_retries.map(number)),
        ("redrives", Some(number(task.redrives))),
        ("labels", labels),
        (
            "idempotency_key",
            key.and_then(|(key, _)| text(key.as_str())),
        ),
        (
            "group",
            spec.group.as_ref().and_then(|group| text(group.as_str())),
        ),
        ("trace", spec.trace.as_deref().and_then(text)),
        ("fence", Some(number(task.fence))),
    ]
}

/// Who settled it last: name and life, or its life alone if an older program has not kept the name.
fn worker(task: &Task) -> Option<String> {
    let settled = task.settled.as_ref()?;
    let known = task.errors.iter().map(|error| &error.worker);
    let known = known
        .into_iter()
        .find(|known| known.incarnation == settled.by);
    let name = (settled.worker.as_ref()).or(known.map(|known| &known.name));
    Some(match name {
        Some(name) => format!("{name}#{}", settled.by),
        None => settled.by.to_string(),
    })
}

pub(super) fn head_key(id: TaskId) -> Result<Key, Invalid> {
    Key::new(format!("{HEADS}{id}"))
}

fn part_key(id: TaskId, field: &Name, n: usize) -> Result<Key, Invalid> {
    Key::new(format!("{PARTS}{id}.{field}.{n}"))
}

/// The parts beside a record, in the order in which [`Archived::whole`] takes them.
pub(super) fn part_keys(head: &Record) -> Result<Vec<Key>> {
    let id = head.key.as_str().strip_prefix(HEADS).unwrap_or_default();
    let id = TaskId::parse(id).map_err(|_| Reader(head).bad("job_id"))?;
    let mut keys = Vec::new();
    for (name, count) in counts(head)? {
        for n in 0..count {
            keys.push(part_key(id, &name, n)?);
        }
    }
    Ok(keys)
}

/// How many parts its fields have, of those that have any.
fn counts(head: &Record) -> Result<Vec<(Name, usize)>> {
    let mut counts = Vec::new();
    let read = Reader(head);
    for field in head.fields.keys() {
        let Some(name) = field.as_str().strip_suffix(COUNT) else {
            continue;
        };
        // A commit has fewer writes than this: more is a mistake, and would be a lot to read.
        let count = read.number(field.as_str()).ok();
        let count = count.filter(|count: &usize| *count <= 10_000);
        let bad = || read.bad(field.as_str());
        counts.push((Name::new(name).map_err(|_| bad())?, count.ok_or_else(bad)?));
    }
    Ok(counts)
}

fn number(number: impl ToString) -> Bytes {
    Bytes::from(number.to_string())
}
