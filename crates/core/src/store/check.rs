//! Checks of every input, in one place for all stores, before anything is read or written.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::error::{Invalid, Problem};
use crate::ids::TaskId;
use crate::limits::{DURATION_MAX, GROUP_MAX, LEASE_MAX, LEASE_MIN, Limits, NESTING_MAX};
use crate::log::NewLine;
use crate::names::Name;
use crate::record::{Fields, Value, fields_size};
use crate::store::{
    Amend, Changes, Claim, Commit, Compact, DeclareIndex, Due, Ending, FailRetry, Get, Groups,
    Guard, List, Logs, Merge, Peek, Pick, Put, Renew, Scan, Selector, Tasks, Write,
};
use crate::task::{self, Backoff, KeyLifetime, Lane, NewTask, RetryPolicy, Status};

type Checked = Result<(), Invalid>;

/// Something that can be checked against the limits of a store.
pub trait Check {
    /// The first thing that is wrong with it.
    fn check(&self, limits: &Limits) -> Checked;
}

fn count(field: &str, count: usize, max: usize) -> Checked {
    if count > max {
        return Err(Invalid::new(field, Problem::TooMany { count, max }));
    }
    Ok(())
}

fn some(field: &str, len: usize) -> Checked {
    if len == 0 {
        return Err(Invalid::new(field, Problem::Empty));
    }
    Ok(())
}

fn length(field: &str, bytes: usize, max: usize) -> Checked {
    if bytes > max {
        return Err(Invalid::new(field, Problem::TooLong { bytes, max }));
    }
    Ok(())
}

fn text(field: &str, text: &str, limits: &Limits) -> Checked {
    length(field, text.len(), limits.text_bytes_max)?;
    if text.contains('\0') {
        return Err(Invalid::new(field, Problem::Nul));
    }
    Ok(())
}

fn optional_text(field: &str, value: Option<&String>, limits: &Limits) -> Checked {
    value.map_or(Ok(()), |value| text(field, value, limits))
}

fn between(field: &str, value: Duration, min: Duration, max: Duration) -> Checked {
    if value < min || value > max {
        return Err(Invalid::new(
            field,
            Problem::OutOfRange {
                value: format!("{value:?}"),
                min: format!("{min:?}"),
                max: format!("{max:?}"),
            },
        ));
    }
    Ok(())
}

fn number(field: &str, value: u64, min: u64, max: u64) -> Checked {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        Problem::OutOfRange {
            value: value.to_string(),
            min: min.to_string(),
            max: max.to_string(),
        },
    ))
}

fn delay(field: &str, value: Duration) -> Checked {
    between(field, value, Duration::ZERO, DURATION_MAX)
}

fn lease(field: &str, value: Duration) -> Checked {
    between(field, value, LEASE_MIN, LEASE_MAX)
}

fn page(limit: usize, limits: &Limits) -> Checked {
    if limit == 0 || limit > limits.page_max {
        return Err(Invalid::new(
            "limit",
            Problem::OutOfRange {
                value: limit.to_string(),
                min: "1".into(),
                max: limits.page_max.to_string(),
            },
        ));
    }
    Ok(())
}

fn once<T: Ord + ToString>(field: &str, items: impl IntoIterator<Item = T>) -> Checked {
    let mut seen = BTreeSet::new();
    for item in items {
        if seen.contains(&item) {
            return Err(Invalid::new(field, Problem::Repeated(item.to_string())));
        }
        seen.insert(item);
    }
    Ok(())
}

fn contradiction(field: &str, why: &'static str) -> Invalid {
    Invalid::new(field, Problem::Contradiction(why.into()))
}

impl Check for Fields {
    fn check(&self, limits: &Limits) -> Checked {
        count("fields", self.len(), limits.fields_max)?;
        for (name, value) in self {
            length(name.as_str(), value.len(), limits.value_bytes_max)
                .map_err(|invalid| invalid.within("fields"))?;
        }
        length("fields", fields_size(self), limits.record_bytes_max)
    }
}

impl Check for Get {
    fn check(&self, limits: &Limits) -> Checked {
        count("keys", self.keys.len(), limits.page_max)
    }
}

impl Check for Scan {
    fn check(&self, limits: &Limits) -> Checked {
        page(self.limit, limits)?;
        count("filters", self.filters.len(), limits.fields_max)?;
        for filter in &self.filters {
            let bytes = match &filter.value {
                Value::Text(text) => text.len(),
                Value::Integer(_) => 0,
                Value::Bytes(bytes) => bytes.len(),
            };
            length("filters.value", bytes, limits.value_bytes_max)?;
            if matches!(&filter.value, Value::Text(text) if text.contains('\0')) {
                return Err(Invalid::new("filters.value", Problem::Nul));
            }
        }
        Ok(())
    }
}

impl Check for DeclareIndex {
    fn check(&self, limits: &Limits) -> Checked {
        page(self.limit, limits)
    }
}

impl Check for Tasks {
    fn check(&self, limits: &Limits) -> Checked {
        count("ids", self.ids.len(), limits.page_max)
    }
}

impl Check for Groups {
    fn check(&self, limits: &Limits) -> Checked {
        count("ids", self.ids.len(), limits.page_max)
    }
}

impl Check for List {
    fn check(&self, limits: &Limits) -> Checked {
        page(self.limit, limits)?;
        count(
            "filter.statuses",
            self.filter.statuses.len(),
            Status::ALL.len(),
        )?;
        count("filter.labels", self.filter.labels.len(), limits.fields_max)?;
        match &self.selector {
            Selector::KeptFor(status, age) => kept(*status, *age),
            Selector::Lane(..) | Selector::Group(_) | Selector::Owner(_) | Selector::Key(_) => {
                Ok(())
            }
        }
    }
}

/// How long something was kept counts from its end.
fn kept(status: Status, age: Duration) -> Checked {
    if !status.is_terminal() {
        let why = "only finished tasks have been kept for a time";
        return Err(contradiction("selector.status", why));
    }
    delay("selector.age", age)
}

impl Check for Logs {
    fn check(&self, limits: &Limits) -> Checked {
        page(self.limit, limits)
    }
}

impl Check for Changes {
    fn check(&self, limits: &Limits) -> Checked {
        count("interests", self.interests.len(), limits.lanes_max)?;
        page(self.limit, limits)
    }
}

impl Check for Peek {
    fn check(&self, limits: &Limits) -> Checked {
        lanes(&self.lanes, limits)?;
        page(self.limit, limits)
    }
}

fn lanes(lanes: &[Lane], limits: &Limits) -> Checked {
    some("lanes", lanes.len())?;
    count("lanes", lanes.len(), limits.lanes_max)?;
    once("lanes", lanes)
}

impl Check for Claim {
    fn check(&self, limits: &Limits) -> Checked {
        lease("lease", self.lease)?;
        match &self.pick {
            Pick::Next { lanes: from, limit } => {
                lanes(from, limits)?;
                page(*limit, limits)
            }
            Pick::Ids(ids) => {
                some("ids", ids.len())?;
                count("ids", ids.len(), limits.page_max)?;
                once("ids", ids)
            }
        }
    }
}

impl Check for Renew {
    fn check(&self, limits: &Limits) -> Checked {
        count("holders", self.holders.len(), limits.leases_max)?;
        lease("lease", self.lease)
    }
}

impl Check for Due {
    fn check(&self, limits: &Limits) -> Checked {
        page(self.limit, limits)
    }
}

impl Check for Compact {
    fn check(&self, limits: &Limits) -> Checked {
        page(self.limit, limits)?;
        for (status, age) in &self.tasks {
            if !status.is_terminal() {
                return Err(contradiction("tasks", "only finished tasks are removed"));
            }
            delay("tasks", *age)?;
        }
        self.groups.map_or(Ok(()), |age| delay("groups", age))?;
        self.history.map_or(Ok(()), |age| delay("history", age))?;
        self.logs.map_or(Ok(()), |age| delay("logs", age))
    }
}

impl Check for [Commit] {
    fn check(&self, limits: &Limits) -> Checked {
        count("commits", self.len(), limits.commits_max)?;
        let bytes = self.iter().map(Commit::size).sum();
        length("commits", bytes, limits.call_bytes_max)
    }
}

impl Check for Commit {
    fn check(&self, limits: &Limits) -> Checked {
        some("writes", self.guards.len() + self.writes.len())?;
        count("guards", self.guards.len(), limits.commit_writes_max)?;
        count("writes", self.writes.len(), limits.commit_writes_max)?;
        for (index, guard) in self.guards.iter().enumerate() {
            length("value", guard_size(guard), limits.value_bytes_max)
                .map_err(|invalid| invalid.within(format_args!("guards[{index}]")))?;
        }
        for (index, write) in self.writes.iter().enumerate() {
            write
                .check(limits)
                .map_err(|invalid| invalid.within(format_args!("writes[{index}]")))?;
        }
        length("commit", self.size(), limits.commit_bytes_max)?;
        self.check_settles()?;
        self.check_groups()?;
        self.check_repeatable()
    }
}

impl Commit {
    /// About how many bytes it takes, by its values.
    pub fn size(&self) -> usize {
        self.writes.iter().map(Write::size).sum::<usize>()
            + self.guards.iter().map(guard_size).sum::<usize>()
    }

    /// A task is settled once a commit, so that a repeated commit can be told from a new one.
    fn check_settles(&self) -> Checked {
        let settled: Vec<TaskId> = (self.writes.iter())
            .filter_map(|write| match write {
                Write::Settle(settle) => Some(settle.holder.task),
                _ => None,
            })
            .collect();
        once("writes.settle", settled)
    }

    /// Members tell groups of one id apart by the commit that opened them.
    fn check_groups(&self) -> Checked {
        let deletes = |id| {
            (self.writes.iter()).any(|write| matches!(write, Write::DeleteGroup(of) if of == id))
        };
        for write in &self.writes {
            if let Write::OpenGroup(new) = write
                && deletes(&new.id)
            {
                let why = "a group is deleted and opened again in two commits";
                return Err(contradiction("writes.open_group", why));
            }
        }
        Ok(())
    }

    /// What is not safe to repeat by itself needs an id, or a settle whose fence tells.
    fn check_repeatable(&self) -> Checked {
        let settles = (self.writes.iter()).any(|write| matches!(write, Write::Settle(_)));
        let unsafe_to_repeat = self.writes.iter().any(|write| match write {
            Write::Merge(merge) => !merge.add.is_empty(),
            Write::Arrive(..) | Write::Retry(_) | Write::Reopen(_) => true,
            Write::Put(_)
            | Write::Delete(_)
            | Write::Touch(..)
            | Write::ExpireRecord(_)
            | Write::Submit(_)
            | Write::Settle(_)
            | Write::Amend(_)
            | Write::Cancel(_)
            | Write::Prioritise(..)
            | Write::Promote(_)
            | Write::Expire(_)
            | Write::DeleteTask(_)
            | Write::OpenGroup(_)
            | Write::Seal(_)
            | Write::Tally(_)
            | Write::DeleteGroup(_)
            | Write::Log(_) => false,
        });
        if unsafe_to_repeat && !settles && self.id.is_none() {
            return Err(Invalid::new(
                "commit.id",
                Problem::Missing(
                    "add, arrive, retry and reopen are not safe to repeat without one".into(),
                ),
            ));
        }
        Ok(())
    }
}

fn guard_size(guard: &Guard) -> usize {
    match guard {
        Guard::Field(_, _, Some(value)) => value.len(),
        Guard::Field(_, _, None)
        | Guard::RecordAbsent(_)
        | Guard::RecordPresent(_)
        | Guard::RecordAt(..)
        | Guard::Held(_)
        | Guard::TaskAt(..)
        | Guard::GroupOpen(_) => 0,
    }
}

fn names_size<'a>(names: impl IntoIterator<Item = &'a Name>) -> usize {
    names.into_iter().map(|name| name.as_str().len()).sum()
}

impl Write {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        match self {
            Self::Put(put) => fields_size(&put.fields),
            Self::Merge(merge) => {
                let names = merge.unset.iter().chain(merge.add.keys());
                fields_size(&merge.set) + names_size(names.chain(merge.raise.keys()))
            }
            Self::Submit(task) => task.size(),
            Self::Settle(settle) => match &settle.how {
                Ending::Complete { result } => result.as_ref().map_or(0, bytes::Bytes::len),
                Ending::Fail { error, .. } => error.len(),
                Ending::Release { reason } | Ending::Cancel { reason } => {
                    reason.as_ref().map_or(0, String::len)
                }
                Ending::Snooze { .. } => 0,
            },
            Self::Amend(amend) => {
                let progress = amend.progress.as_ref();
                fields_size(&amend.set)
                    + names_size(&amend.unset)
                    + amend.checkpoint.as_ref().map_or(0, bytes::Bytes::len)
                    + (progress.and_then(|p| p.message.as_ref())).map_or(0, String::len)
            }
            Self::OpenGroup(group) => [&group.then, &group.on_first_failure]
                .into_iter()
                .flatten()
                .map(|task| task.size())
                .sum(),
            Self::Log(log) => log.lines.iter().map(NewLine::size).sum(),
            Self::Cancel(cancel) => cancel.reason.as_ref().map_or(0, String::len),
            Self::Delete(_)
            | Self::Touch(..)
            | Self::ExpireRecord(_)
            | Self::Retry(_)
            | Self::Prioritise(..)
            | Self::Promote(_)
            | Self::Expire(_)
            | Self::DeleteTask(_)
            | Self::Arrive(..)
            | Self::Seal(_)
            | Self::Reopen(_)
            | Self::Tally(_)
            | Self::DeleteGroup(_) => 0,
        }
    }
}

impl Check for Write {
    fn check(&self, limits: &Limits) -> Checked {
        match self {
            Self::Put(put) => put.check(limits),
            Self::Merge(merge) => merge.check(limits),
            Self::Touch(_, ttl) => {
                ttl.map_or(Ok(()), |ttl| between("ttl", ttl, LEASE_MIN, DURATION_MAX))
            }
            Self::Submit(task) => task.check(limits),
            Self::Settle(settle) => settle.how.check(limits),
            Self::Amend(amend) => amend.check(limits),
            Self::Cancel(cancel) => optional_text("reason", cancel.reason.as_ref(), limits),
            Self::Retry(retry) => delay("delay", retry.delay),
            Self::OpenGroup(group) => {
                for (field, task) in [
                    ("then", &group.then),
                    ("on_first_failure", &group.on_first_failure),
                ] {
                    let Some(task) = task else { continue };
                    nested(task, limits, NESTING_MAX).map_err(|e| e.within(field))?;
                    if task.group.as_ref() == Some(&group.id) {
                        return Err(contradiction(
                            field,
                            "must not be a member of its own group",
                        ));
                    }
                    if field == "on_first_failure" {
                        ungrouped(task).map_err(|e| e.within(field))?;
                    }
                }
                if let (Some(then), Some(first)) = (&group.then, &group.on_first_failure)
                    && then.id == first.id
                {
                    let id = then.id.to_string();
                    return Err(Invalid::new("on_first_failure.id", Problem::Repeated(id)));
                }
                (group.expected).map_or(Ok(()), |n| number("expected", n, 0, GROUP_MAX))?;
                length("group", self.size(), limits.task_bytes_max)
            }
            Self::Arrive(_, count) => number("count", *count, 1, GROUP_MAX),
            Self::Log(log) => {
                some("lines", log.lines.len())?;
                count("lines", log.lines.len(), limits.log_lines_max)?;
                log.lines.iter().try_for_each(|line| line.check(limits))
            }
            Self::Delete(_)
            | Self::ExpireRecord(_)
            | Self::Prioritise(..)
            | Self::Promote(_)
            | Self::Expire(_)
            | Self::DeleteTask(_)
            | Self::Seal(_)
            | Self::Reopen(_)
            | Self::Tally(_)
            | Self::DeleteGroup(_) => Ok(()),
        }
    }
}

impl Check for Put {
    fn check(&self, limits: &Limits) -> Checked {
        self.fields.check(limits)?;
        self.ttl
            .map_or(Ok(()), |ttl| between("ttl", ttl, LEASE_MIN, DURATION_MAX))
    }
}

impl Check for Merge {
    fn check(&self, limits: &Limits) -> Checked {
        self.set.check(limits)?;
        let names = self.set.keys().chain(&self.unset);
        let names = names.chain(self.add.keys()).chain(self.raise.keys());
        once("fields", names.clone())?;
        count("fields", names.count(), limits.fields_max)
    }
}

impl Check for Ending {
    fn check(&self, limits: &Limits) -> Checked {
        match self {
            Self::Complete { result } => {
                let bytes = result.as_ref().map_or(0, bytes::Bytes::len);
                length("result", bytes, limits.payload_bytes_max)
            }
            Self::Fail { error, retry, .. } => {
                text("error", error, limits)?;
                match retry {
                    FailRetry::After(after) => delay("retry", *after),
                    FailRetry::Policy | FailRetry::Fatal => Ok(()),
                }
            }
            Self::Snooze { delay: by } => delay("delay", *by),
            Self::Release { reason } | Self::Cancel { reason } => {
                optional_text("reason", reason.as_ref(), limits)
            }
        }
    }
}

impl Check for Amend {
    fn check(&self, limits: &Limits) -> Checked {
        self.set.check(limits)?;
        let names = self.set.keys().chain(&self.unset);
        once("attributes", names.clone())?;
        count("attributes", names.count(), limits.fields_max)?;
        let bytes = self.checkpoint.as_ref().map_or(0, bytes::Bytes::len);
        length("checkpoint", bytes, limits.payload_bytes_max)?;
        let Some(progress) = &self.progress else {
            return Ok(());
        };
        optional_text("progress.message", progress.message.as_ref(), limits)?;
        match progress.percent {
            Some(percent) if percent > 100 => Err(Invalid::new(
                "progress.percent",
                Problem::OutOfRange {
                    value: percent.to_string(),
                    min: "0".into(),
                    max: "100".into(),
                },
            )),
            _ => Ok(()),
        }
    }
}

impl Check for NewLine {
    fn check(&self, limits: &Limits) -> Checked {
        text("lines.message", &self.message, limits)?;
        let bytes = self.metadata.as_ref().map_or(0, bytes::Bytes::len);
        length("lines.metadata", bytes, limits.text_bytes_max)?;
        let Some(step) = &self.step else {
            return Ok(());
        };
        for (field, value) in [
            ("lines.step.command", &step.command),
            ("lines.step.stdout", &step.stdout),
            ("lines.step.stderr", &step.stderr),
            ("lines.step.error", &step.error),
        ] {
            optional_text(field, value.as_ref(), limits)?;
        }
        if let Some(duration) = step.duration_ms {
            delay("lines.step.duration_ms", Duration::from_millis(duration))?;
        }
        match step.completed_at {
            Some(completed) if completed < step.started_at => Err(contradiction(
                "lines.step.completed_at",
                "must not be before started_at",
            )),
            _ => Ok(()),
        }
    }
}

impl Check for NewTask {
    fn check(&self, limits: &Limits) -> Checked {
        length("payload", self.payload.len(), limits.payload_bytes_max)?;
        length("task", self.size(), limits.task_bytes_max)?;
        count("labels", self.labels.len(), limits.fields_max)?;
        optional_text("trace", self.trace.as_ref(), limits)?;
        self.retry.check(limits)?;
        match self.due {
            task::Due::After(after) => delay("due", after)?,
            task::Due::Now | task::Due::At(_) => {}
        }
        if let Some(timeout) = self.attempt_timeout {
            between("attempt_timeout", timeout, LEASE_MIN, DURATION_MAX)?;
        }
        if let Some(KeyLifetime::For(lifetime)) = self.key.as_ref().map(|key| key.lifetime) {
            between("key.lifetime", lifetime, LEASE_MIN, DURATION_MAX)?;
        }
        if self.lifecycle.is_some() && self.first_stage.is_some() {
            return Err(contradiction(
                "first_stage",
                "a lifecycle says which stage is the first",
            ));
        }
        let Some(task) = &self.on_failure else {
            return Ok(());
        };
        let nested_ids = std::iter::successors(Some(self), |task| task.on_failure.as_deref());
        once(
            "on_failure.id",
            nested_ids.take(NESTING_MAX + 1).map(|task| task.id),
        )?;
        nested(task, limits, NESTING_MAX - 1)
            .and_then(|()| ungrouped(task))
            .map_err(|invalid| invalid.within("on_failure"))
    }
}

/// A group counts its members beforehand, and this one may never be submitted.
fn ungrouped(task: &NewTask) -> Checked {
    match task.group {
        Some(_) => Err(contradiction(
            "group",
            "a task that may never run cannot be a member",
        )),
        None => Ok(()),
    }
}

/// A task that the store submits by itself has a fixed id, so a key could only contradict it.
fn nested(task: &NewTask, limits: &Limits, depth: usize) -> Checked {
    if task.key.is_some() {
        return Err(contradiction(
            "key",
            "a task submitted by the store has a fixed id instead",
        ));
    }
    let nesting = std::iter::successors(Some(task), |task| task.on_failure.as_deref());
    count("on_failure", nesting.count(), depth)?;
    task.check(limits)
}

impl Check for RetryPolicy {
    fn check(&self, _: &Limits) -> Checked {
        if self.jitter_percent > 100 {
            return Err(Invalid::new(
                "retry.jitter_percent",
                Problem::OutOfRange {
                    value: self.jitter_percent.to_string(),
                    min: "0".into(),
                    max: "100".into(),
                },
            ));
        }
        self.total
            .map_or(Ok(()), |total| delay("retry.total", total))?;
        match &self.backoff {
            Backoff::Fixed(wait) => delay("retry.backoff", *wait),
            Backoff::Exponential { first, factor, cap } => {
                delay("retry.backoff.first", *first)?;
                delay("retry.backoff.cap", *cap)?;
                if (1.0..=100.0).contains(factor) {
                    return Ok(());
                }
                Err(Invalid::new(
                    "retry.backoff.factor",
                    Problem::OutOfRange {
                        value: factor.to_string(),
                        min: "1".into(),
                        max: "100".into(),
                    },
                ))
            }
        }
    }
}
