//! The rows that commits read and write, between the store and the deciders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::group::Group;
use crate::ids::{CommitId, TaskId};
use crate::names::{GroupId, IdempotencyKey, Key};
use crate::record::Record;
use crate::store::Receipt;
use crate::task::Task;

/// Names a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowId {
    /// A record.
    Record(Key),
    /// Which task an idempotency key was last given to.
    Key(IdempotencyKey),
    /// A task.
    Task(TaskId),
    /// A group.
    Group(GroupId),
    /// The receipt of a commit that is remembered by its id.
    Commit(CommitId),
}

/// Rows of all kinds: as stored, and as the commits decided so far leave them.
///
/// A row must be loaded before a commit can be decided that needs it; [`super::batch`] says which
/// these are. A row that does not exist is loaded as `None`.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Records, expired ones too.
    pub records: Table<Key, Record>,
    /// Which task an idempotency key was last given to.
    pub keys: Table<IdempotencyKey, TaskId>,
    /// Tasks. They are shared with those who keep them.
    pub tasks: Table<TaskId, Arc<Task>>,
    /// Groups.
    pub groups: Table<GroupId, Group>,
    /// Receipts of commits that are remembered. What deciders write here has no position yet: the
    /// store remembers receipts from what [`super::batch`] answers.
    pub commits: Table<CommitId, Receipt>,
}

/// Rows of one kind.
///
/// Rows are boxed: the nodes of a map have room for eleven, and most commits have one.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    slots: BTreeMap<K, Box<Slot<V>>>,
}

#[derive(Clone, Debug)]
struct Slot<V> {
    /// As the store has it; the outer `None`: it was written without having been loaded.
    stored: Option<Option<V>>,
    /// What commits made of it; `None` while none has written it.
    written: Option<Option<V>>,
}

/// A row that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written<K, V> {
    /// Its key.
    pub key: K,
    /// As stored; `None`: it is new.
    pub before: Option<V>,
    /// As it must be stored; `None`: it must be removed.
    pub after: Option<V>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            slots: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, V> Table<K, V> {
    /// Takes in a row as the store has it.
    pub fn load(&mut self, key: K, stored: Option<V>) {
        let slot = Slot {
            stored: Some(stored),
            written: None,
        };
        self.slots.insert(key, Box::new(slot));
    }

    /// Whether the row was loaded.
    pub fn is_loaded(&self, key: &K) -> bool {
        (self.slots.get(key)).is_some_and(|slot| slot.stored.is_some() || slot.written.is_some())
    }

    /// The row as it is now; the outer `None`: it was not loaded.
    pub fn get(&self, key: &K) -> Option<Option<&V>> {
        self.slots.get(key).map(|slot| match &slot.written {
            Some(written) => written.as_ref(),
            None => slot.stored.as_ref().and_then(Option::as_ref),
        })
    }

    /// The row as the store has it, if it was loaded and exists.
    pub fn stored(&self, key: &K) -> Option<&V> {
        self.slots.get(key)?.stored.as_ref()?.as_ref()
    }

    /// Every row that was written, in key order.
    pub fn into_written(self) -> impl Iterator<Item = Written<K, V>> {
        self.slots.into_iter().filter_map(|(key, slot)| {
            let Slot { stored, written } = *slot;
            written.map(|after| Written {
                key,
                before: stored.flatten(),
                after,
            })
        })
    }

    /// Forgets what was written, and the row `absent` altogether.
    fn forget(&mut self, absent: impl Fn(&K) -> bool) {
        (self.slots).retain(|key, slot| slot.stored.is_some() && !absent(key));
        self.slots.values_mut().for_each(|slot| slot.written = None);
    }

    pub(super) fn write(&mut self, key: K, after: Option<V>) {
        let new = || {
            Box::new(Slot {
                stored: None,
                written: None,
            })
        };
        self.slots.entry(key).or_insert_with(new).written = Some(after);
    }
}

impl Rows {
    /// Loads the row as one that does not exist.
    pub(super) fn load_absent(&mut self, id: &RowId) {
        match id {
            RowId::Record(key) => self.records.load(key.clone(), None),
            RowId::Key(key) => self.keys.load(key.clone(), None),
            RowId::Task(id) => self.tasks.load(*id, None),
            RowId::Group(id) => self.groups.load(id.clone(), None),
            RowId::Commit(id) => self.commits.load(*id, None),
        }
    }

    /// Forgets everything that was written, and these rows altogether.
    pub(super) fn forget(&mut self, rows: &BTreeSet<RowId>) {
        let gone = |id| rows.contains(&id);
        self.records.forget(|key| gone(RowId::Record(key.clone())));
        self.keys.forget(|key| gone(RowId::Key(key.clone())));
        self.tasks.forget(|id| gone(RowId::Task(*id)));
        self.groups.forget(|id| gone(RowId::Group(id.clone())));
        self.commits.forget(|id| gone(RowId::Commit(*id)));
    }

    /// Whether the row was loaded.
    pub fn is_loaded(&self, id: &RowId) -> bool {
        match id {
            RowId::Record(key) => self.records.is_loaded(key),
            RowId::Key(key) => self.keys.is_loaded(key),
            RowId::Task(id) => self.tasks.is_loaded(id),
            RowId::Group(id) => self.groups.is_loaded(id),
            RowId::Commit(id) => self.commits.is_loaded(id),
        }
    }
}
