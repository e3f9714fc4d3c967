//! Fifty at once: one at a time, each of them, in the order of tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::Result;
use plimsoll_core::decorate::{FaultPlan, FaultRates};

use crate::world::{Process, World, seconds, spawn};

/// What a lock protects: it notices two at once, and a token that is not greater.
#[derive(Default)]
pub(crate) struct Treasure {
    inside: AtomicU64,
    token: AtomicU64,
    visits: AtomicU64,
}

impl Treasure {
    pub(crate) async fn visit(&self, token: u64) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        let before = self.token.swap(token, Ordering::SeqCst);
        assert!(token > before, "{token} after {before}");
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.visits.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 1);
    }

    pub(crate) fn visits(&self) -> u64 {
        self.visits.load(Ordering::SeqCst)
    }
}

async fn fifty(w: &World, processes: &[Process]) -> Result<Arc<Treasure>> {
    let treasure = Arc::new(Treasure::default());
    let mut visitors = Vec::new();
    for n in 0..50 {
        let lock = processes[n % processes.len()].locks.lock("treasure");
        let treasure = treasure.clone();
        visitors.push(spawn(async move {
            for _ in 0..4 {
                let visit = lock.with(async |tenure| treasure.visit(tenure.token().get()).await);
                visit.await?;
            }
            Ok::<(), plimsoll_core::Error>(())
        }));
    }
    for visitor in visitors {
        w.time(visitor).await.1?;
    }
    Ok(treasure)
}

#[tokio::test]
async fn fifty_of_one_process_come_one_at_a_time() -> Result<()> {
    let w = World::new();
    let treasure = fifty(&w, &[w.process(1)]).await?;
    assert_eq!(treasure.visits(), 200);
    Ok(())
}

#[tokio::test]
async fn fifty_of_ten_processes_come_one_at_a_time() -> Result<()> {
    let w = World::new();
    let processes: Vec<_> = (0..10).map(|seed| w.process(seed)).collect();
    let treasure = fifty(&w, &processes).await?;
    assert_eq!(treasure.visits(), 200);
    w.pass(seconds(31.0)).await;
    assert_eq!(w.records().await, []);
    Ok(())
}

/// One in ten calls goes wrong. What is lost then is time.
#[tokio::test]
async fn fifty_come_one_at_a_time_over_a_bad_wire() -> Result<()> {
    let w = World::new();
    let processes: Vec<_> = (0..10)
        .map(|seed| {
            let rates = FaultRates {
                before_permille: 40,
                after_permille: 40,
                duplicate_permille: 20,
                ..FaultRates::default()
            };
            let ids = w.process(seed + 100).engine.ids().clone();
            w.process_with(seed, FaultPlan::by_chance(rates, ids))
        })
        .collect();
    let treasure = fifty(&w, &processes).await?;
    assert_eq!(treasure.visits(), 200);
    let faults = processes
        .iter()
        .flat_map(|p| p.plan.injected().into_values());
    assert!(faults.sum::<u64>() > 100);
    Ok(())
}
