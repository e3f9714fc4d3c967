//! What readers of job states record.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Put, Write};
use plimsoll_engine::jobs::{Scope, SubscribeOptions};

use crate::world::{World, partition, seconds, tag};

/// What was recorded, by name.
struct Figures(Vec<(String, DebugValue)>);

impl Figures {
    fn of(story: impl Future<Output = ()>) -> Self {
        let recorder = DebuggingRecorder::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        metrics::with_local_recorder(&recorder, || runtime.block_on(story));
        let rows = recorder.snapshotter().snapshot().into_vec().into_iter();
        let rows = rows.map(|(key, _, _, value)| (key.key().name().to_owned(), value));
        Self(rows.collect())
    }

    fn find(&self, name: &str) -> &DebugValue {
        let row = self.0.iter().find(|(of, _)| of == name);
        &row.unwrap_or_else(|| panic!("no {name}")).1
    }

    fn counter(&self, name: &str) -> u64 {
        match self.find(name) {
            DebugValue::Counter(count) => *count,
            DebugValue::Gauge(_) | DebugValue::Histogram(_) => panic!("{name} is no counter"),
        }
    }

    fn samples(&self, name: &str) -> Vec<f64> {
        match self.find(name) {
            DebugValue::Histogram(samples) => samples.iter().map(|one| one.into_inner()).collect(),
            DebugValue::Counter(_) | DebugValue::Gauge(_) => panic!("{name} is no histogram"),
        }
    }
}

#[test]
fn reads_from_memory_replays_and_deliveries_are_recorded() {
    let figures = Figures::of(async {
        let world = World::with(1).await;
        world.set(0, "a", 1).await;
        let process = world.process();
        // One miss, and then hits.
        let monitor = process.monitor().await;
        monitor.get_state(&tag("a")).await.unwrap();
        let mut slow = process.subscribe(Scope::all()).await;
        slow.next().await.unwrap().unwrap();
        world.pass(seconds(5)).await;
        slow.next().await.unwrap().unwrap();
        world.set(0, "a", 2).await;
        world.settle().await;
        world.clock.advance(seconds(3));
        slow.next().await.unwrap().unwrap();
    });
    assert_eq!(figures.counter("plimsoll_state_cache_misses_total"), 1);
    assert_eq!(figures.counter("plimsoll_state_cache_hits_total"), 2);
    let replays = figures.samples("plimsoll_state_replay_duration_seconds");
    assert_eq!(replays, [5.0]);
    let deliveries = figures.samples("plimsoll_state_delivery_latency_seconds");
    assert_eq!(deliveries, [3.0]);
}

#[test]
fn states_of_a_batch_are_delivered_and_not_dropped() {
    let figures = Figures::of(async {
        let world = World::with(2).await;
        let mut one = world.process().subscribe(partition(0)).await;
        one.next().await.unwrap().unwrap();
        // What is taken at once counts once: the oldest of its own.
        for (partition, status) in [(1, 2), (0, 1), (0, 3)] {
            world.set(partition, "a", status).await;
            world.settle().await;
            world.clock.advance(seconds(3));
        }
        one.next_batch().await.unwrap().unwrap();
    });
    let deliveries = figures.samples("plimsoll_state_delivery_latency_seconds");
    assert_eq!(deliveries, [6.0]);
    let drops = figures.counter("plimsoll_state_subscription_drops_total");
    assert_eq!(drops, 0);
}

#[test]
fn what_a_dropped_subscription_had_at_hand_is_recorded_and_that_is_at_least_four() {
    for (depth, left) in [(0, 3), (5, 4), (64, 9)] {
        let figures = Figures::of(async {
            let world = World::with(1).await;
            let monitor = world.process().monitor().await;
            let options = SubscribeOptions { depth, after: None };
            let mut all = monitor.subscribe(Scope::all(), options).await.unwrap();
            all.next().await.unwrap().unwrap();
            for status in 1..=10 {
                world.set(0, "a", status).await;
            }
            world.settle().await;
            all.next().await.unwrap().unwrap();
        });
        let drops = figures.counter("plimsoll_state_subscription_drops_total");
        assert_eq!(drops, left, "with a depth of {depth}");
    }
}

#[test]
fn reconnections_drift_and_what_cannot_be_read_are_recorded() {
    let figures = Figures::of(async {
        let world = World::with(1).await;
        let process = world.process();
        let monitor = process.monitor().await;
        let nonsense = Put::new(World::key(0, "bad"), fields([("status", "x")]).unwrap());
        world.commit(Write::Put(nonsense)).await;
        process.history.omits("-c");
        world.set(0, "c", 1).await;
        world.settle().await;
        process.history.tells_all();
        process.disconnect(1);
        world.set(0, "d", 1).await;
        world.pass(seconds(1)).await;
        assert_eq!(monitor.get_state(&tag("c")).await.unwrap().status, 1);
    });
    assert_eq!(
        figures.counter("plimsoll_state_listener_reconnects_total"),
        1
    );
    assert_eq!(figures.counter("plimsoll_state_version_drift_total"), 1);
    assert_eq!(figures.counter("plimsoll_states_unreadable_total"), 1);
}
