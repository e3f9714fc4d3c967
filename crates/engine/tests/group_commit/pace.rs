//! Groups are in flight together where that answers more callers, and one at a time where it does not.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{join_all, select};
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Around, Decorated, Method};
use plimsoll_core::store::Receipt;
use plimsoll_core::{Limits, Memory, Namespace, Result, Store, StoreExt};
use plimsoll_engine::{Bounds, GroupCommit};

use crate::setup::put;

/// How long a call takes that is alone with the store.
const ALONE: Duration = Duration::from_millis(4);

/// A store whose calls take time.
#[derive(Clone, Debug)]
struct Slow {
    clock: ManualClock,
    /// How long a call takes beside another one.
    beside: Duration,
    in_flight: Arc<AtomicUsize>,
    /// How many were in flight when each call began, with itself.
    seen: Arc<Mutex<Vec<usize>>>,
}

impl Around for Slow {
    async fn around<T, C, F>(&self, _: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        let with = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.lock().unwrap().push(with);
        let takes = if with > 1 { self.beside } else { ALONE };
        self.clock.sleep(takes).await;
        let answer = call().await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}

/// How many of a hundred calls began beside another one, after a while, with 64 callers and room for 16 in a group.
async fn percent_beside_others(beside: Duration) -> Result<usize> {
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let limits = Limits {
        commits_max: 16,
        ..Limits::default()
    };
    let memory = Memory::with(shared.clone(), limits);
    let slow = Slow {
        clock: clock.clone(),
        beside,
        in_flight: Arc::default(),
        seen: Arc::default(),
    };
    let bare: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("test")?));
    let bounds = Bounds {
        in_flight_max: 2,
        ..Bounds::default()
    };
    let store = Arc::new(Decorated::new(bare, slow.clone()));
    let merged = Arc::new(GroupCommit::new(store, bounds, shared));
    let calls = (0..64).map(|_| async {
        loop {
            merged.commit_one(put("key").unwrap()).await.unwrap();
        }
    });
    let time = async {
        for step in 0..20_000 {
            if step == 10_000 {
                slow.seen.lock().unwrap().clear();
            }
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_millis(1));
        }
    };
    select(pin!(time), join_all(calls.map(Box::pin))).await;
    let seen = slow.seen.lock().unwrap();
    assert!(seen.len() > 1_000, "{} calls", seen.len());
    Ok(100 * seen.iter().filter(|with| **with > 1).count() / seen.len())
}

#[tokio::test]
async fn a_store_that_waits_has_several_groups_in_flight() -> Result<()> {
    let percent = percent_beside_others(ALONE).await?;
    assert!(percent > 40, "{percent} % began beside another one");
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_busy_has_one() -> Result<()> {
    let percent = percent_beside_others(ALONE * 4).await?;
    assert!(percent < 10, "{percent} % began beside another one");
    Ok(())
}
