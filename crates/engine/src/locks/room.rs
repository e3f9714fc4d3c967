//! Where the locks of an engine are, and who waits for them in this process.
//!
//! Those of one process who wait for one lock stand in a line of their own. Only its first looks
//! at the store and stands in line there, for all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use plimsoll_core::{Name, Store, Timestamp};
use tokio::sync::OwnedMutexGuard;

use super::decide;
use super::watch::Watch;
use crate::history::Tail;

type Line = Arc<tokio::sync::Mutex<()>>;

/// The store that locks are on, shared by all clients of an engine.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) store: Arc<dyn Store>,
    /// Reads the history of that store.
    pub(super) tail: Arc<Tail>,
    pub(super) watch: Arc<Watch>,
    /// Hints of other processes arrive here.
    pub(super) hinted: bool,
    lines: Mutex<BTreeMap<Name, (Line, usize)>>,
}

impl Room {
    pub(crate) fn new(store: Arc<dyn Store>, tail: Arc<Tail>) -> Self {
        Self {
            hinted: store.capabilities().remote_wakeups,
            store,
            tail,
            watch: Arc::default(),
            lines: Mutex::default(),
        }
    }

    /// How long to wait for a hint about a lock that ends then, if it is held.
    pub(super) fn next_look(&self, now: Timestamp, until: Option<Timestamp>) -> Duration {
        decide::next_look(self.hinted, until.map(|until| until.since(now)))
    }

    /// Whether somebody in this process waits for this lock.
    pub(super) fn is_waited_for(&self, name: &Name) -> bool {
        self.lines().contains_key(name)
    }

    /// Waits until nobody in this process is before the caller.
    pub(super) async fn turn(self: &Arc<Self>, name: &Name) -> Turn {
        let line = {
            let mut lines = self.lines();
            let (line, members) = lines.entry(name.clone()).or_default();
            *members += 1;
            line.clone()
        };
        let place = Place {
            room: self.clone(),
            name: name.clone(),
        };
        Turn {
            _first: line.lock_owned().await,
            _place: place,
        }
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<Name, (Line, usize)>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first place in a line. Dropping it lets the next one be first.
#[derive(Debug)]
pub(super) struct Turn {
    _first: OwnedMutexGuard<()>,
    _place: Place,
}

#[derive(Debug)]
struct Place {
    room: Arc<Room>,
    name: Name,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.room.lines();
        if let Some((_, members)) = lines.get_mut(&self.name) {
            *members -= 1;
            if *members == 0 {
                lines.remove(&self.name);
            }
        }
    }
}
