//! The changes that somebody is interested in, for all who watch the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use plimsoll_core::change::{Entry, Interest};
use plimsoll_core::clock::Clock;
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Position};
use tokio::sync::watch;

use super::{
    Bears, Fanout, Follower, Following, POLL, Patience, Place, Reconnect, Seen, Told, Woken, placed,
};
use crate::Engine;

/// How many changes are kept for those who read slowly, before they have to read the store.
const KEPT_MAX: usize = 1_024;
/// And how many bytes.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(super) type Changes = Fanout<Place, Arc<Seen>, Error>;

/// The feeds of an engine, while somebody watches them.
#[derive(Debug, Default)]
pub(crate) struct Feeds(Mutex<Vec<(Interest, Weak<Followed>)>>);

/// A feed that is followed. The last one who drops it ends that.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) feed: Arc<Feed>,
    _following: Following,
}

#[derive(Debug)]
pub(super) struct Feed {
    interest: Interest,
    reconnect: Reconnect,
    patience: Mutex<Patience>,
    clock: Arc<dyn Clock>,
    /// What is told, once it has begun.
    changes: watch::Sender<Option<Begun>>,
}

/// What came of a feed.
#[derive(Clone, Debug)]
pub(super) enum Begun {
    Told(Arc<Changes>),
    Over(Error),
}

impl Feeds {
    /// The feed of this interest, shared with all who watch the same with the same patience.
    pub(super) fn follow(
        &self,
        engine: &Engine,
        interest: &Interest,
        reconnect: Reconnect,
    ) -> Arc<Followed> {
        let mut feeds = self.feeds();
        feeds.retain(|(_, feed)| feed.strong_count() > 0);
        let same = feeds.iter().filter(|(one, _)| one == interest);
        let alive = same.filter_map(|(_, feed)| feed.upgrade());
        let mut alive = alive.filter(|one| one.feed.reconnect == reconnect && !one.feed.is_over());
        if let Some(feed) = alive.next() {
            return feed;
        }
        let feed = Arc::new(Feed {
            interest: interest.clone(),
            reconnect,
            patience: Mutex::default(),
            clock: engine.clock().clone(),
            changes: watch::Sender::new(None),
        });
        let followed = Arc::new(Followed {
            _following: engine.tail().follow(engine, feed.clone()),
            feed,
        });
        feeds.push((interest.clone(), Arc::downgrade(&followed)));
        followed
    }

    fn feeds(&self) -> MutexGuard<'_, Vec<(Interest, Weak<Followed>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    /// What is told, as soon as it has begun.
    pub(super) async fn begun(&self) -> Begun {
        let mut changes = self.changes.subscribe();
        let begun = changes.wait_for(Option::is_some).await;
        // The sender is in this feed, so that it cannot be gone.
        begun
            .ok()
            .and_then(|begun| begun.clone())
            .unwrap_or(Begun::Over(Error::Closed))
    }

    fn patience(&self) -> MutexGuard<'_, Patience> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        matches!(*self.changes.borrow(), Some(Begun::Over(_)))
    }

    fn end(&self, error: &Error) {
        let before = self.changes.send_replace(Some(Begun::Over(error.clone())));
        if let Some(Begun::Told(changes)) = before {
            drop(changes.end(error.clone()));
        }
    }
}

impl Follower for Feed {
    fn interests(&self) -> Vec<Interest> {
        vec![self.interest.clone()]
    }

    fn poll(&self) -> Duration {
        POLL
    }

    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    fn gives_way(&self) -> bool {
        false
    }

    fn begins(&self, after: Position) {
        let after = Place::after(after);
        // Those who are woken look at this at once.
        let mut woken = Woken::default();
        self.changes.send_modify(|begun| match begun {
            Some(Begun::Told(changes)) => woken = changes.restart(after),
            Some(Begun::Over(_)) => {}
            None => {
                let changes = Changes::new(after, KEPT_MAX, KEPT_BYTES_MAX);
                *begun = Some(Begun::Told(Arc::new(changes)));
            }
        });
    }

    fn told(&self, entries: &[Entry], upto: Position) {
        let Some(Begun::Told(changes)) = self.changes.borrow().clone() else {
            return;
        };
        let placed = placed(entries, &self.interest, Place::START);
        let told = placed.into_iter().map(|placed| Told {
            place: placed.place,
            bytes: placed.change.size(),
            event: Arc::new(placed),
        });
        changes.tell(told, Place::after(upto));
    }

    fn gone(&self) {}

    fn failing(&self, _: u32, error: &Error) -> Option<Duration> {
        let now = self.clock.monotonic();
        let bears = self.patience().failed(&self.reconnect, now);
        if let Bears::No(_) = bears {
            self.end(error);
        }
        bears.wait()
    }

    fn back(&self) {
        self.patience().restore();
    }

    fn over(&self, error: Option<&Error>) {
        match error {
            Some(error) => self.end(error),
            None => self.end(&Error::Unavailable(Unavailable {
                applied: Applied::No,
                cause: "the runtime that followed the history has ended".into(),
            })),
        }
    }
}
