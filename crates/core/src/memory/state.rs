//! What a namespace holds in memory, and the indexes over it.
//!
//! Rows change only through [`State::put_task`], [`State::put_record`] and [`State::apply`], which
//! keep every index equal to the rows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::change::{Change, Entry};
use crate::decide::{self, Applied, Moment, RowId, Rows};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::ids::{CommitId, Fence, LineId, Position, RequestId, Revision, TaskId};
use crate::limits::Limits;
use crate::log::Line;
use crate::memory::indexes::Indexed;
use crate::memory::remembered::Remembered;
use crate::names::{GroupId, IdempotencyKey, Key, Name};
use crate::record::{Index, Record};
use crate::store::{Commit, Receipt};
use crate::task::{Lane, Priority, Status, Task};
use crate::time::Timestamp;
use crate::wake::Wake;

/// The place of a pending task in its lane: the order in which claims take it.
pub(super) type Place = (Reverse<Priority>, Timestamp, TaskId);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) records: BTreeMap<Key, Record>,
    pub(super) expiries: BTreeSet<(Timestamp, Key)>,
    pub(super) indexes: BTreeMap<Index, Indexed>,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) keys: BTreeMap<IdempotencyKey, TaskId>,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) drained: BTreeSet<(Timestamp, GroupId)>,
    /// The lines of each task, by their number.
    pub(super) logs: BTreeMap<TaskId, BTreeMap<u64, Line>>,
    pub(super) line_ids: BTreeSet<(TaskId, LineId)>,
    pub(super) lines_by_age: BTreeSet<(Timestamp, TaskId, u64)>,
    /// The number of the last line of any log. None is used again, so a reader misses no line.
    pub(super) last_line: u64,
    /// Pending tasks in claim order.
    pub(super) pending: BTreeMap<Lane, BTreeSet<Place>>,
    /// Scheduled tasks by lane, for a claim to say when the next is due.
    pub(super) scheduled: BTreeMap<Lane, BTreeSet<(Timestamp, TaskId)>>,
    /// Scheduled tasks of all lanes.
    pub(super) due: BTreeSet<(Timestamp, TaskId)>,
    /// Claimed tasks by the end of their lease.
    pub(super) leases: BTreeSet<(Timestamp, TaskId)>,
    /// Finished tasks by when retention begins to count.
    pub(super) finished: BTreeMap<Status, BTreeSet<(Timestamp, TaskId)>>,
    pub(super) by_lane: BTreeMap<(Lane, Status), BTreeSet<TaskId>>,
    pub(super) by_group: BTreeMap<GroupId, BTreeSet<TaskId>>,
    pub(super) by_owner: BTreeMap<Name, BTreeSet<TaskId>>,
    pub(super) history: VecDeque<Entry>,
    /// Everything up to here was compacted away.
    pub(super) compacted: Position,
    pub(super) newest: Position,
    pub(super) revision: Revision,
    pub(super) commits: Remembered<CommitId, Receipt>,
    /// What each claim took, with the fence it got.
    pub(super) claims: Remembered<RequestId, Vec<(TaskId, Fence)>>,
}

impl State {
    /// Decides a commit and applies it.
    pub(super) fn commit(
        &mut self,
        commit: &Commit,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<(Receipt, Wake)> {
        let moment = Moment {
            now,
            revision: self.revision.next(),
            limits,
        };
        let mut rows = Rows::default();
        let applied = loop {
            match decide::batch(std::slice::from_ref(commit), &mut rows, moment) {
                Ok(decided) => {
                    break decided
                        .into_iter()
                        .next()
                        .unwrap_or_else(|| Err(undecided()))?;
                }
                Err(missing) => missing.into_iter().for_each(|id| self.load(id, &mut rows)),
            }
        };
        if applied.receipt.repeated {
            return Ok((applied.receipt, Wake::default()));
        }
        self.revision = moment.revision;
        Ok(self.apply(commit.id, applied, rows, now))
    }

    fn load(&self, id: RowId, rows: &mut Rows) {
        match id {
            RowId::Record(key) => {
                let row = self.records.get(&key).cloned();
                rows.records.load(key, row);
            }
            RowId::Key(key) => {
                let row = self.keys.get(&key).copied();
                rows.keys.load(key, row);
            }
            RowId::Task(id) => {
                let row = self.tasks.get(&id).cloned().map(Arc::new);
                rows.tasks.load(id, row);
            }
            RowId::Group(id) => {
                let row = self.groups.get(&id).cloned();
                rows.groups.load(id, row);
            }
            RowId::Commit(id) => rows.commits.load(id, self.commits.get(&id).cloned()),
        }
    }

    fn apply(
        &mut self,
        commit: Option<CommitId>,
        applied: Applied,
        rows: Rows,
        now: Timestamp,
    ) -> (Receipt, Wake) {
        let wake = Wake {
            logs: !applied.lines.is_empty(),
            ..Wake::of(&applied.changes)
        };
        for row in rows.records.into_written() {
            self.put_record(&row.key, row.after);
        }
        for row in rows.keys.into_written() {
            match row.after {
                Some(task) => self.keys.insert(row.key, task),
                None => self.keys.remove(&row.key),
            };
        }
        for row in rows.tasks.into_written() {
            self.put_task(row.key, row.after.map(Arc::unwrap_or_clone));
        }
        for row in rows.groups.into_written() {
            self.put_group(&row.key, row.after);
        }
        for (task, line) in applied.lines {
            self.append_line(task, line);
        }
        let receipt = Receipt {
            position: self.append(applied.changes, now),
            ..applied.receipt
        };
        if let Some(id) = commit {
            self.commits.insert(id, receipt.clone(), now);
        }
        (receipt, wake)
    }

    fn append_line(&mut self, task: TaskId, line: Line) {
        if self.line_ids.insert((task, line.line.id)) {
            self.last_line += 1;
            self.lines_by_age.insert((line.at, task, self.last_line));
            (self.logs.entry(task).or_default()).insert(self.last_line, line);
        }
    }

    pub(super) fn remove_line(&mut self, task: TaskId, number: u64) {
        let Some(log) = self.logs.get_mut(&task) else {
            return;
        };
        if let Some(line) = log.remove(&number) {
            self.line_ids.remove(&(task, line.line.id));
            self.lines_by_age.remove(&(line.at, task, number));
        }
        if log.is_empty() {
            self.logs.remove(&task);
        }
    }

    /// Appends to the history, if there is anything to append.
    pub(super) fn append(&mut self, changes: Vec<Change>, now: Timestamp) -> Option<Position> {
        if changes.is_empty() {
            return None;
        }
        self.newest = self.newest.next();
        self.history.push_back(Entry {
            position: self.newest,
            at: now,
            changes,
        });
        Some(self.newest)
    }

    fn put_record(&mut self, key: &Key, after: Option<Record>) {
        let before = self.records.remove(key);
        self.index_record(key, before.as_ref(), after.as_ref());
        if let Some(at) = before.and_then(|before| before.expires_at) {
            self.expiries.remove(&(at, key.clone()));
        }
        if let Some(after) = after {
            (self.expiries).extend(after.expires_at.map(|at| (at, key.clone())));
            self.records.insert(key.clone(), after);
        }
    }

    fn put_group(&mut self, id: &GroupId, after: Option<Group>) {
        if let Some(before) = self.groups.remove(id)
            && let Some(at) = before.drained_at
        {
            self.drained.remove(&(at, id.clone()));
        }
        if let Some(after) = after {
            (self.drained).extend(after.drained_at.map(|at| (at, id.clone())));
            self.groups.insert(id.clone(), after);
        }
    }

    pub(super) fn put_task(&mut self, id: TaskId, after: Option<Task>) {
        let before = self.tasks.remove(&id);
        if let Some(before) = &before {
            self.unindex(before);
        }
        // A log goes with its task, also if another one takes the id at once.
        let born = |task: &Task| task.spec.born;
        if before.as_ref().map(born) != after.as_ref().map(born) {
            let lines = self.logs.get(&id).into_iter().flatten();
            for number in lines.map(|(number, _)| *number).collect::<Vec<_>>() {
                self.remove_line(id, number);
            }
        }
        if let Some(after) = after {
            self.index(&after);
            self.tasks.insert(id, after);
        }
    }

    fn index(&mut self, task: &Task) {
        let (id, lane) = (task.id(), &task.spec.lane);
        match task.status {
            Status::Pending => {
                let places = self.pending.entry(lane.clone()).or_default();
                places.insert(place(task));
            }
            Status::Scheduled => {
                let lane = self.scheduled.entry(lane.clone()).or_default();
                lane.insert((task.runnable_at, id));
                self.due.insert((task.runnable_at, id));
            }
            Status::Claimed => {
                if let Some(lease) = &task.lease {
                    self.leases.insert((lease.until, id));
                }
            }
            Status::Completed | Status::Failed | Status::Cancelled => {
                let ended = task.removable_from().unwrap_or(task.modified_at);
                (self.finished.entry(task.status).or_default()).insert((ended, id));
            }
        }
        let lane = (lane.clone(), task.status);
        self.by_lane.entry(lane).or_default().insert(id);
        if let Some(group) = &task.spec.group {
            self.by_group.entry(group.clone()).or_default().insert(id);
        }
        if let Some(owner) = &task.spec.owner {
            self.by_owner.entry(owner.clone()).or_default().insert(id);
        }
    }

    fn unindex(&mut self, task: &Task) {
        let (id, lane) = (task.id(), &task.spec.lane);
        match task.status {
            Status::Pending => remove(&mut self.pending, lane, &place(task)),
            Status::Scheduled => {
                remove(&mut self.scheduled, lane, &(task.runnable_at, id));
                self.due.remove(&(task.runnable_at, id));
            }
            Status::Claimed => {
                if let Some(lease) = &task.lease {
                    self.leases.remove(&(lease.until, id));
                }
            }
            Status::Completed | Status::Failed | Status::Cancelled => {
                let ended = task.removable_from().unwrap_or(task.modified_at);
                remove(&mut self.finished, &task.status, &(ended, id));
            }
        }
        remove(&mut self.by_lane, &(lane.clone(), task.status), &id);
        if let Some(group) = &task.spec.group {
            remove(&mut self.by_group, group, &id);
        }
        if let Some(owner) = &task.spec.owner {
            remove(&mut self.by_owner, owner, &id);
        }
    }

    /// Pending tasks of these lanes in claim order.
    pub(super) fn next_pending(&self, lanes: &[Lane], limit: usize) -> Vec<TaskId> {
        let heads = lanes.iter().filter_map(|lane| self.pending.get(lane));
        let mut places: Vec<&Place> = heads.flat_map(|lane| lane.iter().take(limit)).collect();
        places.sort_unstable();
        places
            .into_iter()
            .take(limit)
            .map(|place| place.2)
            .collect()
    }
}

fn undecided() -> Error {
    Error::Corrupt("a commit was not decided".into())
}

fn place(task: &Task) -> Place {
    (Reverse(task.priority), task.runnable_at, task.id())
}

/// Removes a member of a set in a map, and the set when it is empty.
pub(super) fn remove<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
