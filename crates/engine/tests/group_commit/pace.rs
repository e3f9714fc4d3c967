//! Groups are in flight together where that answers more callers, and one at a time where it does not.

use std::future::pending;
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

/// How long a call takes that hangs.
const HANGS: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Hangs,
    HangsForEver,
    HangsAndBreaks,
}

/// A store whose calls take time.
#[derive(Clone, Debug)]
struct Slow {
    clock: ManualClock,
    /// How long a call takes beside another one.
    beside: Duration,
    in_flight: Arc<AtomicUsize>,
    /// What is to happen to the next call.
    trouble: Arc<Mutex<Option<Trouble>>>,
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
        let trouble = self.trouble.lock().unwrap().take();
        match trouble {
            None => {}
            Some(Trouble::HangsForEver) => pending::<()>().await,
            Some(Trouble::Hangs | Trouble::HangsAndBreaks) => self.clock.sleep(HANGS).await,
        }
        self.clock.sleep(takes).await;
        let answer = call().await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let breaks = matches!(trouble, Some(Trouble::HangsAndBreaks));
        assert!(!breaks, "broken on purpose");
        answer
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}

/// It, with group commit in front of it: room for 16 callers in a group, and for two groups in flight.
struct Scene {
    slow: Slow,
    merged: GroupCommit,
}

impl Scene {
    fn set(beside: Duration) -> Result<Self> {
        let slow = Slow {
            clock: ManualClock::new(),
            beside,
            in_flight: Arc::default(),
            trouble: Arc::default(),
            seen: Arc::default(),
        };
        let clock: Arc<dyn Clock> = Arc::new(slow.clock.clone());
        let limits = Limits {
            commits_max: 16,
            ..Limits::default()
        };
        let memory = Memory::with(clock.clone(), limits);
        let bare: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("test")?));
        let bounds = Bounds {
            in_flight_max: 2,
            ..Bounds::default()
        };
        let store = Arc::new(Decorated::new(bare, slow.clone()));
        let merged = GroupCommit::new(store, bounds, clock);
        Ok(Self { slow, merged })
    }

    fn trouble(&self, trouble: Trouble) {
        *self.slow.trouble.lock().unwrap() = Some(trouble);
    }

    /// For so many milliseconds, 64 callers call again and again. How many others each call was beside.
    async fn run(&self, millis: usize) -> Vec<usize> {
        self.slow.seen.lock().unwrap().clear();
        let calls = (0..64).map(|_| async {
            loop {
                // Those whose group breaks call again.
                self.merged.commit_one(put("key").unwrap()).await.ok();
            }
        });
        let time = async {
            for _ in 0..millis {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                self.slow.clock.advance(Duration::from_millis(1));
            }
        };
        select(pin!(time), join_all(calls.map(Box::pin))).await;
        self.slow.seen.lock().unwrap().clone()
    }
}

/// How many of a hundred calls began beside another one.
fn percent_beside_others(seen: &[usize]) -> usize {
    assert!(seen.len() > 1_000, "{} calls", seen.len());
    100 * seen.iter().filter(|with| **with > 1).count() / seen.len()
}

/// One that answers more with one group at a time, and has found that out.
async fn busy() -> Result<Scene> {
    let scene = Scene::set(ALONE * 4)?;
    scene.run(10_000).await;
    let percent = percent_beside_others(&scene.run(10_000).await);
    assert!(percent < 10, "{percent} % began beside another one");
    Ok(scene)
}

#[tokio::test]
async fn a_store_that_waits_has_several_groups_in_flight() -> Result<()> {
    let scene = Scene::set(ALONE)?;
    scene.run(10_000).await;
    let percent = percent_beside_others(&scene.run(10_000).await);
    assert!(percent > 40, "{percent} % began beside another one");
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_busy_has_one() -> Result<()> {
    busy().await.map(drop)
}

#[tokio::test]
async fn a_group_that_takes_long_holds_up_the_others_for_a_moment_only() -> Result<()> {
    let scene = busy().await?;
    scene.trouble(Trouble::HangsForEver);
    // However often both are tried meanwhile, another one goes beside it.
    for _ in 0..20 {
        let seen = scene.run(1_000).await;
        assert!(seen.len() > 30, "{} calls beside it", seen.len());
    }
    Ok(())
}

#[tokio::test]
async fn a_group_that_is_answered_late_or_breaks_leaves_all_as_it_was() -> Result<()> {
    for trouble in [Trouble::Hangs, Trouble::HangsAndBreaks] {
        let scene = busy().await?;
        for _ in 0..3 {
            scene.trouble(trouble);
            let seen = scene.run(1_000).await;
            assert!(seen.contains(&2), "{trouble:?}: others went beside it");
        }
        scene.run(10_000).await;
        let percent = percent_beside_others(&scene.run(10_000).await);
        assert!(percent < 10, "{trouble:?}: {percent} % beside another one");
    }
    Ok(())
}
