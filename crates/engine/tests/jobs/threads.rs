//! Managers, subscribers and barriers on several threads, while jobs are deleted and created again.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::{Memory, Name, Namespace, Result, Store};
use plimsoll_engine::Engine;
use plimsoll_engine::jobs::{
    FINISHED, Manager, Monitor, NewState, Scope, StateEvent, SubscribeOptions, Subscription,
};
use tokio::sync::Semaphore;

use crate::stored::Stored;
use crate::world::spawn;

const JOB: &str = "import";
const PARTITIONS: u32 = 4;
const WRITES: i32 = 60;
/// Those who subscribe in the middle of the work.
const LATE: u32 = 4;

/// Writes states of two tags, several at once, and, when everybody has subscribed, that it is done.
async fn work(manager: Manager, subscribed: Arc<Semaphore>) -> Result<()> {
    for round in 1..=WRITES / 4 {
        let states = (0..4).map(|n| {
            let tag = if n % 2 == 0 { "even" } else { "odd" };
            manager.set_state(NewState::new(tag, round * 4 + n).unwrap())
        });
        for written in states.collect::<Vec<_>>() {
            written.await?;
        }
        let own = Scope::all().partition(manager.partition()).tag("odd")?;
        assert_eq!(manager.get_state(&own).await?.status, round * 4 + 3);
    }
    drop(subscribed.acquire_many(LATE).await);
    manager.set_finished(NewState::of("done")?).await?;
    manager.close().await;
    Ok(())
}

/// The last version that somebody was told of each state.
type Versions = BTreeMap<(u32, Option<Name>), u64>;

/// Subscribes when all have done a part of the work, and takes everything.
async fn come_late(monitor: Monitor, subscribed: Arc<Semaphore>) -> Result<Versions> {
    monitor.barrier("even", WRITES / 4)?.await?;
    let options = SubscribeOptions::default();
    let events = monitor.subscribe(Scope::all(), options).await?;
    subscribed.add_permits(1);
    let (versions, replayed) = take(events, false).await;
    assert_eq!(replayed, 2 * PARTITIONS, "both tags of each");
    Ok(versions)
}

/// Takes everything until the job is deleted, and counts what was replayed.
async fn take(mut events: Subscription, slow: bool) -> (Versions, u32) {
    let mut versions = BTreeMap::new();
    let mut replayed = 0;
    let mut live = false;
    loop {
        match events.next().await {
            Some(Ok(StateEvent::State(state))) => {
                assert_eq!(state.is_replay(), !live);
                replayed += u32::from(!live);
                let key = (state.partition, state.tag.clone());
                let before = versions.insert(key.clone(), state.version);
                if live {
                    // Those that were not there yet begin after what former jobs of this name had.
                    let next = before.is_none_or(|before| state.version == before + 1);
                    assert!(next, "{key:?}: {before:?} then {}", state.version);
                } else {
                    assert_eq!(before, None);
                }
            }
            Some(Ok(StateEvent::ReplayComplete { .. })) => {
                assert!(!live, "one marker");
                live = true;
            }
            Some(Ok(StateEvent::Restarted)) => panic!("nothing was compacted"),
            Some(Err(error)) => {
                assert_eq!(error.code(), "job_deleted");
                assert!(live);
                return (versions, replayed);
            }
            None => panic!("it ends with an error"),
        }
        if slow {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// One life of the job, from its first partition to its deletion.
async fn live(processes: &[Engine], life: u64, subscribers: usize) -> Result<()> {
    let jobs: Vec<_> = processes.iter().map(Engine::jobs).collect();
    let first = jobs[0].join(JOB, 0, PARTITIONS).await?;
    let mut takers = Vec::new();
    for n in 0..subscribers {
        let monitor = jobs[n % jobs.len()].monitor(JOB).await?;
        let scope = match n / 2 % 4 {
            0 => Scope::all(),
            1 => Scope::all().partition(1),
            2 => Scope::all().tag("odd")?,
            _ => Scope::all().partition(2).tag("even")?,
        };
        let options = SubscribeOptions {
            depth: if n % 2 == 0 { 64 } else { 4 },
            after: None,
        };
        let events = monitor.subscribe(scope.clone(), options).await?;
        takers.push((scope, spawn(take(events, n % 2 == 1))));
    }
    let subscribed = Arc::new(Semaphore::new(0));
    let mut workers = vec![spawn(work(first, subscribed.clone()))];
    for partition in 1..PARTITIONS {
        let jobs = jobs[partition as usize % jobs.len()].clone();
        let subscribed = subscribed.clone();
        workers.push(spawn(async move {
            work(jobs.join(JOB, partition, PARTITIONS).await?, subscribed).await
        }));
    }
    let mut late = Vec::new();
    for n in 0..LATE as usize {
        let monitor = jobs[n % jobs.len()].monitor(JOB).await?;
        late.push(spawn(come_late(monitor, subscribed.clone())));
    }
    let monitor = jobs[1].monitor(JOB).await?;
    assert!(monitor.barrier("done", FINISHED)?.await?.is_finished());
    for worker in workers {
        worker.await.unwrap()?;
    }
    monitor.refresh().await?;
    let states = monitor.states(&Scope::all()).await?;
    assert_eq!(states.len(), 3 * PARTITIONS as usize);
    assert_eq!(monitor.get_state(&Scope::all()).await?.status, WRITES + 2);
    let highest = states.iter().map(|state| state.version).max().unwrap();
    assert_eq!(highest, life * (WRITES as u64) / 2, "versions go on");
    assert!(jobs[2].delete(JOB).await?);
    let expected = |scope: &Scope| {
        let covered = states.iter().filter(|state| scope.covers(state));
        covered
            .map(|state| ((state.partition, state.tag.clone()), state.version))
            .collect::<Versions>()
    };
    for (scope, taker) in takers {
        let (told, replayed) = taker.await.unwrap();
        assert_eq!((told, replayed), (expected(&scope), 0), "{scope:?}");
    }
    for taker in late {
        assert_eq!(taker.await.unwrap()?, expected(&Scope::all()));
    }
    Ok(())
}

async fn lives(stores: Vec<Arc<dyn Store>>, subscribers: usize) -> Result<()> {
    let processes: Vec<_> = stores.into_iter().map(Engine::new).collect();
    for life in 1..=2 {
        live(&processes, life, subscribers).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_or_told_twice_in_memory() -> Result<()> {
    let memory = Memory::new();
    let open = || -> Arc<dyn Store> { Arc::new(memory.open(Namespace::new("test").unwrap())) };
    lives((0..3).map(|_| open()).collect(), 8).await
}

/// Of more than a hundred in each process, a few at a time are woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_where_many_are_woken_in_turns() -> Result<()> {
    let memory = Memory::new();
    let open = || -> Arc<dyn Store> { Arc::new(memory.open(Namespace::new("test").unwrap())) };
    lives((0..3).map(|_| open()).collect(), 480).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_between_processes_that_share_a_file_or_a_server() -> Result<()> {
    let place = Stored::new();
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(place.open_with(None).await);
    }
    lives(stores, 8).await
}
