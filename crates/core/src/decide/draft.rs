//! A commit on its way: what it has read and written so far, and what follows from that.
//!
//! Every end and revival of a task passes [`Draft::put_task`], so whatever causes it, the task's
//! group, its successor and its failure task hear of it in the same commit. Counts, keys and
//! waiting tasks change at once: later writes of the commit see that. Groups drain after the last
//! write, when all that the commit adds to them is known: so a task that leaves an inner group in
//! its place does not drain the outer one, whichever of the two writes comes first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::change::{Change, GroupEvent, Removal, TaskChange, TaskEvent};
use crate::decide::commit::Refused;
use crate::decide::group::{self, Effects};
use crate::decide::task::Verdict;
use crate::decide::{Moment, RowId, Rows, submit, task};
use crate::error::NotFound;
use crate::group::Group;
use crate::ids::{Revision, TaskId};
use crate::log::Line;
use crate::names::{GroupId, IdempotencyKey, Key};
use crate::record::Record;
use crate::task::{Due, NewTask, Status, Task};

pub(super) type Step<T> = Result<T, Refused>;

/// Something for the history, in the order in which it happened.
enum Mark {
    /// This record was written; what it holds in the end is looked up in the end.
    Record(Key),
    Change(Change),
}

/// A group, told from others that had the same id before or have it since.
#[derive(Clone)]
pub(super) struct Outer {
    pub(super) id: GroupId,
    pub(super) born: Revision,
}

pub(super) struct Draft<'a> {
    pub(super) moment: Moment<'a>,
    rows: &'a Rows,
    records: BTreeMap<Key, Option<Record>>,
    keys: BTreeMap<IdempotencyKey, Option<TaskId>>,
    tasks: BTreeMap<TaskId, Option<Arc<Task>>>,
    groups: BTreeMap<GroupId, Option<Group>>,
    marks: Vec<Mark>,
    /// Groups that may be complete, in the order in which they were written.
    touched: VecDeque<GroupId>,
    pub(super) lines: Vec<(TaskId, Line)>,
}

/// Reading.
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
            touched: VecDeque::new(),
            lines: Vec::new(),
        }
    }

    /// The record, if it is there and has not expired.
    pub(super) fn record(&self, key: &Key) -> Step<Option<&Record>> {
        Ok(super::record::live(self.stored_record(key)?, &self.moment))
    }

    /// The record, expired or not.
    pub(super) fn stored_record(&self, key: &Key) -> Step<Option<&Record>> {
        match self.records.get(key) {
            Some(written) => Ok(written.as_ref()),
            None => loaded(self.rows.records.get(key), || RowId::Record(key.clone())),
        }
    }

    pub(super) fn key(&self, key: &IdempotencyKey) -> Step<Option<TaskId>> {
        match self.keys.get(key) {
            Some(written) => Ok(*written),
            None => Ok(loaded(self.rows.keys.get(key), || RowId::Key(key.clone()))?.copied()),
        }
    }

    pub(super) fn find_task(&self, id: TaskId) -> Step<Option<&Arc<Task>>> {
        match self.tasks.get(&id) {
            Some(written) => Ok(written.as_ref()),
            None => loaded(self.rows.tasks.get(&id), || RowId::Task(id)),
        }
    }

    pub(super) fn task(&self, id: TaskId) -> Step<Arc<Task>> {
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

    fn same_group(&self, outer: &Outer) -> Step<Option<Group>> {
        let group = self.find_group(&outer.id)?;
        Ok(group.filter(|group| group.born == outer.born).cloned())
    }

    /// The group that counts this task.
    fn group_of(&self, task: &Task) -> Step<Option<Group>> {
        match (&task.spec.group, task.spec.group_born) {
            (Some(id), Some(born)) => self.same_group(&Outer {
                id: id.clone(),
                born,
            }),
            (_, None) | (None, _) => Ok(None),
        }
    }
}

/// Writing.
impl Draft<'_> {
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

    /// Submits a new task; its group counts it.
    pub(super) fn create_task(&mut self, new: &NewTask, predecessor: Option<TaskId>) -> Step<()> {
        let born = match &new.group {
            None => None,
            Some(id) => {
                let mut group = self.group(id)?;
                group::admits(&group, 1)?;
                let effects = group::spawn(&mut group);
                let born = group.born;
                self.put_group(group, effects)?;
                Some(born)
            }
        };
        let task = submit::create(new, predecessor, born, &self.moment)?;
        self.mark_task(&task, TaskEvent::Submitted);
        self.tasks.insert(task.id(), Some(Arc::new(task)));
        Ok(())
    }

    /// Writes a task, with all that follows from its ending or from its running again.
    pub(super) fn put_task(
        &mut self,
        before: &Task,
        after: Box<Task>,
        event: TaskEvent,
    ) -> Step<()> {
        self.mark_task(&after, event);
        let after = Arc::from(after);
        self.tasks.insert(before.id(), Some(Arc::clone(&after)));
        match (before.status.is_terminal(), after.status.is_terminal()) {
            (false, true) => {
                let waited_for = before.waiting.as_ref().map(|waiting| waiting.on);
                self.task_ended(&after, waited_for)
            }
            (true, false) => match self.group_of(before)? {
                None => Ok(()),
                Some(mut group) => {
                    let effects = group::member_revived(&mut group, before.status);
                    self.put_group(group, effects)
                }
            },
            (false, false) | (true, true) => Ok(()),
        }
    }

    /// Makes `successor` run once `task` has ended.
    pub(super) fn set_successor(&mut self, task: TaskId, successor: TaskId) -> Step<()> {
        let mut task = self.task(task)?.as_ref().clone();
        task.successor = Some(successor);
        if task.revision != self.moment.revision {
            task.revision = self.moment.revision;
            task.modified_at = self.moment.now;
            self.mark_task(&task, TaskEvent::Amended);
        }
        self.tasks.insert(task.id(), Some(Arc::new(task)));
        Ok(())
    }

    /// Removes a finished task.
    pub(super) fn remove_task(&mut self, task: &Task) {
        self.mark_task(task, TaskEvent::Deleted);
        self.tasks.insert(task.id(), None);
        // Lines that this very commit appended go with it.
        self.lines.retain(|(id, _)| *id != task.id());
    }

    /// Writes a group, if anything of it has changed, and the groups around it that expect more
    /// because it was opened again.
    pub(super) fn put_group(&mut self, group: Group, effects: Effects) -> Step<()> {
        let mut next = Some((group, effects));
        while let Some((mut group, effects)) = next.take() {
            if self.find_group(&group.id)? == Some(&group) {
                return Ok(());
            }
            group.modified_at = self.moment.now;
            for event in &effects.events {
                self.mark_group(&group, *event);
            }
            let outer = group.outer();
            self.touched.push_back(group.id.clone());
            self.groups.insert(group.id.clone(), Some(group));
            for new in effects.submit {
                let member_of = (outer.clone()).filter(|o| new.group.as_ref() == Some(&o.id));
                self.fire(new, member_of)?;
            }
            if let (true, Some(outer)) = (effects.events.contains(&GroupEvent::Reopened), outer)
                && let Some(mut outer) = self.same_group(&outer)?
            {
                // Its `then` was counted for one generation; the new one counts again.
                let effects = group::expect_again(&mut outer);
                next = Some((outer, effects));
            }
        }
        Ok(())
    }

    /// Drains the group at the end, if it is complete.
    pub(super) fn touch_group(&mut self, id: &GroupId) {
        self.touched.push_back(id.clone());
    }

    /// Removes a group. What an outer group has counted for it will never run.
    pub(super) fn remove_group(&mut self, group: &Group) -> Step<()> {
        self.mark_group(group, GroupEvent::Deleted);
        self.groups.insert(group.id.clone(), None);
        match group.outer() {
            Some(outer) if group.drained_at.is_none() => self.give_up(&outer),
            Some(_) | None => Ok(()),
        }
    }

    /// A member that was counted beforehand will never run.
    fn give_up(&mut self, outer: &Outer) -> Step<()> {
        match self.same_group(outer)? {
            None => Ok(()),
            Some(mut group) => {
                let effects = group::member_given_up(&mut group);
                self.put_group(group, effects)
            }
        }
    }

    pub(super) fn mark_group(&mut self, group: &Group, event: GroupEvent) {
        self.marks.push(Mark::Change(Change::Group {
            id: group.id.clone(),
            generation: group.generation,
            event,
        }));
    }

    fn mark_task(&mut self, task: &Task, event: TaskEvent) {
        self.marks
            .push(Mark::Change(Change::Task(TaskChange::new(task, event))));
    }
}

/// What follows.
impl Draft<'_> {
    /// Drains the groups that are complete now that everything is written.
    pub(super) fn drain_groups(&mut self) -> Step<()> {
        while let Some(id) = self.touched.pop_front() {
            if let Some(mut group) = self.find_group(&id)?.cloned() {
                let effects = group::drain(&mut group, self.moment.now);
                self.put_group(group, effects)?;
            }
        }
        Ok(())
    }

    fn task_ended(&mut self, task: &Task, waited_for: Option<TaskId>) -> Step<()> {
        if let Some(mut group) = self.group_of(task)? {
            let effects = group::member_ended(&mut group, task.id(), task.status);
            self.put_group(group, effects)?;
        }
        if let Some(predecessor) = waited_for {
            self.give_key_back(task, predecessor)?;
        }
        if let Some(successor) = task.successor
            && let Some(waiting) = self.find_task(successor)?.cloned()
            && let Verdict::Changed(after, event) = task::unblock(&waiting, task.id(), &self.moment)
        {
            self.put_task(&waiting, after, event)?;
        }
        if let (Some(new), Status::Failed) = (&task.spec.on_failure, task.status) {
            let new = NewTask {
                id: new.id.nth(task.defeats.saturating_sub(1)),
                ..new.as_ref().clone()
            };
            self.fire(new, None)?;
        }
        Ok(())
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

    /// Submits a task on the store's own account.
    fn fire(&mut self, mut new: NewTask, member_of: Option<Outer>) -> Step<()> {
        if self.find_task(new.id)?.is_some() {
            // Somebody used the id before: what the group has counted will never run.
            return member_of.map_or(Ok(()), |outer| self.give_up(&outer));
        }
        if let Due::After(delay) = new.due {
            // Whatever the clock says, nobody's settle may fail because of what follows from it.
            new.due = Due::At(self.moment.now.saturating_plus(delay));
        }
        let born = member_of.map(|outer| outer.born);
        let task = submit::create(&new, None, born, &self.moment)?;
        self.mark_task(&task, TaskEvent::Submitted);
        self.tasks.insert(task.id(), Some(Arc::new(task)));
        Ok(())
    }
}

/// Finishing.
impl Draft<'_> {
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
    records: BTreeMap<Key, Option<Record>>,
    keys: BTreeMap<IdempotencyKey, Option<TaskId>>,
    tasks: BTreeMap<TaskId, Option<Arc<Task>>>,
    groups: BTreeMap<GroupId, Option<Group>>,
    lines: Vec<(TaskId, Line)>,
    changes: Vec<Change>,
}

impl Finished {
    /// About how many bytes of records the commit leaves.
    pub(super) fn size(&self) -> usize {
        self.records.values().flatten().map(Record::size).sum()
    }

    /// Writes everything to the rows that later commits see.
    pub(super) fn write(self, rows: &mut Rows) -> (Vec<Change>, Vec<(TaskId, Line)>) {
        (self.records.into_iter()).for_each(|(key, row)| rows.records.write(key, row));
        (self.keys.into_iter()).for_each(|(key, row)| rows.keys.write(key, row));
        (self.tasks.into_iter()).for_each(|(id, row)| rows.tasks.write(id, row));
        (self.groups.into_iter()).for_each(|(id, row)| rows.groups.write(id, row));
        (self.changes, self.lines)
    }
}

impl Group {
    /// The group that `then` is a member of.
    fn outer(&self) -> Option<Outer> {
        let id = self.then.as_ref()?.group.clone()?;
        Some(Outer {
            id,
            born: self.outer_born?,
        })
    }
}

fn loaded<T>(row: Option<Option<&T>>, id: impl FnOnce() -> RowId) -> Step<Option<&T>> {
    row.ok_or_else(|| Refused::Missing(id()))
}
