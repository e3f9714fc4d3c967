//! Reads the history as it grows. How far it is, it has written down.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::Result;
use plimsoll_core::change::Interest;
use plimsoll_core::store::{Changes, Start};

use super::Station;

/// Where a subscriber goes on. It survives crashes.
#[derive(Debug)]
pub(crate) struct Bookmark {
    start: Mutex<Start>,
    slow: bool,
    tasks_only: bool,
}

impl Bookmark {
    pub(crate) fn new(slow: bool, tasks_only: bool) -> Self {
        Self {
            start: Mutex::new(Start::After(plimsoll_core::Position::ZERO)),
            slow,
            tasks_only,
        }
    }

    pub(crate) fn start(&self) -> Start {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Start> {
        self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the history for as long as it lives.
pub(crate) async fn follow(station: Station, bookmark: Arc<Bookmark>) -> Result<()> {
    let store = station.engine.store().clone();
    let mut hints = store.wakeups();
    loop {
        let asked = Changes {
            start: bookmark.start(),
            interests: if bookmark.tasks_only {
                vec![Interest::tasks()]
            } else {
                Vec::new()
            },
            limit: usize::try_from(station.dice.range(1, 40)).unwrap_or(1),
        };
        let answer = store.changes(asked.clone()).await;
        let next = station.world.checker().shown(&asked, &answer);
        let more = answer.is_ok_and(|page| page.more);
        if let Some(next) = next {
            *bookmark.lock() = next;
            station
                .world
                .say(&station.who, |_| format!("has seen up to {next:?}"));
        }
        if bookmark.slow && !station.world.is_calm() {
            station.pause(500, 20_000).await;
        } else if !more {
            tokio::select! {
                biased;
                _ = hints.next() => {}
                () = station.pause(500, 3_000) => {}
            }
        }
    }
}
