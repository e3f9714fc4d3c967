//! The registry beside workers: what it shows, what it costs, and what it must never disturb.

use std::time::Duration;

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::{Changes, Start, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{Key, Name, Position, StoreExt};
use plimsoll_engine::registry::{WorkerInfo, WorkerStatus};
use plimsoll_engine::worker::{State, WorkerBuilder};
use plimsoll_engine::{Engine, Workers};

use crate::setup::{Bench, Gate, millis, secs, settle_down, start};

fn registered(bench: &Bench) -> WorkerBuilder {
    bench.worker().registers(true)
}

/// The registry as somebody else sees it, whose calls are not counted.
fn workers(bench: &Bench) -> Workers {
    let clock = bench.engine.clock().clone();
    Engine::with(bench.store.clone(), clock, bench.engine.ids().clone()).workers()
}

async fn only(bench: &Bench) -> WorkerInfo {
    let mut all = workers(bench).list().await.unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

async fn key_of(bench: &Bench) -> Key {
    let id = only(bench).await.id;
    Key::new(format!("plimsoll.workers.{}/{}", id.name, id.incarnation)).unwrap()
}

/// Lets time pass, in steps that are long for a worker and short for the registry.
async fn pass(bench: &Bench, duration: Duration) {
    bench.pass_in(duration, millis(100)).await;
}

async fn newest(bench: &Bench) -> Position {
    let newest = Changes {
        start: Start::Newest,
        interests: Vec::new(),
        limit: 1,
    };
    bench.store.changes(newest).await.unwrap().next
}

#[tokio::test]
async fn a_running_worker_is_there_with_all_it_says() {
    let bench = Bench::new();
    let builder = registered(&bench).queue("z").version("mailer 3.1");
    let settings = |settings: &mut plimsoll_engine::worker::Settings| {
        settings.concurrency = 7;
        settings.stale_after = secs(45);
    };
    let builder = builder.settings(settings).handle("k", async || {});
    let worker = builder.handle("other", async || {});
    let _worker = start(worker);
    settle_down().await;
    let info = only(&bench).await;
    let names = |names: &[&str]| names.iter().map(|name| Name::new(name).unwrap()).collect();
    assert_eq!(info.id.name.as_str(), "w");
    assert_eq!(info.status, WorkerStatus::Active);
    assert_eq!(info.profile.version, "mailer 3.1");
    assert_eq!(info.profile.pid, std::process::id());
    assert!(!info.profile.hostname.is_empty());
    assert_eq!(info.profile.queues, names(&["q", "z"]));
    assert_eq!(info.profile.kinds, names(&["k", "other"]));
    assert_eq!(info.profile.max_concurrent, 7);
    assert_eq!(info.profile.stale_after, secs(45));
    let now = bench.store.ping().await.unwrap();
    assert_eq!((info.started_at, info.last_heartbeat), (now, now));
    assert_eq!((info.load.current_load, info.load.total_jobs), (0, 0));
}

#[tokio::test]
async fn an_idle_heartbeat_is_one_call_that_nobody_hears_of() {
    let bench = Bench::new();
    let _worker = start(registered(&bench).handle("k", async || {}));
    pass(&bench, millis(100)).await;
    bench.calls.reset();
    let before = newest(&bench).await;
    pass(&bench, secs(60)).await;
    assert_eq!(bench.calls.of(Method::Commit), 6);
    assert_eq!(bench.calls.of(Method::Exchange), 6);
    assert_eq!(bench.calls.all(), 12);
    assert_eq!(newest(&bench).await, before);
    let heard = bench.store.ping().await.unwrap();
    let info = only(&bench).await;
    assert_eq!(info.last_heartbeat, heard.saturating_minus(millis(100)));
    assert_eq!(info.started_at, heard.saturating_minus(millis(60_100)));
}

#[tokio::test]
async fn what_it_does_is_shown_with_the_next_heartbeat() {
    let bench = Bench::new();
    let gate = Gate::new();
    let work = async |State(gate): State<Gate>| gate.wait().await;
    let fails = async || Err::<(), _>(plimsoll_engine::worker::Failure::fatal("no"));
    let builder = registered(&bench).state(gate.clone()).handle("k", work);
    let _worker = start(builder.handle("bad", fails));
    pass(&bench, secs(1)).await;
    for _ in 0..3 {
        bench.submit("k", "").await;
    }
    bench.submit("bad", "").await;
    pass(&bench, secs(8)).await;
    assert_eq!(only(&bench).await.load.current_load, 0);
    pass(&bench, secs(2)).await;
    let load = only(&bench).await.load;
    assert_eq!(
        (load.current_load, load.total_jobs, load.failed_jobs),
        (3, 1, 1)
    );
    gate.open(3);
    pass(&bench, secs(10)).await;
    let load = only(&bench).await.load;
    assert_eq!(
        (load.current_load, load.total_jobs, load.failed_jobs),
        (0, 4, 1)
    );
}

#[tokio::test]
async fn a_drain_shows_at_once_and_a_clean_end_leaves_the_totals() {
    let bench = Bench::new();
    let gate = Gate::new();
    let work = async |State(gate): State<Gate>| gate.wait().await;
    let worker = start(registered(&bench).state(gate.clone()).handle("k", work));
    bench.submit("k", "").await;
    settle_down().await;
    worker.stopper.drain();
    settle_down().await;
    let info = only(&bench).await;
    assert_eq!(info.status, WorkerStatus::Draining);
    assert_eq!(info.load.current_load, 1);
    // It goes on to be heard of until it ends.
    pass(&bench, secs(60)).await;
    assert_eq!(only(&bench).await.status, WorkerStatus::Draining);
    gate.open(1);
    worker.end().await;
    let info = only(&bench).await;
    assert_eq!(info.status, WorkerStatus::Offline);
    assert_eq!((info.load.current_load, info.load.total_jobs), (0, 1));
    assert!(workers(&bench).stale().await.unwrap().is_empty());
}

#[tokio::test]
async fn who_works_until_nothing_is_left_is_registered_too() {
    let bench = Bench::new();
    bench.submit("k", "").await;
    let worker = registered(&bench).handle("k", async || {}).build().unwrap();
    worker.run_until_empty().await.unwrap();
    let info = only(&bench).await;
    assert_eq!(info.status, WorkerStatus::Offline);
    assert_eq!(info.load.total_jobs, 1);
}

#[tokio::test]
async fn a_worker_that_nobody_hears_of_is_offline_and_marked_once() {
    let bench = Bench::new();
    let worker = start(registered(&bench).handle("k", async || {}));
    pass(&bench, secs(15)).await;
    worker.work.abort();
    // The last heartbeat was five seconds ago.
    pass(&bench, secs(25) - millis(1)).await;
    assert_eq!(only(&bench).await.status, WorkerStatus::Active);
    assert!(workers(&bench).stale().await.unwrap().is_empty());
    pass(&bench, millis(1)).await;
    let stale = workers(&bench).stale().await.unwrap();
    assert_eq!(stale.len(), 1);
    assert_eq!(stale[0].status, WorkerStatus::Offline);
    assert!(workers(&bench).mark_offline(&stale[0]).await.unwrap());
    assert!(!workers(&bench).mark_offline(&stale[0]).await.unwrap());
    assert!(workers(&bench).stale().await.unwrap().is_empty());
    // When it was heard of last is still known, and the record goes a day after that.
    let marked = only(&bench).await;
    assert_eq!(marked.last_heartbeat, stale[0].last_heartbeat);
    bench.clock.advance(secs(86_400 - 30) - millis(1));
    assert_eq!(workers(&bench).list().await.unwrap().len(), 1);
    bench.clock.advance(millis(1));
    assert!(workers(&bench).list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_worker_that_said_goodbye_is_known_for_an_hour() {
    let bench = Bench::new();
    let worker = registered(&bench).handle("k", async || {}).build().unwrap();
    worker.run_until_empty().await.unwrap();
    let ended = only(&bench).await;
    assert_eq!(ended.status, WorkerStatus::Offline);
    assert_eq!(ended.last_heartbeat, bench.engine.clock().now());
    bench.clock.advance(secs(3_600) - millis(1));
    assert_eq!(only(&bench).await.last_heartbeat, ended.last_heartbeat);
    bench.clock.advance(millis(1));
    assert!(workers(&bench).list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_heartbeat_wins_over_who_took_the_worker_for_dead() {
    let bench = Bench::new();
    let _worker = start(registered(&bench).handle("k", async || {}));
    settle_down().await;
    let before = only(&bench).await;
    pass(&bench, secs(10)).await;
    assert!(!workers(&bench).mark_offline(&before).await.unwrap());
    assert_eq!(only(&bench).await.status, WorkerStatus::Active);
}

#[tokio::test]
async fn a_worker_that_comes_back_registers_again() {
    let bench = Bench::new();
    let _worker = start(registered(&bench).handle("k", async || {}));
    settle_down().await;
    let first = only(&bench).await;
    // Somebody took it for dead.
    assert!(workers(&bench).mark_offline(&first).await.unwrap());
    assert_eq!(only(&bench).await.status, WorkerStatus::Offline);
    pass(&bench, secs(10)).await;
    let again = only(&bench).await;
    assert_eq!(again.status, WorkerStatus::Active);
    assert_eq!((again.id, again.started_at), (first.id, first.started_at));
    // It is gone.
    let key = key_of(&bench).await;
    bench.store.write(Write::Delete(key)).await.unwrap();
    pass(&bench, secs(10)).await;
    assert_eq!(only(&bench).await.status, WorkerStatus::Active);
    // From then on heartbeats are quiet again.
    let before = newest(&bench).await;
    pass(&bench, secs(30)).await;
    assert_eq!(newest(&bench).await, before);
}

#[tokio::test]
async fn a_heartbeat_whose_answer_was_lost_is_followed_by_another() {
    let bench = Bench::new();
    let _worker = start(registered(&bench).handle("k", async || {}));
    settle_down().await;
    for _ in 0..5 {
        bench.faults.next(Method::Commit, Fault::ErrorAfter);
        pass(&bench, secs(10)).await;
        pass(&bench, secs(10)).await;
        let now = bench.store.ping().await.unwrap();
        let info = only(&bench).await;
        assert_eq!(info.status, WorkerStatus::Active);
        assert!(now.since(info.last_heartbeat) <= secs(10));
    }
}

#[tokio::test]
async fn a_registry_that_is_away_disturbs_no_work() {
    let bench = Bench::new();
    bench.away(&[Method::Commit, Method::Ping]);
    let worker = start(registered(&bench).handle("k", async || {}));
    for _ in 0..10 {
        bench.submit("k", "").await;
        pass(&bench, secs(6)).await;
    }
    assert_eq!(worker.summary().completed, 10);
    assert!(workers(&bench).list().await.unwrap().is_empty());
    bench.faults.calm();
    pass(&bench, secs(20)).await;
    assert_eq!(only(&bench).await.load.total_jobs, 10);
    // It ends, too, and soon.
    bench.away(&[Method::Commit]);
    worker.stopper.drain();
    worker.end().await;
}

#[tokio::test]
async fn a_registry_that_hangs_delays_neither_the_first_claim_nor_the_end_for_long() {
    let bench = Bench::new();
    bench.calls.hold(Method::Ping);
    bench.calls.hold(Method::Commit);
    bench.submit("k", "").await;
    let worker = start(registered(&bench).handle("k", async || {}));
    settle_down().await;
    assert_eq!(worker.summary().completed, 1);
    // Each heartbeat gives up for the next one.
    pass(&bench, secs(60)).await;
    assert!(bench.calls.of(Method::Ping) >= 3);
    worker.stopper.drain();
    settle_down().await;
    pass(&bench, secs(1)).await;
    worker.end().await;
}

#[tokio::test]
async fn a_name_shows_its_own_lives_and_no_others() {
    let bench = Bench::new();
    let run = async |name: &str| {
        let worker = bench.engine.worker(name).queue("q").sweeps(false);
        let worker = worker.handle("k", async || {}).build().unwrap();
        worker.run_until_empty().await.unwrap();
    };
    for name in ["a", "a.b", "a/b", "a", "ab", "%"] {
        run(name).await;
    }
    for (name, lives) in [
        ("a", 2),
        ("a.b", 1),
        ("a/b", 1),
        ("ab", 1),
        ("%", 1),
        ("b", 0),
    ] {
        let name = Name::new(name).unwrap();
        let found = workers(&bench).get(&name).await.unwrap();
        assert!(found.iter().all(|worker| worker.id.name == name));
        assert_eq!(found.len(), lives, "{name}");
    }
    assert_eq!(workers(&bench).list().await.unwrap().len(), 6);
}

#[tokio::test]
async fn what_a_worker_is_follows_from_what_it_said_and_when() {
    let bench = Bench::new();
    let worker = start(registered(&bench).handle("k", std::future::pending::<()>));
    settle_down().await;
    let active = only(&bench).await;
    bench.submit("k", "").await;
    settle_down().await;
    worker.stopper.drain();
    settle_down().await;
    let draining = only(&bench).await;
    worker.stopper.now();
    worker.end().await;
    let offline = only(&bench).await;
    use WorkerStatus::{Active, Draining, Offline};
    let heard = active.last_heartbeat;
    for (info, said) in [(active, Active), (draining, Draining), (offline, Offline)] {
        let early = heard.saturating_minus(secs(3_600));
        for (at, expected) in [
            (early, said),
            (heard, said),
            (
                heard.saturating_plus(secs(30) - Duration::from_micros(1)),
                said,
            ),
            (heard.saturating_plus(secs(30)), Offline),
            (heard.saturating_plus(secs(1_000_000)), Offline),
        ] {
            assert_eq!(info.status_at(at), expected, "{said:?} at {at}");
            assert_eq!(info.is_stale(at), expected != said, "{said:?} at {at}");
        }
    }
}

#[tokio::test]
async fn no_task_depends_on_what_is_known_of_its_worker() {
    let bench = Bench::new();
    let patient = registered(&bench).settings(|settings| settings.stale_after = secs(3_600));
    let worker = start(patient.handle("k", std::future::pending::<()>));
    let id = bench.submit("k", "").await;
    settle_down().await;
    // Whatever the registry says, its lease is renewed.
    assert!(
        workers(&bench)
            .mark_offline(&only(&bench).await)
            .await
            .unwrap()
    );
    pass(&bench, secs(5)).await;
    bench.sweep().await;
    let key = key_of(&bench).await;
    bench.store.write(Write::Delete(key)).await.unwrap();
    bench.away(&[Method::Commit]);
    pass(&bench, secs(100)).await;
    bench.sweep().await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.attempts), (Status::Claimed, 1));
    // And it ends with the worker, although that counts as active.
    bench.faults.calm();
    pass(&bench, secs(10)).await;
    worker.work.abort();
    bench.clock.advance(secs(19));
    assert_eq!(only(&bench).await.status, WorkerStatus::Active);
    bench.sweep().await;
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.clock.advance(secs(11));
    assert_eq!(only(&bench).await.status, WorkerStatus::Active);
    bench.sweep().await;
    assert_eq!(bench.get(id).await.status, Status::Scheduled);
}
