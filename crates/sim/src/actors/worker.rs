//! Workers: the engine's own, with handlers that do all that handlers may do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::task::WorkerId;
use plimsoll_engine::worker::{Context, Stopper};
use tokio::sync::Notify;

use super::Station;
use super::handlers::handle;
use super::orders::{KINDS, QUEUES};
use crate::planted::Planted;

/// How a worker is told to drain from outside.
#[derive(Debug, Default)]
pub(crate) struct Reins {
    running: Mutex<Option<Running>>,
    told: Notify,
}

#[derive(Debug)]
struct Running {
    id: WorkerId,
    stopper: Stopper,
    lease: Duration,
    /// When it was told to end.
    told_at: Option<Duration>,
}

impl Reins {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the worker to drain, or to stop at once.
    pub(crate) fn stop(&self, at_once: bool, now: Duration) {
        if let Some(running) = self.lock().as_mut() {
            running.told_at.get_or_insert(now);
            if at_once {
                running.stopper.now();
            } else {
                running.stopper.drain();
            }
            self.told.notify_one();
        }
    }
}

/// Works until it is told to drain. The first worker takes every kind of every queue.
pub(crate) async fn work(station: Station, reins: Arc<Reins>, first: bool) -> Result<()> {
    let dice = &station.dice;
    let mut builder = station.engine.worker(station.who.clone());
    for (place, queue) in QUEUES.into_iter().enumerate() {
        if first || place == 0 || dice.chance(600) {
            builder = builder.queue(queue);
        }
    }
    for (place, kind) in KINDS.into_iter().enumerate() {
        if first || place == 0 || dice.chance(800) {
            let station = station.clone();
            builder = builder.handle(kind, move |context: Context| {
                handle(station.clone(), context)
            });
            if dice.chance(150) {
                let most = usize::try_from(dice.range(1, 2)).unwrap_or(1);
                builder = builder.concurrency_of(kind, most);
            }
            if dice.chance(300) {
                let dice = dice.clone();
                builder = builder.backoff(kind, move |_, _| {
                    dice.chance(700).then(|| dice.millis(0, 8_000))
                });
            }
        }
    }
    let (lease, soft, hard) = (
        dice.millis(800, 15_000),
        dice.millis(0, 8_000),
        dice.millis(0, 4_000),
    );
    let heartbeat = dice.millis(1_000, 5_000);
    let until_empty = dice.chance(100);
    let worker = builder
        .settings(|settings| {
            settings.concurrency = usize::try_from(dice.range(1, 6)).unwrap_or(1);
            settings.prefetch_max = *dice.pick(&[0, 3, 512]);
            settings.many_answers = *dice.pick(&[1, 2, 100]);
            settings.lease = lease;
            settings.poll = dice.millis(200, 2_000);
            settings.cancel_grace = dice.millis(0, 5_000);
            settings.drain_soft = soft;
            settings.drain_hard = hard;
            settings.heartbeat = heartbeat;
            settings.stale_after = heartbeat * 3;
        })
        .sweeps(!until_empty && dice.chance(500))
        .build()?;
    let id = worker.id().clone();
    station.world.checker().works(&station.who, &id);
    *reins.lock() = Some(Running {
        id: id.clone(),
        stopper: worker.stopper(),
        lease,
        told_at: None,
    });
    let mut unsettled = 0;
    if until_empty {
        unsettled = worker.run_until_empty().await?.unsettled;
    } else if station.world.planted == Some(Planted::DroppingDrain) {
        tokio::select! {
            biased;
            ended = worker.run() => drop(ended?),
            () = reins.told.notified() => {}
        }
    } else {
        unsettled = worker.run().await?.unsettled;
    }
    let now = station.engine.clock().monotonic();
    // A worker that could not reach the store for as long as a lease runs may leave things to their
    // leases, and says so.
    let properly = reins.lock().take().is_some_and(|running| {
        let patient = running.told_at.is_none_or(|at| now >= at + running.lease);
        running.id == id && !(unsettled > 0 && patient)
    });
    if properly {
        station.world.checker().drained(&id);
    }
    Ok(())
}
