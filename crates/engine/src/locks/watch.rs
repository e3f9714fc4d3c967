//! Tells those who wait for locks, or look at them, that something has changed.
//!
//! One for each engine follows the history of all locks, as long as somebody waits: woken by the
//! store's hints, and once a second without any. Those who wait look by themselves once a second,
//! too: a lock that expires tells nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::change::{Change, Interest};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::{Changes, Start};
use plimsoll_core::{Error, Key, Position, Prefix, Result, Store};
use tokio::sync::Notify;

use super::stored::{Holder, LOCKS};
use crate::Engine;
use crate::spawn::Spawner;

/// How long anybody waits for a hint.
pub(super) const POLL: Duration = Duration::from_secs(1);
/// How many changes are read at once.
const CHANGES_MAX: usize = 1_000;

/// Who wants to hear of which lock.
#[derive(Debug, Default)]
pub(super) struct Watch {
    watchers: Mutex<Watchers>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Watchers {
    followed: bool,
    by_lock: BTreeMap<Key, BTreeMap<u64, Watcher>>,
    registered: u64,
}

#[derive(Debug)]
struct Watcher {
    /// Hears of what ends, and of what is for this one; `None`: of everything.
    for_one: Option<Holder>,
    ring: Arc<Notify>,
}

/// One who wants to hear of a lock. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Watching {
    watch: Arc<Watch>,
    lock: Key,
    number: u64,
    ring: Arc<Notify>,
}

impl Watching {
    /// Enters one who wants to hear, and follows the history from now on if nobody does.
    pub(super) fn register(engine: &Engine, lock: Key, for_one: Option<Holder>) -> Self {
        let watch = engine.room().watch.clone();
        let ring = Arc::new(Notify::new());
        let mut watchers = watch.watchers();
        let number = watchers.registered;
        watchers.registered += 1;
        let watcher = Watcher {
            for_one,
            ring: ring.clone(),
        };
        let of_lock = watchers.by_lock.entry(lock.clone()).or_default();
        of_lock.insert(number, watcher);
        if !watchers.followed {
            watchers.followed = true;
            Spawner::current().spawn(follow(watch.clone(), engine.clone()));
        }
        drop(watchers);
        Self {
            watch,
            lock,
            number,
            ring,
        }
    }

    /// Waits until there may be something to see.
    pub(super) async fn changed(&self, engine: &Engine) {
        // In this order, so that a simulation runs the same way again.
        tokio::select! {
            biased;
            () = self.ring.notified() => {}
            () = engine.clock().sleep(POLL) => {}
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watchers = self.watch.watchers();
        if let Some(of_lock) = watchers.by_lock.get_mut(&self.lock) {
            of_lock.remove(&self.number);
            if of_lock.is_empty() {
                watchers.by_lock.remove(&self.lock);
            }
        }
        if watchers.by_lock.is_empty() {
            self.watch.changed.notify_one();
        }
    }
}

impl Watch {
    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody watches. If not, whoever comes next has to start a follower.
    fn goes_on(&self) -> bool {
        let mut watchers = self.watchers();
        watchers.followed = !watchers.by_lock.is_empty();
        watchers.followed
    }

    fn ring(&self, lock: &Key, now_for: Option<Holder>) {
        let watchers = self.watchers();
        let of_lock = watchers.by_lock.get(lock).into_iter();
        for watcher in of_lock.flat_map(BTreeMap::values) {
            if watcher.for_one.is_none() || now_for.is_none() || watcher.for_one == now_for {
                watcher.ring.notify_one();
            }
        }
    }

    fn ring_all(&self) {
        for watcher in self.watchers().by_lock.values().flat_map(BTreeMap::values) {
            watcher.ring.notify_one();
        }
    }
}

/// Follows the history as long as somebody watches.
async fn follow(watch: Arc<Watch>, engine: Engine) {
    let mut end = End(Some(watch.clone()));
    let store = engine.room().store.as_ref();
    let mut hints = store.wakeups();
    let mut place = None;
    while watch.goes_on() {
        match turn(&watch, store, &mut place).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(Error::NotFound(NotFound::History { .. })) => {
                place = None;
                continue;
            }
            // Those who wait look by themselves, and hear what is wrong.
            Err(error) => {
                tracing::debug!(%error, "the history of locks cannot be read");
                engine.clock().sleep(POLL).await;
                continue;
            }
        }
        tokio::select! {
            biased;
            () = watch.changed.notified() => {}
            _ = hints.next() => {}
            () = engine.clock().sleep(POLL) => {}
        }
    }
    end.0 = None;
}

/// Reads one page. Answers whether there is more to do at once.
async fn turn(watch: &Watch, store: &dyn Store, place: &mut Option<Position>) -> Result<bool> {
    let changes = Changes {
        start: place.map_or(Start::Newest, Start::After),
        // All locks, not those that are watched: one who comes while this is read misses nothing.
        interests: vec![Interest::Records(Prefix::new(LOCKS)?)],
        limit: CHANGES_MAX.min(store.limits().page_max),
    };
    let page = store.changes(changes).await?;
    if place.replace(page.next).is_none() {
        // What happened before this place is not read: let everybody look.
        watch.ring_all();
    }
    for change in page.entries.iter().flat_map(|entry| &entry.changes) {
        match change {
            Change::Put(record) => watch.ring(&record.key, Holder::of(record).ok()),
            Change::Removed { key, .. } => watch.ring(key, None),
            Change::Task(_) | Change::Group { .. } => {}
        }
    }
    Ok(page.more)
}

/// When the one who follows goes away while somebody watches, as with its runtime, whoever comes
/// next starts another.
struct End(Option<Arc<Watch>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(watch) = self.0.take() {
            watch.watchers().followed = false;
        }
    }
}
