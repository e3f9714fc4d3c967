//! The archive: a task is there or here, and goes when it was kept long enough.

use plimsoll_core::change::{Change, Entry, TaskEvent};
use plimsoll_core::{Key, TaskId};

use super::Checker;
use crate::actors::housekeeping::KEPT;

pub(crate) const ARCHIVE: &str = "plimsoll.archive.tasks.";

impl Checker {
    /// What an entry deletes it archives, and the other way round.
    pub(super) fn look_at_archive(&mut self, entry: &Entry) {
        let (mut deleted, mut archived) = (Vec::new(), Vec::new());
        for change in &entry.changes {
            match change {
                Change::Task(task) if task.event == TaskEvent::Deleted => deleted.push(task.id),
                Change::Put(record) => archived.extend(task_of(&record.key)),
                Change::Removed { key, .. } if task_of(key).is_some() => {
                    self.blame("archive", format!("{key} is gone"));
                }
                _ => {}
            }
        }
        if deleted != archived {
            let wrong = format!("{} deleted, {} archived", deleted.len(), archived.len());
            self.blame("archive", format!("entry {}: {wrong}", entry.position));
        }
        for id in deleted {
            self.leave(id);
        }
    }

    /// A task goes to the archive: it has ended long ago.
    fn leave(&mut self, id: TaskId) {
        self.figures.tasks_archived += 1;
        let ended = self.seen.get(&id).and_then(|task| task.finished_at);
        let since = ended.map(|at| self.store_time().since(at));
        // Where clocks jump, it may have been seen at another time.
        if !self.clock_jumps && since.is_none_or(|since| since < KEPT) {
            let name = self.name(id);
            self.blame("archive", format!("{name} was archived after {since:?}"));
        }
        if let Some(model) = self.tasks.get_mut(&id) {
            model.gone = true;
        }
    }

    /// Nothing is in the archive and here.
    pub(super) fn compare_archive(&mut self) {
        for record in self.records(ARCHIVE) {
            let Some(id) = task_of(&record.key) else {
                continue;
            };
            if self.rows(vec![id]).into_iter().flatten().next().is_some() {
                let name = self.name(id);
                self.blame("archive", format!("{name} is in both places"));
            }
        }
    }
}

fn task_of(key: &Key) -> Option<TaskId> {
    TaskId::parse(key.as_str().strip_prefix(ARCHIVE)?).ok()
}
