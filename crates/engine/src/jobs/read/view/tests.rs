//! What a process reads of its own writes.

use futures::FutureExt;
use plimsoll_core::clock::ManualClock;
use plimsoll_core::record::{Record, fields};
use plimsoll_core::store::{Commit, Put, Write};
use plimsoll_core::{Ids, Key, Limits, Memory, Namespace, Store, StoreExt, Timestamp};

use super::*;
use crate::jobs::StateEvent;
use crate::jobs::read::replay::ORDERED;
use crate::jobs::stored::Stored;

struct World {
    store: Arc<dyn Store>,
    view: View,
    clock: ManualClock,
}

fn life() -> Life {
    Life {
        generation: 1,
        created_at: Timestamp::MIN,
    }
}

impl World {
    async fn new() -> Self {
        let clock = ManualClock::new();
        let memory = Memory::with(Arc::new(clock.clone()), Limits::default());
        let store: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("test").unwrap()));
        let ids = Ids::seeded(1, Arc::new(clock.clone()));
        let engine = Engine::with(store.clone(), Arc::new(clock.clone()), ids);
        let keys = Keys::of(Name::new("import").unwrap()).unwrap();
        let view = View::new(engine, keys, Some(life()));
        let job = fields([
            ("partitions", "2"),
            ("generation", "1"),
            ("created_at", "0"),
            ("floor", "0"),
        ])
        .unwrap();
        let job = Put::new(view.keys.job.clone(), job);
        store.commit_one(Commit::of(Write::Put(job))).await.unwrap();
        Self { store, view, clock }
    }

    fn key(&self, partition: u32) -> Key {
        self.view
            .keys
            .state(partition, &Name::new("a").unwrap())
            .unwrap()
    }

    /// Writes a state, and answers the record.
    async fn write(&self, partition: u32, status: i32, version: u64) -> Record {
        let fields = fields([
            ("status", status.to_string()),
            ("message", String::new()),
            ("version", version.to_string()),
            ("schema_version", "1".to_owned()),
            ("events", "[]".to_owned()),
        ])
        .unwrap();
        let put = Put::new(self.key(partition), fields);
        let write = Write::Put(put);
        self.store.commit_one(Commit::of(write)).await.unwrap();
        let record = self.store.record(&self.key(partition)).await.unwrap();
        record.unwrap()
    }

    /// This process has written that.
    fn wrote(&self, record: &Record) -> Arc<State> {
        let stored = Stored::read(&self.view.keys, record).unwrap();
        let (views, own) = (self.view.engine.views(), Own::read(record, stored.state));
        views.wrote(self.view.job(), &life(), vec![own.clone()]);
        own.state
    }

    async fn remove(&self, partition: u32) {
        let write = Write::Delete(self.key(partition));
        self.store.commit_one(Commit::of(write)).await.unwrap();
    }

    async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// The status of a partition, without anything having been told meanwhile.
    fn status(&self, partition: u32) -> i32 {
        let scope = Scope::all().partition(partition).tag("a").unwrap();
        let state = self.view.get_state(&scope).now_or_never();
        state.unwrap().unwrap().status
    }

    fn lowest(&self) -> i32 {
        let state = self.view.get_state(&Scope::all()).now_or_never();
        state.unwrap().unwrap().status
    }
}

#[tokio::test]
async fn a_process_reads_its_own_writes_at_once_and_subscribers_are_told_once() {
    let world = World::new().await;
    world.write(1, 9, 1).await;
    world.view.partitions().await.unwrap();
    let options = SubscribeOptions::default();
    let subscription = world.view.subscribe(Scope::all(), options).await;
    let mut subscription = subscription.unwrap();
    let record = world.write(0, 5, 1).await;
    assert_eq!(world.status(0), 0, "nobody told of it yet");
    world.wrote(&record);
    assert_eq!(world.status(0), 5);
    assert_eq!(world.lowest(), 5);
    // What was there, and the marker. The write is not told before the history tells it.
    assert!(subscription.next().now_or_never().is_some());
    assert!(subscription.next().now_or_never().is_some());
    assert!(subscription.next().now_or_never().is_none());
    world.settle().await;
    let told = subscription.next().now_or_never().unwrap().unwrap();
    assert!(matches!(told, Ok(StateEvent::State(state)) if state.status == 5));
    world.settle().await;
    assert!(subscription.next().now_or_never().is_none());
    assert_eq!(world.status(0), 5);
}

#[tokio::test]
async fn own_writes_are_told_one_after_the_other_and_the_last_are_not_read_again() {
    const WRITES: u64 = 20;
    let world = World::new().await;
    world.view.partitions().await.unwrap();
    let options = SubscribeOptions::default();
    let subscription = world.view.subscribe(Scope::all(), options).await;
    let mut subscription = subscription.unwrap();
    subscription.next().await.unwrap().unwrap();
    let mut owns = Vec::new();
    for version in 1..=WRITES {
        let record = world.write(0, 5, version).await;
        owns.push(world.wrote(&record));
    }
    assert_eq!(world.status(0), 5);
    for (own, version) in owns.iter().zip(1..) {
        let told = subscription.next().await.unwrap().unwrap();
        let StateEvent::State(state) = told else {
            panic!("{told:?}");
        };
        assert_eq!(state.version, version);
        let known = version > WRITES - 16;
        assert_eq!(Arc::ptr_eq(state.state(), own), known, "{version}");
    }
    assert!(subscription.next().now_or_never().is_none());
}

#[tokio::test]
async fn an_own_write_is_not_in_the_replay_before_it_was_told() {
    let world = World::new().await;
    world.view.partitions().await.unwrap();
    let record = world.write(0, 5, 1).await;
    world.wrote(&record);
    let options = SubscribeOptions::default();
    let subscription = world.view.subscribe(Scope::all(), options).await;
    let mut subscription = subscription.unwrap();
    let first = subscription.next().await.unwrap().unwrap();
    assert!(matches!(first, StateEvent::ReplayComplete { .. }));
    let second = subscription.next().await.unwrap().unwrap();
    assert!(matches!(second, StateEvent::State(state) if !state.is_replay()));
}

#[tokio::test]
async fn an_older_own_write_does_not_hide_a_newer_one_of_another() {
    let world = World::new().await;
    world.view.partitions().await.unwrap();
    let own = world.write(0, 5, 1).await;
    world.write(0, 6, 2).await;
    world.settle().await;
    world.wrote(&own);
    assert_eq!(world.status(0), 6);
    // Nor one of its own that was answered first.
    let third = world.write(0, 7, 3).await;
    let fourth = world.write(0, 8, 4).await;
    world.wrote(&fourth);
    world.wrote(&third);
    assert_eq!(world.status(0), 8);
}

#[tokio::test]
async fn an_own_write_goes_when_its_end_is_told() {
    let world = World::new().await;
    world.view.partitions().await.unwrap();
    let own = world.write(0, 5, 1).await;
    world.wrote(&own);
    world.remove(0).await;
    assert_eq!(world.status(0), 5);
    world.settle().await;
    assert_eq!(world.status(0), 0);
    assert_eq!(world.lowest(), 0);
}

#[tokio::test]
async fn a_write_before_anything_was_read_loads_nothing() {
    let world = World::new().await;
    let own = world.write(0, 5, 1).await;
    world.wrote(&own);
    world.settle().await;
    assert_eq!(world.clock.sleepers(), 0, "nobody follows the history");
}

/// Until something is told, and of the same scope.
#[tokio::test]
async fn those_who_subscribe_at_one_moment_share_what_there_is() {
    let world = World::new().await;
    world.write(0, 5, 1).await;
    world.view.partitions().await.unwrap();
    let kept = world.view.kept();
    let all = Scope::all();
    let begin = async |scope: &Scope| kept.cache.snapshot(scope).await.unwrap().0;
    let first = begin(&all).await;
    let ordered = ORDERED.get();
    assert!(begin(&all).await.is_that_of(&first));
    assert_eq!(ORDERED.get(), ordered, "it was put in order again");
    assert!(!begin(&all.clone().partition(0)).await.is_that_of(&first));
    // What is one's own is not told yet.
    let own = world.write(0, 6, 2).await;
    world.wrote(&own);
    assert!(begin(&all).await.is_that_of(&first));
    world.settle().await;
    assert!(kept.cache.inner().replays.is_empty());
    let second = begin(&all).await;
    assert!(!second.is_that_of(&first));
    assert_eq!((first.left(), second.left()), (1, 1));
    world.remove(0).await;
    world.settle().await;
    assert_eq!(begin(&all).await.left(), 0);
}

#[tokio::test]
async fn one_who_goes_on_from_somewhere_takes_nothing_of_what_there_is() {
    let world = World::new().await;
    world.write(0, 5, 1).await;
    let subscribe = async |after| {
        let options = SubscribeOptions {
            after,
            ..SubscribeOptions::default()
        };
        world.view.subscribe(Scope::all(), options).await.unwrap()
    };
    let mut first = subscribe(None).await;
    for _ in 0..2 {
        first.next().await.unwrap().unwrap();
    }
    let after = first.cursor();
    world.write(0, 6, 2).await;
    world.settle().await;
    let ordered = ORDERED.get();
    let mut second = subscribe(after).await;
    assert_eq!(ORDERED.get(), ordered, "nothing was put in order");
    let told = second.next().await.unwrap().unwrap();
    assert!(matches!(told, StateEvent::State(state) if state.status == 6));
    assert!(world.view.kept().cache.inner().replays.is_empty());
}
