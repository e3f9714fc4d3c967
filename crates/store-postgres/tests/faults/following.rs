//! Those who follow: subscribers of job states in every scope and watchers of records are told everything once, whatever
//! ends their connections and those of who writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{join, join_all, try_join_all};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::{Error, Result, Revision, Store};
use plimsoll_engine::Engine;
use plimsoll_engine::history::Reconnect;
use plimsoll_engine::jobs::{Manager, NewState, Scope, StateEvent, SubscribeOptions, Subscription};
use plimsoll_engine::records::{Records, Watch, WatchEvent};

use crate::server::Server;
use crate::world::{World, within};

const JOB: &str = "import";
const TAGS: [&str; 2] = ["ingest", "index"];
const PARTITIONS: u32 = 3;
/// How often each state is written, and the record.
const TIMES: u64 = 40;
/// How often something goes wrong meanwhile, at least: who writes waits for it.
const ROUNDS: u64 = 4;
/// How long it may take.
const SECONDS: u64 = 100;

/// How far everybody is.
#[derive(Default)]
struct Course {
    /// How often something went wrong.
    rounds: AtomicU64,
    /// How much was written and told.
    done: AtomicU64,
}

impl Course {
    fn goes_on(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A process of its own. It is more patient than usual, for the server is hardly ever there.
async fn engine(world: &World) -> Engine {
    let engine = Engine::new(Arc::new(world.open().await) as Arc<dyn Store>);
    engine.reconnecting(Reconnect {
        first: Duration::from_millis(50),
        cap: Duration::from_millis(500),
        attempts: 50,
    })
}

/// Says the same until it has happened: each state has an id by which it is known.
async fn until_written<T>(mut write: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    loop {
        match write().await {
            Err(Error::Unavailable(_)) => SystemClock::new().sleep(Duration::from_millis(20)).await,
            answer => return answer,
        }
    }
}

/// Until so much has gone wrong that the next is written.
async fn until_due(time: u64, course: &Course) {
    let clock = SystemClock::new();
    while course.rounds.load(Ordering::Relaxed) * TIMES < (time - 1) * ROUNDS {
        clock.sleep(Duration::from_millis(5)).await;
    }
}

async fn set_states(manager: &Manager, course: &Course) -> Result<()> {
    for time in 1..=TIMES {
        until_due(time, course).await;
        for tag in TAGS {
            let set = async || {
                let state = NewState::new(tag, time as i32)?.event_id(format!("{tag}-{time}"))?;
                manager.set_state(state).await
            };
            until_written(set).await?;
            course.goes_on();
        }
    }
    Ok(())
}

async fn set_record(records: &Records, course: &Course) -> Result<()> {
    for time in 1..=TIMES {
        until_due(time, course).await;
        until_written(async || records.set_field("config.mail", "time", time as i64).await).await?;
        course.goes_on();
    }
    Ok(())
}

/// Everything that a subscriber is told, from the beginning: each version once, in order, and one marker.
async fn follow(mut events: Subscription, scope: &Scope, course: &Course) -> Result<()> {
    let partitions = scope.partition.map_or(PARTITIONS, |_| 1);
    let tags = scope.tag.as_ref().map_or(TAGS.len(), |_| 1);
    let expected = u64::from(partitions) * tags as u64 * TIMES;
    let (mut told, mut markers, mut versions) = (0, 0, BTreeMap::new());
    while told < expected {
        match events.next().await.expect("it goes on")? {
            StateEvent::State(state) => {
                assert!(scope.covers(&state), "{state:?}");
                let version = versions
                    .entry((state.partition, state.tag.clone()))
                    .or_insert(0);
                assert_eq!(state.version, *version + 1, "{state:?}");
                *version = state.version;
                told += 1;
                course.goes_on();
            }
            StateEvent::ReplayComplete { .. } => markers += 1,
            StateEvent::Restarted => panic!("nothing was removed from the history"),
        }
    }
    assert_eq!(markers, 1, "{scope:?}");
    Ok(())
}

/// Every value that the record had, each once. One may have been written twice, if the answer was lost: then it has
/// another revision.
async fn watch(mut watch: Watch, course: &Course) -> Result<()> {
    let (mut last, mut revision) = (0, Revision::ZERO);
    while last < TIMES {
        if let WatchEvent::Put { record, .. } = watch.next().await? {
            let time = std::str::from_utf8(record.field("time").expect("a field"));
            let time: u64 = time.expect("text").parse().expect("a number");
            assert!(time == last || time == last + 1, "{time} after {last}");
            assert!(record.revision > revision, "{time} is told again");
            (last, revision) = (time, record.revision);
            course.goes_on();
        }
    }
    Ok(())
}

/// Writers and those who follow, in processes of their own, while something goes wrong until they have ended: never
/// twice before one of them gets on, or nobody would on a machine that is slower than that. `trouble` answers whether it
/// happened.
async fn followed(world: &World, pause: Duration, trouble: impl AsyncFn() -> bool) -> Result<()> {
    let (over, course) = (AtomicBool::new(false), Course::default());
    let (writing, following) = (engine(world).await, engine(world).await);
    let joined = (0..PARTITIONS).map(|partition| {
        let jobs = writing.jobs();
        async move { jobs.join(JOB, partition, PARTITIONS).await }
    });
    let managers = try_join_all(joined).await?;
    let scopes = [
        Scope::all(),
        Scope::all().partition(1),
        Scope::all().tag(TAGS[0])?,
        Scope::all().tag(TAGS[1])?.partition(2),
    ];
    let monitor = following.jobs().monitor(JOB).await?;
    let mut followers = Vec::new();
    for scope in &scopes {
        let events = monitor.subscribe(scope.clone(), SubscribeOptions::default());
        followers.push(follow(events.await?, scope, &course));
    }
    let mut changes = following.records().watch("config.")?;
    assert!(matches!(
        changes.next().await?,
        WatchEvent::ReplayComplete { .. }
    ));
    let work = async {
        let (states, records) = (
            join_all(managers.iter().map(|manager| set_states(manager, &course))),
            writing.records(),
        );
        let writers = join(states, set_record(&records, &course));
        let followers = join(try_join_all(followers), watch(changes, &course));
        let ((states, record), (told, watched)) =
            within(SECONDS, "everything is told", join(writers, followers)).await;
        over.store(true, Ordering::Relaxed);
        states.into_iter().collect::<Result<Vec<_>>>()?;
        told?;
        record.and(watched)
    };
    let troubled = async {
        let (clock, mut before) = (SystemClock::new(), None);
        while !over.load(Ordering::Relaxed) {
            clock.sleep(pause).await;
            if before == Some(course.done.load(Ordering::Relaxed)) || !trouble().await {
                continue;
            }
            // Before writers are let on, who may wait for this round.
            before = Some(course.done.load(Ordering::Relaxed));
            course.rounds.fetch_add(1, Ordering::Relaxed);
        }
    };
    join(work, troubled).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_is_told_everything_although_connections_are_ended() {
    let world = World::shared().await;
    let stranger = world.stranger().await;
    let kill = async || world.kill_connections(&stranger).await > 0;
    let told = followed(&world, Duration::from_millis(50), kill).await;
    told.expect("all is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_is_told_everything_although_the_server_is_killed() {
    let server = Server::start("");
    let world = World::on(&server.url).await;
    let crash = async || {
        server.crash();
        server.start_again();
        true
    };
    let told = followed(&world, Duration::from_millis(400), crash).await;
    told.expect("all is told");
}
