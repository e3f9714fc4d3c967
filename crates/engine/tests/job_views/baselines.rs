//! What it costs the store to read job states, in calls, which do not depend on the machine: whoever makes it
//! cost more has to say so here.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::{Around, Decorated, Method};
use plimsoll_core::store::{Commit, Put, Receipt, Write};
use plimsoll_core::{Ids, Result};
use plimsoll_engine::Engine;
use plimsoll_engine::jobs::{Monitor, Scope, SubscribeOptions, Subscription};

use crate::world::{JOB, World, partition, stored, tag};

const MANY: u32 = 10_000;

/// The calls of a store since the last look.
#[derive(Clone, Debug, Default)]
struct Calls(Arc<Mutex<BTreeMap<Method, usize>>>);

impl Calls {
    fn take(&self) -> Vec<(Method, usize)> {
        std::mem::take(&mut *self.0.lock().unwrap())
            .into_iter()
            .collect()
    }
}

impl Around for Calls {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        *self.0.lock().unwrap().entry(method).or_default() += 1;
        call().await
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}

/// A process that reads the job, and the calls that this takes. What is written is written by others.
struct Reader {
    engine: Engine,
    calls: Calls,
}

impl Reader {
    fn of(world: &World) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(world.clock.clone());
        let calls = Calls::default();
        let store = Arc::new(Decorated::new(world.store(), calls.clone()));
        let engine = Engine::with(store, clock.clone(), Ids::seeded(1, clock));
        Self { engine, calls }
    }

    async fn monitor(&self) -> Monitor {
        self.engine.jobs().monitor(JOB).await.unwrap()
    }

    async fn subscribe(&self) -> Subscription {
        let monitor = self.monitor().await;
        let subscribed = monitor.subscribe(Scope::all(), SubscribeOptions::default());
        subscribed.await.unwrap()
    }
}

/// A job of which every partition has said something.
async fn large() -> World {
    let world = World::with(MANY).await;
    let first = |partition| {
        let key = World::key(partition, "a");
        Commit::of(Write::Put(Put::new(key, stored(7, 1))))
    };
    for written in world.store().commit((0..MANY).map(first).collect()).await {
        written.unwrap();
    }
    world
}

#[tokio::test]
async fn a_replay_of_10_000_states_takes_one_look_at_each_page_and_the_next_none() {
    let world = large().await;
    let pages = MANY as usize / world.store().limits().page_max;
    let reader = Reader::of(&world);
    let mut first = reader.subscribe().await;
    assert_eq!(world.told(&mut first).await.len(), MANY as usize + 1);
    // Of the history: where it ends when the load begins and when it is over, and after each of these what
    // came next.
    let expected = [
        (Method::Get, 1),
        (Method::Scan, pages),
        (Method::Changes, 4),
    ];
    assert_eq!(reader.calls.take(), expected);
    let mut second = reader.subscribe().await;
    assert_eq!(world.told(&mut second).await.len(), MANY as usize + 1);
    assert_eq!(reader.calls.take(), []);
}

#[tokio::test]
async fn a_delivery_takes_the_same_calls_however_many_subscribe() {
    for subscribers in [1, 1_000] {
        let world = World::with(1).await;
        let reader = Reader::of(&world);
        let mut all = Vec::new();
        for _ in 0..subscribers {
            all.push(reader.subscribe().await);
        }
        for one in &mut all {
            assert_eq!(world.told(one).await, ["marker"]);
        }
        reader.calls.take();
        world.set(0, "a", 1).await;
        for one in &mut all {
            assert_eq!(world.told(one).await, ["now 0-a=1 v1"]);
        }
        assert_eq!(reader.calls.take(), [(Method::Changes, 1)]);
    }
}

#[tokio::test]
async fn a_read_of_10_000_partitions_takes_no_call() {
    let world = large().await;
    let reader = Reader::of(&world);
    let monitor = reader.monitor().await;
    monitor.get_state(&Scope::all()).await.unwrap();
    reader.calls.take();
    for scope in [Scope::all(), tag("a"), partition(MANY - 1)] {
        assert_eq!(monitor.get_state(&scope).await.unwrap().status, 7);
    }
    assert_eq!(reader.calls.take(), []);
}
