//! A commit on its way: what it has read and written so far, and what follows from that.
//!
//! Every change of a task passes [`Draft::put_task`], so whatever ends or revives a task, its
//! group, its successor and its failure task hear of it in the same commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::{Change, GroupEvent, Removal, TaskChange, TaskEvent};
use crate::decide::commit::Refused;
use crate::decide::group::{self, Effects};
use crate::decide::task::Verdict;
use crate::decide::{Moment, RowId, Rows, submit, task};
use crate::error::NotFound;
use crate::group::Group;
use crate::ids::TaskId;
use crate::log::Line;
use crate::names::{GroupId, IdempotencyKey, Key};
use crate::record::Record;
use crate::task::{NewTask, Status, Task};

pub(super) type Step<T> = Result<T, Refused>;

/// Something for the history, in the order in which it happened.
enum Mark {
    /// This record was written; what it holds in the end is looked up in the end.
    Record(Key),
    Change(Change),
}

pub(super) struct Draft<'a> {
    pub(super) moment: Moment<'a>,
    rows: &'a Rows,
    records: BTreeMap<Key, Option<Record>>,
    keys: BTreeMap<IdempotencyKey, Option<TaskId>>,
    tasks: BTreeMap<TaskId, Option<Task>>,
    groups: BTreeMap<GroupId, Option<Group>>,
    marks: Vec<Mark>,
    pub(super) lines: Vec<(TaskId, Line)>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(rows: &'a Rows, moment: Moment<'a>) -> Self {
        Self {
            moment,
            rows,
            records: BTreeMap::new(),
            keys: BTreeMap::new(),
            tasks: BTreeMap::new(),
            groups: BTreeMap::new(),
            marks: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// The record, if it is there and has not expired.
    pub(super) fn record(&self, key: &Key) -> Step<Option<&Record>> {
        let stored = match self.records.get(key) {
            Some(written) => written.as_ref(),
            None => loaded(self.rows.records.get(key), || RowId::Record(key.clone()))?,
        };
        Ok(super::record::live(stored, &self.moment))
    }

    pub(super) fn key(&self, key: &IdempotencyKey) -> Step<Option<TaskId>> {
        match self.keys.get(key) {
            Some(written) => Ok(*written),
            None => Ok(loaded(self.rows.keys.get(key), || RowId::Key(key.clone()))?.copied()),
        }
    }

    pub(super) fn find_task(&self, id: TaskId) -> Step<Option<&Task>> {
        match self.tasks.get(&id) {
            Some(written) => Ok(written.as_ref()),
            None => loaded(self.rows.tasks.get(&id), || RowId::Task(id)),
        }
    }

    pub(super) fn task(&self, id: TaskId) -> Step<Task> {
        let task = self.find_task(id)?.cloned();
        task.ok_or_else(|| Refused::Error(NotFound::Task(id).into()))
    }

    pub(super) fn find_group(&self, id: &GroupId) -> Step<Option<&Group>> {
        match self.groups.get(id) {
            Some(written) => Ok(written.as_ref()),
            None => loaded(self.rows.groups.get(id), || RowId::Group(id.clone())),
        }
    }

    pub(super) fn group(&self, id: &GroupId) -> Step<Group> {
        let group = self.find_group(id)?.cloned();
        group.ok_or_else(|| Refused::Error(NotFound::Group(id.clone()).into()))
    }

    /// Writes a record, or removes it.
    pub(super) fn put_record(&mut self, key: &Key, record: Option<Record>) {
        self.marks.push(Mark::Record(key.clone()));
        self.records.insert(key.clone(), record);
    }

    /// Writes a record without a word in the history.
    pub(super) fn put_record_quietly(&mut self, record: Record) {
        self.records.insert(record.key.clone(), Some(record));
    }

    pub(super) fn put_key(&mut self, key: &IdempotencyKey, task: Option<TaskId>) {
        self.keys.insert(key.clone(), task);
    }

    /// Submits a new task and counts it in its group.
    pub(super) fn create_task(&mut self, task: Task) -> Step<()> {
        if let Some(id) = task.spec.group.clone() {
            let mut group = self.group(&id)?;
            group::admits(&group, 1)?;
            let effects = group::spawn(&mut group);
            self.put_group(group, effects)?;
        }
        self.put_new(task);
        Ok(())
    }

    fn put_new(&mut self, task: Task) {
        let change = TaskChange::new(&task, TaskEvent::Submitted);
        self.marks.push(Mark::Change(Change::Task(change)));
        self.tasks.insert(task.id(), Some(task));
    }

    /// Writes a task, with all that follows from its ending or from its running again.
    pub(super) fn put_task(&mut self, before: &Task, after: Task, event: TaskEvent) -> Step<()> {
        self.marks
            .push(Mark::Change(Change::Task(TaskChange::new(&after, event))));
        self.tasks.insert(after.id(), Some(after.clone()));
        match (before.status.is_terminal(), after.status.is_terminal()) {
            (false, true) => self.task_ended(before, &after),
            (true, false) => self.task_revived(before),
            (false, false) | (true, true) => Ok(()),
        }
    }

    fn task_ended(&mut self, before: &Task, task: &Task) -> Step<()> {
        if let Some(waiting) = &before.waiting {
            self.give_key_back(task, waiting.on)?;
        }
        if let Some(id) = &task.spec.group
            && let Some(mut group) = self.find_group(id)?.cloned()
        {
            let now = self.moment.now;
            let effects = group::member_ended(&mut group, task.id(), task.status, now);
            self.put_group(group, effects)?;
        }
        if let Some(successor) = task.successor
            && let Some(waiting) = self.find_task(successor)?.cloned()
            && let Verdict::Changed(after, event) = task::unblock(&waiting, &self.moment)
        {
            self.put_task(&waiting, *after, event)?;
        }
        match (&task.spec.on_failure, task.status) {
            (Some(new), Status::Failed) => self.fire(NewTask {
                id: new.id.nth(task.redrives),
                ..new.as_ref().clone()
            }),
            _ => Ok(()),
        }
    }

    /// A task that never got its turn leaves its key to the one it waited for, which still runs:
    /// otherwise the key would be free while that work goes on.
    fn give_key_back(&mut self, task: &Task, predecessor: TaskId) -> Step<()> {
        let Some((key, _)) = &task.spec.key else {
            return Ok(());
        };
        if self.key(key)? == Some(task.id()) {
            self.put_key(key, Some(predecessor));
        }
        Ok(())
    }

    fn task_revived(&mut self, before: &Task) -> Step<()> {
        let Some(id) = &before.spec.group else {
            return Ok(());
        };
        let Some(mut group) = self.find_group(id)?.cloned() else {
            return Ok(());
        };
        let effects = group::member_revived(&mut group, before.status);
        self.put_group(group, effects)
    }

    /// Writes a group, with all that follows from what happened to it.
    pub(super) fn put_group(&mut self, mut group: Group, effects: Effects) -> Step<()> {
        group.modified_at = self.moment.now;
        for event in &effects.events {
            self.mark_group(&group, *event);
        }
        // Its `then` was counted by the outer group for one generation; a new one counts again.
        let again = effects.events.contains(&GroupEvent::Reopened);
        let outer = group.then.as_ref().and_then(|then| then.group.clone());
        self.groups.insert(group.id.clone(), Some(group));
        if let (true, Some(id)) = (again, outer)
            && let Some(mut outer) = self.find_group(&id)?.cloned()
        {
            let effects = group::expect_again(&mut outer);
            self.put_group(outer, effects)?;
        }
        effects
            .submit
            .into_iter()
            .try_for_each(|new| self.fire(new))
    }

    pub(super) fn mark_group(&mut self, group: &Group, event: GroupEvent) {
        self.marks.push(Mark::Change(Change::Group {
            id: group.id.clone(),
            generation: group.generation,
            event,
        }));
    }

    /// Submits a task on the store's own account. Its group has counted it beforehand.
    fn fire(&mut self, new: NewTask) -> Step<()> {
        if self.find_task(new.id)?.is_none() {
            let task = submit::create(&new, None, &self.moment)?;
            self.put_new(task);
            return Ok(());
        }
        // Somebody used the id before: what the group has counted will never run.
        self.give_up(new.group.as_ref())
    }

    /// Tells a group that a task it has counted beforehand will never run.
    pub(super) fn give_up(&mut self, group: Option<&GroupId>) -> Step<()> {
        if let Some(id) = group
            && let Some(mut group) = self.find_group(id)?.cloned()
        {
            let effects = group::member_given_up(&mut group, self.moment.now);
            self.put_group(group, effects)?;
        }
        Ok(())
    }

    /// Makes `successor` run once `task` has ended.
    pub(super) fn set_successor(&mut self, task: TaskId, successor: TaskId) -> Step<()> {
        let mut task = self.task(task)?;
        task.successor = Some(successor);
        task.revision = self.moment.revision;
        self.tasks.insert(task.id(), Some(task));
        Ok(())
    }

    /// Removes a finished task.
    pub(super) fn remove_task(&mut self, task: &Task) {
        let change = TaskChange::new(task, TaskEvent::Deleted);
        self.marks.push(Mark::Change(Change::Task(change)));
        self.tasks.insert(task.id(), None);
        // Lines that this very commit appended go with it.
        self.lines.retain(|(id, _)| *id != task.id());
    }

    pub(super) fn remove_group(&mut self, group: &Group) {
        self.mark_group(group, GroupEvent::Deleted);
        self.groups.insert(group.id.clone(), None);
    }

    /// Hands over what was written and what is to be told.
    pub(super) fn finish(self) -> Finished {
        let changes = self.changes();
        Finished {
            records: self.records,
            keys: self.keys,
            tasks: self.tasks,
            groups: self.groups,
            lines: self.lines,
            changes,
        }
    }

    fn changes(&self) -> Vec<Change> {
        let mut seen = BTreeSet::new();
        let mut changes = Vec::with_capacity(self.marks.len());
        for mark in &self.marks {
            match mark {
                Mark::Change(change) => changes.push(change.clone()),
                // One change for each record, however often the commit wrote it.
                Mark::Record(key) if seen.insert(key) => self.record_changes(key, &mut changes),
                Mark::Record(_) => {}
            }
        }
        changes
    }

    fn record_changes(&self, key: &Key, changes: &mut Vec<Change>) {
        let before = self.rows.records.get(key).flatten();
        let after = self.records.get(key).and_then(Option::as_ref);
        let how = match before {
            Some(before) if before.is_expired(self.moment.now) => Some(Removal::Expired),
            Some(_) if after.is_none() => Some(Removal::Deleted),
            Some(_) | None => None,
        };
        if let (Some(before), Some(how)) = (before, how) {
            changes.push(Change::Removed {
                key: key.clone(),
                revision: before.revision,
                how,
            });
        }
        changes.extend(after.cloned().map(Change::Put));
    }
}

/// What a commit leaves.
pub(super) struct Finished {
    pub(super) records: BTreeMap<Key, Option<Record>>,
    pub(super) keys: BTreeMap<IdempotencyKey, Option<TaskId>>,
    pub(super) tasks: BTreeMap<TaskId, Option<Task>>,
    pub(super) groups: BTreeMap<GroupId, Option<Group>>,
    pub(super) lines: Vec<(TaskId, Line)>,
    pub(super) changes: Vec<Change>,
}

impl Finished {
    /// Writes everything to the rows that later commits see.
    pub(super) fn write(self, rows: &mut Rows) -> (Vec<Change>, Vec<(TaskId, Line)>) {
        let Self {
            records,
            keys,
            tasks,
            groups,
            lines,
            changes,
        } = self;
        (records.into_iter()).for_each(|(key, row)| rows.records.write(key, row));
        (keys.into_iter()).for_each(|(key, row)| rows.keys.write(key, row));
        (tasks.into_iter()).for_each(|(id, row)| rows.tasks.write(id, row));
        (groups.into_iter()).for_each(|(id, row)| rows.groups.write(id, row));
        (changes, lines)
    }
}

fn loaded<T>(row: Option<Option<&T>>, id: impl FnOnce() -> RowId) -> Step<Option<&T>> {
    row.ok_or_else(|| Refused::Missing(id()))
}
