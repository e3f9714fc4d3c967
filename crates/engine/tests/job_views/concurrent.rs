//! Many who write and subscribe at once, on several threads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use plimsoll_core::record::fields;
use plimsoll_core::store::{Commit, Put, Write};
use plimsoll_core::{Key, Memory, Namespace, Store, StoreExt};
use plimsoll_engine::Engine;
use plimsoll_engine::jobs::{Monitor, Scope, StateEvent, SubscribeOptions};
use plimsoll_store_sqlite::{Config, Sqlite};
use tokio::sync::Semaphore;

use crate::world::{JOB, World, spawn, stored};

const PARTITIONS: u32 = 8;
const WRITES: i64 = 300;
/// Half of them subscribe when all partitions have written half.
const SUBSCRIBERS: u32 = 40;

/// Writes all versions, the last one when everybody has subscribed.
async fn write(store: Arc<dyn Store>, partition: u32, subscribed: Arc<Semaphore>) {
    for version in 1..=WRITES {
        if version == WRITES {
            drop(subscribed.acquire_many(SUBSCRIBERS).await.unwrap());
        }
        let status = i32::try_from(version).unwrap();
        let put = Put::new(World::key(partition, "a"), stored(status, version));
        store.commit_one(Commit::of(Write::Put(put))).await.unwrap();
        tokio::task::yield_now().await;
    }
}

/// Everything that one who subscribes gets, until all have written all.
async fn subscribe(monitor: Monitor, number: u32, subscribed: Arc<Semaphore>) {
    let late = number >= SUBSCRIBERS / 2;
    if late {
        let half = i32::try_from(WRITES / 2).unwrap();
        monitor.barrier("a", half).unwrap().await.unwrap();
    }
    let depth = number as usize % 10;
    let options = SubscribeOptions { depth, after: None };
    let mut events = monitor.subscribe(Scope::all(), options).await.unwrap();
    subscribed.add_permits(1);
    let (mut replayed, mut told) = (0, 0);
    let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
    let mut live = false;
    while seen.len() < PARTITIONS as usize || seen.values().any(|seen| *seen < WRITES as u64) {
        match events.next().await.unwrap().unwrap() {
            StateEvent::State(state) => {
                let replay = state.is_replay();
                assert_ne!(replay, live, "replayed states come before the marker");
                let before = seen.insert(state.partition, state.version);
                replayed += u32::from(replay);
                told += 1;
                match replay {
                    true => assert_eq!(before, None),
                    // From the replay on, nothing is missing and nothing comes twice.
                    false => assert_eq!(state.version, before.unwrap_or(0) + 1),
                }
            }
            StateEvent::ReplayComplete { .. } => {
                assert!(!live, "one marker");
                live = true;
            }
            StateEvent::Restarted => panic!("nothing was compacted"),
        }
    }
    if late {
        assert_eq!(replayed, PARTITIONS);
    }
    assert!(told - replayed >= PARTITIONS, "the last ones come live");
}

/// Writers here and subscribers there, until everything was told.
async fn at_once(writing: Arc<dyn Store>, reading: Arc<dyn Store>) {
    let fields = fields([
        ("partitions", "8"),
        ("generation", "1"),
        ("created_at", "0"),
        ("floor", "0"),
    ]);
    let key = Key::new("plimsoll.jobs.import").unwrap();
    let job = Write::Put(Put::new(key, fields.unwrap()));
    writing.commit_one(Commit::of(job)).await.unwrap();
    let engine = Engine::new(reading);
    let subscribed = Arc::new(Semaphore::new(0));
    let writers: Vec<_> = (0..PARTITIONS)
        .map(|partition| spawn(write(writing.clone(), partition, subscribed.clone())))
        .collect();
    let mut subscribers = Vec::new();
    for number in 0..SUBSCRIBERS {
        let monitor = engine.jobs().monitor(JOB).await.unwrap();
        subscribers.push(spawn(subscribe(monitor, number, subscribed.clone())));
        tokio::task::yield_now().await;
    }
    for doing in writers.into_iter().chain(subscribers) {
        doing.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_misses_or_repeats_anything_between_replay_and_live_under_concurrent_writers() {
    let memory = Memory::new();
    let open = || Arc::new(memory.open(Namespace::new("test").unwrap()));
    at_once(open(), open()).await;
}

async fn open(folder: &Path) -> Arc<dyn Store> {
    let sqlite = Sqlite::open(Config::new(folder.join("jobs.db"))).unwrap();
    let store = sqlite.namespace(Namespace::new("test").unwrap()).await;
    Arc::new(store.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_does_anybody_in_another_process_that_shares_a_file_with_the_writers() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (open(folder.path()).await, open(folder.path()).await);
    at_once(here, there).await;
}
