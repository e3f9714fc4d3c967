//! Goes through the history, entry by entry.

use std::collections::BTreeSet;

use plimsoll_core::change::{Change, Entry, TaskChange, TaskEvent};
use plimsoll_core::record::{Record, integer};
use plimsoll_core::task::{Status, Verb};
use plimsoll_core::{Fence, Name, TaskId};

use super::Checker;
use super::model::Model;

/// Where a handler's completion is recorded, in the same commit.
pub(crate) const DONE: &str = "done/";
/// Where a step of a handler is recorded, under its fence.
pub(crate) const STEP: &str = "step/";

impl Checker {
    /// Looks at what has happened since the last look.
    pub(crate) fn look(&mut self) {
        let fresh = self.fresh();
        if fresh.is_empty() {
            return;
        }
        let changes = fresh.iter().flat_map(|entry| &entry.changes);
        let touched: BTreeSet<TaskId> = changes
            .filter_map(|change| match change {
                Change::Task(task) => Some(task.id),
                _ => None,
            })
            .collect();
        // The order of a claim goes by what rows say, so they come first: nothing that follows a
        // claim in the same call changes the place of what it took.
        self.look_at_rows(&touched);
        for entry in fresh {
            self.look_at_entry(&entry);
            self.entries.push(entry);
        }
        if self.source.live().is_some() {
            self.compare_with_rows(touched);
        }
    }

    /// What the history told of these is what there is.
    pub(super) fn compare_with_rows(&mut self, tasks: BTreeSet<TaskId>) {
        for id in tasks {
            self.compare_with_row(id);
            self.look_at_key(id);
        }
    }

    fn look_at_rows(&mut self, touched: &BTreeSet<TaskId>) {
        let rows = self.rows(touched.iter().copied().collect());
        for row in rows.into_iter().flatten() {
            let model = (self.tasks.entry(row.id())).or_insert_with(|| Model::new(&row));
            match self.source.live() {
                Some(_) => model.look_at(&row),
                // Who had it in the end is not who has it now.
                None => model.holder = None,
            }
            if let Some(key) = &model.key {
                (self.by_key.entry(key.clone()).or_default()).insert(row.id());
            }
        }
    }

    fn look_at_entry(&mut self, entry: &Entry) {
        self.look_at_order(entry);
        self.look_at_locks(entry);
        for change in &entry.changes {
            self.look_at_state_change(change, entry.position);
            self.look_at_shelf(change, entry);
            match change {
                Change::Task(task) => self.look_at_task(task, entry),
                Change::Group {
                    id,
                    generation,
                    event,
                } => self.look_at_group(id, *generation, *event, entry),
                Change::Put(record) => {
                    self.look_at_effect(record, entry);
                    self.look_at_worker(record);
                }
                Change::Removed { .. } => {}
            }
        }
        self.look_at_drained(entry);
        self.look_at_archive(entry);
    }

    fn look_at_task(&mut self, change: &TaskChange, entry: &Entry) {
        let Some(model) = self.tasks.get_mut(&change.id) else {
            let name = self.name(change.id);
            return self.blame("lost", format!("{name} is in the history and nowhere else"));
        };
        let before = model.status;
        let fence = model.fence;
        if let Err((rule, wrong)) = model.step(change) {
            let name = self.name(change.id);
            return self.blame(rule, format!("{name}: {wrong}"));
        }
        model.changed_at = self.now;
        let live = self.source.live().is_some();
        let holder = model.holder.clone().filter(|_| live);
        if let Some(after_failure) = model.failure_task(change) {
            let submits = |change: &Change| {
                matches!(change, Change::Task(task)
                    if task.event == TaskEvent::Submitted && task.id == after_failure)
            };
            if !entry.changes.iter().any(submits) {
                let name = self.name(change.id);
                self.blame(
                    "failures",
                    format!("{name} failed without its failure task"),
                );
            }
        }
        if let Some(group) = &change.group {
            self.member(group, change);
        }
        if change.event == TaskEvent::Retried {
            self.look_at_retry(change.id);
        }
        if change.event == TaskEvent::Claimed {
            // The history does not tell who, so that only those who were told can.
            if holder.is_some() || self.source.live().is_none() {
                self.claims.insert((change.id, change.fence), holder);
            }
        } else if before == Some(Status::Claimed) && change.status != Status::Claimed {
            self.endings
                .insert((change.id, fence), (entry.position, change.event));
            self.look_at_ending(change, fence);
            self.look_at_lease((change.id, fence), change.event, entry.at);
            let settled = !matches!(change.event, TaskEvent::Expired | TaskEvent::Retried);
            self.look_at_log((change.id, fence), settled);
        }
    }

    /// An attempt ends because its holder says so, its time is over, or somebody takes it away.
    fn look_at_ending(&mut self, change: &TaskChange, fence: Fence) {
        let verbs: &[Verb] = match change.event {
            TaskEvent::Completed => &[Verb::Complete],
            TaskEvent::Failed => &[Verb::Fail],
            TaskEvent::Snoozed => &[Verb::Snooze],
            TaskEvent::Released => &[Verb::Release],
            TaskEvent::Cancelled => &[Verb::Fail, Verb::Snooze, Verb::Release, Verb::Cancel],
            TaskEvent::Expired => {
                if !self.expiries_expected && !self.over_time(change) {
                    let name = self.name(change.id);
                    self.blame("expiry", format!("{name}#{fence} ran out"));
                }
                return;
            }
            _ => return,
        };
        let asked = self.asked.get(&(change.id, fence));
        if !asked.is_some_and(|asked| asked.iter().any(|verb| verbs.contains(verb))) {
            let name = self.name(change.id);
            let wrong = format!(
                "{name}#{fence}: {:?}, and its holder never said so",
                change.event
            );
            self.blame("unasked", wrong);
        }
    }

    /// Whether the attempt may have taken longer than it may.
    fn over_time(&self, change: &TaskChange) -> bool {
        let row = self.rows(vec![change.id]).into_iter().next().flatten();
        row.is_some_and(|row| row.spec.attempt_timeout.is_some())
    }

    /// Within a lane, a claim takes what comes first.
    fn look_at_order(&mut self, entry: &Entry) {
        // Who claims beside others passes over what these are about to take.
        if self.source.live().is_none() {
            return;
        }
        let taken: BTreeSet<TaskId> = (entry.changes.iter())
            .filter_map(|change| match change {
                Change::Task(task) if task.event == TaskEvent::Claimed => Some(task.id),
                _ => None,
            })
            .collect();
        for id in &taken {
            let Some(model) = self.tasks.get(id) else {
                continue;
            };
            let passed_over = self.tasks.iter().find(|(other, behind)| {
                behind.status == Some(Status::Pending)
                    && !behind.gone
                    && behind.lane == model.lane
                    && behind.place < model.place
                    && !taken.contains(other)
            });
            if let Some((first, _)) = passed_over {
                let (first, name) = (*first, self.name(*id));
                let first = self.name(first);
                self.blame("order", format!("{name} was claimed before {first}"));
            }
        }
    }

    /// What handlers write shows under which fence it was taken.
    fn look_at_effect(&mut self, record: &Record, entry: &Entry) {
        let key = record.key.as_str();
        let number = |field: &str| {
            let name = Name::new(field).ok()?;
            record.fields.get(&name).and_then(|value| integer(value))
        };
        let fence = number("fence").and_then(|fence| u64::try_from(fence).ok());
        let fence = Fence::new(fence.unwrap_or(0));
        if let Some(id) = key.strip_prefix(DONE).and_then(|id| TaskId::parse(id).ok()) {
            let completed = entry.changes.iter().any(|change| {
                matches!(change, Change::Task(task) if task.id == id
                    && task.event == TaskEvent::Completed && task.fence == fence)
            });
            let times = number("times").unwrap_or(0);
            if !completed || times != 1 {
                let name = self.name(id);
                let wrong = format!("{name}#{fence} wrote its completion, {times} times in all");
                self.blame("effects", wrong);
            }
        } else if let Some(id) = key.strip_prefix(STEP).and_then(|id| TaskId::parse(id).ok()) {
            let current = self.tasks.get(&id);
            if !current.is_some_and(|m| m.status == Some(Status::Claimed) && m.fence == fence) {
                let name = self.name(id);
                self.blame(
                    "effects",
                    format!("{name}#{fence} wrote a step, and is not held"),
                );
            }
        }
    }

    fn compare_with_row(&mut self, id: TaskId) {
        let Some(row) = self.rows(vec![id]).into_iter().next().flatten() else {
            return;
        };
        let Some(model) = self.tasks.get(&id) else {
            return;
        };
        let told = (
            model.status,
            model.fence,
            model.revision,
            model.attempts,
            model.failures,
        );
        let read = (
            Some(row.status),
            row.fence,
            row.revision,
            row.attempts,
            row.failures,
        );
        if told != read {
            let name = self.name(id);
            self.blame("rows", format!("{name}: told {told:?}, read {read:?}"));
        }
        let mut broken = row.violations();
        if let Some(before) = self.seen.get(&id) {
            broken.extend(row.violations_since(before));
        }
        if let Some(violation) = broken.first() {
            let name = self.name(id);
            let status = row.status;
            self.blame("invariants", format!("{name} is {status}: {violation}"));
        }
        self.seen.insert(id, row);
    }

    fn look_at_key(&mut self, id: TaskId) {
        let key = self.tasks.get(&id).and_then(|model| model.key.clone());
        let Some(key) = key else { return };
        let sharers = self.by_key.get(&key).into_iter().flatten();
        // A task that waits for the one it replaces has the key already, but cannot run.
        let runnable = sharers.filter(|id| {
            (self.tasks.get(id)).is_some_and(|model| model.is_active() && !model.waiting)
        });
        let runnable: Vec<TaskId> = runnable.copied().collect();
        if runnable.len() > 1 {
            let names: Vec<String> = runnable.into_iter().map(|id| self.name(id)).collect();
            self.blame("keys", format!("{key} stands for {}", names.join(" and ")));
        }
    }
}
