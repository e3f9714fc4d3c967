//! Tells those who wait for locks, or look at them, that something has changed.
//!
//! The history of these locks is followed as long as somebody waits. A lock that expires tells nobody:
//! those who wait look by themselves when it ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::change::{Change, Entry, Interest};
use plimsoll_core::{Error, Key, Position, Prefix, Timestamp};
use tokio::sync::Notify;

use super::decide::{POLL, next_look};
use super::stored::{Holder, LOCKS};
use crate::Engine;
use crate::history::{Follower, Following};

/// Up to how many locks the store is asked for by name, so that it leaves out all others.
const NAMED_MAX: usize = 16;

/// Who wants to hear of which lock.
#[derive(Debug, Default)]
pub(super) struct Watch {
    watchers: Mutex<Watchers>,
}

#[derive(Debug, Default)]
struct Watchers {
    /// The history is followed for them.
    following: Option<Following>,
    by_lock: BTreeMap<Key, BTreeMap<u64, Watcher>>,
    registered: u64,
    /// Locks of those before this number are looked for in what is read of the history next.
    asked: u64,
}

#[derive(Debug)]
struct Watcher {
    /// Hears of what ends, and of what is for this one; `None`: of everything.
    for_one: Option<Holder>,
    bell: Arc<Bell>,
}

/// How one who watches is told.
#[derive(Debug, Default)]
struct Bell {
    news: Mutex<Option<News>>,
    ring: Notify,
}

#[derive(Clone, Copy, Debug)]
enum News {
    /// There may be something to see.
    Look,
    /// Another has it now, until then.
    Until(Timestamp),
}

/// One who wants to hear of a lock. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Watching {
    watch: Arc<Watch>,
    lock: Key,
    number: u64,
    bell: Arc<Bell>,
    engine: Engine,
}

impl Watching {
    /// Enters one who wants to hear, and follows the history from now on if nobody does.
    pub(super) fn register(engine: &Engine, lock: Key, for_one: Option<Holder>) -> Self {
        let watch = engine.room().watch.clone();
        let bell = Arc::new(Bell::default());
        let mut watchers = watch.watchers();
        let number = watchers.registered;
        watchers.registered += 1;
        let watcher = Watcher {
            for_one,
            bell: bell.clone(),
        };
        let of_lock = watchers.by_lock.entry(lock.clone()).or_default();
        of_lock.insert(number, watcher);
        drop(watchers);
        watch.follow(engine);
        engine.room().tail.look();
        Self {
            watch,
            lock,
            number,
            bell,
            engine: engine.clone(),
        }
    }

    /// Waits until there may be something to see of a lock that ends then if it is held, but not
    /// longer than this moment of the monotonic clock.
    pub(super) async fn changed(&self, mut until: Option<Timestamp>, latest: Duration) {
        let clock = self.engine.clock();
        self.watch.follow(&self.engine);
        loop {
            let look = self.engine.room().next_look(clock.now(), until);
            let wait = look.min(latest.saturating_sub(clock.monotonic()));
            // In this order, so that a simulation runs the same way again.
            let news = tokio::select! {
                biased;
                news = self.bell.next() => news,
                () = clock.sleep(wait) => News::Look,
            };
            match news {
                News::Look => return,
                News::Until(later) => until = Some(later),
            }
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
            watchers.following = None;
        }
    }
}

impl Bell {
    fn tell(&self, news: News) {
        let mut kept = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever is to look sees until when as well.
        if !matches!(*kept, Some(News::Look)) {
            *kept = Some(news);
        }
        drop(kept);
        self.ring.notify_one();
    }

    async fn next(&self) -> News {
        loop {
            let news = (self.news.lock().unwrap_or_else(PoisonError::into_inner)).take();
            match news {
                Some(news) => return news,
                None => self.ring.notified().await,
            }
        }
    }
}

impl Watch {
    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the history, if that is not done yet.
    fn follow(self: &Arc<Self>, engine: &Engine) {
        let room = engine.room();
        let mut watchers = self.watchers();
        if watchers.following.is_none() {
            let bells = Bells {
                watch: self.clone(),
                poll: next_look(room.hinted, None),
            };
            watchers.following = Some(room.tail.follow(engine, Arc::new(bells)));
        }
    }

    /// Tells that a lock has ended, or of its holder and until when.
    fn ring(&self, lock: &Key, now_for: Option<(Holder, Timestamp)>) {
        let watchers = self.watchers();
        let of_lock = watchers.by_lock.get(lock).into_iter();
        for watcher in of_lock.flat_map(BTreeMap::values) {
            watcher.bell.tell(match (now_for, watcher.for_one) {
                (Some((holder, until)), Some(one)) if holder != one => News::Until(until),
                _ => News::Look,
            });
        }
    }

    /// Lets all look by themselves who came with this number or later.
    fn ring_since(&self, first: u64) {
        for of_lock in self.watchers().by_lock.values() {
            for (_, watcher) in of_lock.range(first..) {
                watcher.bell.tell(News::Look);
            }
        }
    }
}

/// Those who watch, as one who follows the history.
#[derive(Debug)]
struct Bells {
    watch: Arc<Watch>,
    poll: Duration,
}

impl Follower for Bells {
    /// The few locks that are watched, or all.
    fn interests(&self) -> Vec<Interest> {
        let mut watchers = self.watch.watchers();
        watchers.asked = watchers.registered;
        let named = watchers.by_lock.len() <= NAMED_MAX;
        let prefixes: Vec<&str> = match named {
            // Each may be the beginning of others, whose changes ring for nobody.
            true => watchers.by_lock.keys().map(Key::as_str).collect(),
            false => vec![LOCKS],
        };
        let prefixes = prefixes.into_iter().map(Prefix::new);
        prefixes.flatten().map(Interest::Records).collect()
    }

    fn poll(&self) -> Duration {
        self.poll
    }

    /// What happened before is not told.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    fn gives_way(&self) -> bool {
        false
    }

    fn begins(&self, _: Position) {
        self.watch.ring_since(0);
    }

    fn told(&self, entries: &[Entry], _: Position) {
        // What was not asked for is not in it.
        let asked = self.watch.watchers().asked;
        self.watch.ring_since(asked);
        for change in entries.iter().flat_map(|entry| &entry.changes) {
            match change {
                Change::Put(record) => {
                    let holder = Holder::of(record).ok();
                    self.watch.ring(&record.key, holder.zip(record.expires_at));
                }
                Change::Removed { key, .. } => self.watch.ring(key, None),
                Change::Task(_) | Change::Group { .. } => {}
            }
        }
    }

    fn gone(&self) {}

    /// Those who wait look by themselves, and hear what is wrong.
    fn failing(&self, _: u32, error: &Error) -> Option<Duration> {
        tracing::debug!(%error, "the history of locks cannot be read");
        Some(POLL)
    }

    fn back(&self) {}

    fn over(&self, _: Option<&Error>) {
        let following = self.watch.watchers().following.take();
        drop(following);
        self.watch.ring_since(0);
    }
}
