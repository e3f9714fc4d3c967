//! Tells those who wait for locks, or look at them, that something has changed.
//!
//! One for each engine follows the history of these locks, as long as somebody waits. It is woken by
//! the store's hints, and looks by itself once a second where hints of other processes do not
//! arrive. A lock that expires tells nobody: those who wait look by themselves when it ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::change::{Change, Interest};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::{Changes, Start};
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Key, Limits, Position, Prefix, Result, Store, Timestamp};
use tokio::sync::Notify;

use super::decide::POLL;
use super::stored::{Holder, LOCKS};
use crate::Engine;
use crate::spawn::Spawner;

/// How many changes are read at once.
const CHANGES_MAX: usize = 1_000;
/// Up to how many locks the store is asked for by name, so that it leaves out all others.
const NAMED_MAX: usize = 16;

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
        if !watchers.followed {
            watchers.followed = true;
            Spawner::current().spawn(follow(watch.clone(), engine.clone()));
        }
        drop(watchers);
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
            self.watch.changed.notify_one();
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

    /// Whether somebody watches. If not, whoever comes next has to start a follower.
    fn goes_on(&self) -> bool {
        let mut watchers = self.watchers();
        watchers.followed = !watchers.by_lock.is_empty();
        watchers.followed
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

    /// What to read of the history: the few locks that are watched or all, and the number of the
    /// next who comes.
    fn interests(&self, limits: &Limits) -> Result<(Vec<Interest>, u64)> {
        let watchers = self.watchers();
        let named = watchers.by_lock.len() <= NAMED_MAX.min(limits.lanes_max);
        let prefixes: Result<Vec<_>, _> = match named {
            // Each may be the beginning of others, whose changes ring for nobody.
            true => (watchers.by_lock.keys().map(Key::as_str))
                .map(Prefix::new)
                .collect(),
            false => Prefix::new(LOCKS).map(|all| vec![all]),
        };
        let interests = prefixes?.into_iter().map(Interest::Records).collect();
        Ok((interests, watchers.registered))
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
        let look = engine.room().next_look(engine.clock().now(), None);
        tokio::select! {
            biased;
            () = watch.changed.notified() => {}
            () = told_of_history(&mut hints) => {}
            () = engine.clock().sleep(look) => {}
        }
    }
    end.0 = None;
}

async fn told_of_history(hints: &mut Listener) {
    while !hints.next().await.history {}
}

/// Reads one page. Answers whether there is more to do at once.
async fn turn(watch: &Watch, store: &dyn Store, place: &mut Option<Position>) -> Result<bool> {
    let (interests, came) = watch.interests(store.limits())?;
    let changes = Changes {
        start: place.map_or(Start::Newest, Start::After),
        interests,
        limit: CHANGES_MAX.min(store.limits().page_max),
    };
    let page = store.changes(changes).await?;
    // What happened before this place is not read, nor what was not asked for.
    let unread = if place.is_some() { came } else { 0 };
    *place = Some(page.next);
    watch.ring_since(unread);
    for change in page.entries.iter().flat_map(|entry| &entry.changes) {
        match change {
            Change::Put(record) => {
                let holder = Holder::of(record).ok();
                watch.ring(&record.key, holder.zip(record.expires_at));
            }
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
