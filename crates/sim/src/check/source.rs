//! What the checkers look at: a store that answers at once, or the record of a run that is over.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use plimsoll_core::change::Entry;
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::store::{Changes, Tasks};
use plimsoll_core::task::Task;
use plimsoll_core::{Position, Result, Store, TaskId};

use super::Checker;

/// What the checkers look at.
#[derive(Debug)]
pub(super) enum Source {
    /// A store, after each of its calls.
    Live(Arc<MemoryStore>),
    /// A run that is over.
    Recorded(Recorded),
}

/// What is left of a run on a store that does not answer at once.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The whole history.
    pub(crate) entries: Vec<Entry>,
    /// How far it had come, at least, where the replay is.
    pub(crate) upto: Position,
    /// Tasks as they were in the end.
    pub(crate) tasks: BTreeMap<TaskId, Task>,
}

impl Checker {
    /// Goes on with a recorded history, at least as far as this.
    pub(crate) fn look_upto(&mut self, position: Position) {
        if let Source::Recorded(record) = &mut self.source
            && record.upto < position
        {
            record.upto = position;
            self.look();
        }
    }

    /// Something was acknowledged at this position.
    pub(crate) fn happened_at(&mut self, position: Position) {
        let found = (self.entries).binary_search_by_key(&position, |entry| entry.position);
        if found.is_err() {
            let wrong = format!("there is nothing at {position}, which was acknowledged");
            self.blame("acknowledged", wrong);
        }
    }

    /// What the whole history has told is what there was in the end.
    pub(crate) fn compare_recorded(&mut self) {
        let tasks = self.tasks.keys().copied().collect();
        self.compare_with_rows(tasks);
    }
}

impl Source {
    pub(super) fn live(&self) -> Option<&MemoryStore> {
        match self {
            Self::Live(store) => Some(store),
            Self::Recorded(_) => None,
        }
    }

    /// The history after a position.
    pub(super) fn after(&self, mut after: Position) -> Option<Vec<Entry>> {
        let store = match self {
            Self::Live(store) => store,
            Self::Recorded(record) => {
                let place = |position| {
                    let entries = &record.entries;
                    entries.partition_point(|entry| entry.position <= position)
                };
                let (from, to) = (place(after), place(record.upto));
                return Some(record.entries.get(from..to).unwrap_or_default().to_vec());
            }
        };
        let mut fresh = Vec::new();
        loop {
            let page = store.changes(Changes::after(after, 1_000)).now_or_never();
            let page = page?.ok()?;
            after = page.next;
            fresh.extend(page.entries);
            if !page.more {
                return Some(fresh);
            }
        }
    }

    pub(super) fn tasks(&self, ids: Vec<TaskId>) -> Vec<Option<Task>> {
        match self {
            Self::Live(store) => {
                let rows = store.tasks(Tasks { ids }).now_or_never();
                rows.and_then(Result::ok).unwrap_or_default()
            }
            Self::Recorded(record) => {
                let rows = ids.iter().map(|id| record.tasks.get(id).cloned());
                rows.collect()
            }
        }
    }
}
