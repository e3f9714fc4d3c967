//! Sweepers: on time, in no storm, in any number. And what an idle worker costs.

use std::sync::Arc;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::decorate::{FaultPlan, FaultRates, Method};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Put, Write};
use plimsoll_core::task::{Due, FailureKind, Status};
use plimsoll_core::{Ids, Key, Limits, StoreExt, TaskId};
use plimsoll_engine::sweeper::Pass;
use plimsoll_engine::worker::{Context, Failure, State};
use plimsoll_engine::{Retention, Sweeper};

use crate::setup::{Bench, LEASE, Notes, millis, secs, settle_down, spawn, start};

async fn later(bench: &Bench, after: std::time::Duration) -> TaskId {
    let mut task = bench.task("k", "");
    task.due = Due::After(after);
    bench.add(task).await
}

#[tokio::test]
async fn a_retry_is_promoted_and_started_exactly_when_it_is_due() {
    let bench = Bench::new();
    let starts = Notes::<std::time::Duration>::new();
    let work = async |context: Context, State(starts): State<Notes<std::time::Duration>>| {
        starts.add(context.engine().clock().monotonic());
        match context.attempt() {
            1 => Err(Failure::retry_after(secs(7), "again")),
            2 => Err(Failure::retry_after(millis(1_230), "again")),
            _ => Ok(()),
        }
    };
    bench.submit("k", "").await;
    let builder = bench.worker().sweeps(true).state(starts.clone());
    let _worker = start(builder.handle("k", work));
    bench.pass(secs(20)).await;
    assert_eq!(starts.all(), [secs(0), secs(7), millis(8_230)]);
}

#[tokio::test]
async fn what_was_scheduled_by_somebody_who_gives_no_hint_is_found_by_looking() {
    let bench = Bench::without_hints();
    let _sweeper = bench.start_sweeper();
    settle_down().await;
    let id = later(&bench, secs(1)).await;
    bench.pass(secs(11)).await;
    assert_eq!(bench.get(id).await.status, Status::Pending);
}

#[tokio::test]
async fn the_lease_of_a_dead_worker_is_expired() {
    let bench = Bench::new();
    let id = bench.submit("k", "").await;
    assert_eq!(bench.claim_elsewhere("k", 1).await.len(), 1);
    let _sweeper = bench.start_sweeper();
    bench.pass(LEASE - millis(10)).await;
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.pass(millis(10)).await;
    let task = bench.get(id).await;
    assert_eq!(task.errors[0].kind, FailureKind::LeaseExpired);
    assert_eq!(task.failures, 1);
}

#[tokio::test]
async fn a_busy_submitter_does_not_wake_a_sweeper_into_a_storm() {
    let bench = Bench::new();
    let _sweeper = bench.start_sweeper();
    settle_down().await;
    for _ in 0..6_000 {
        bench
            .engine
            .store()
            .submit(bench.task("k", ""))
            .await
            .unwrap();
        bench.pass(millis(10)).await;
    }
    let looks = bench.calls.of(Method::Due);
    assert!(looks <= 75, "{looks} looks in a minute");
}

#[tokio::test]
async fn who_writes_records_does_not_wake_a_sweeper_at_all() {
    let bench = Bench::new();
    let _sweeper = bench.start_sweeper();
    settle_down().await;
    let key = Key::new("busy").unwrap();
    for _ in 0..600 {
        let put = Put::new(key.clone(), fields([("a", "b")]).unwrap());
        bench.store.write(Write::Put(put)).await.unwrap();
        bench.pass(millis(100)).await;
    }
    let looks = bench.calls.of(Method::Due);
    assert!(looks <= 8, "{looks} looks in a minute");
}

#[tokio::test]
async fn several_sweepers_are_safe_and_the_later_ones_find_nothing_to_do() {
    let slow = FaultRates {
        delay_permille: 1_000,
        delay_max: millis(20),
        ..FaultRates::default()
    };
    let chance = Ids::seeded(1, Arc::new(ManualClock::new()));
    let slow = FaultPlan::by_chance(slow, chance);
    let bench = Bench::with(slow, Limits::default(), false);
    let sweepers: Vec<_> = (0..10).map(|_| bench.start_sweeper()).collect();
    settle_down().await;
    let mut ids = Vec::new();
    for n in 0..50 {
        ids.push(later(&bench, secs(n)).await);
        ids.push(later(&bench, secs(n)).await);
    }
    bench.pass(secs(1)).await;
    bench.calls.reset();
    bench.pass(secs(50)).await;
    for id in ids {
        let task = bench.get(id).await;
        assert_eq!((task.status, task.attempts), (Status::Pending, 0));
    }
    let promotions = bench.calls.of(Method::Commit);
    assert!(promotions < 250, "{promotions} for 49 moments");
    assert!(sweepers.iter().all(|sweeper| !sweeper.is_finished()));
}

#[tokio::test]
async fn a_sweeper_survives_a_store_that_is_away_and_ends_with_one_that_is_closed() {
    let bench = Bench::new();
    let sweeper = bench.start_sweeper();
    settle_down().await;
    bench.away(&[Method::Due, Method::Commit]);
    let id = later(&bench, secs(5)).await;
    bench.pass(secs(30)).await;
    assert_eq!(bench.get(id).await.status, Status::Scheduled);
    bench.faults.calm();
    bench.pass(millis(1_100)).await;
    assert_eq!(bench.get(id).await.status, Status::Pending);
    bench.store.close().await.unwrap();
    bench.pass(secs(11)).await;
    assert!(sweeper.is_finished());
}

#[tokio::test]
async fn who_asks_hears_what_each_pass_did() {
    for leads in [true, false] {
        let bench = Bench::new();
        let passes = Notes::<Pass>::new();
        let notes = passes.clone();
        let hear = move |sweeper: Sweeper| {
            let notes = notes.clone();
            let sweeper = sweeper.leads(leads);
            sweeper.on_pass(move |pass| notes.add(pass.clone()))
        };
        let builder = bench.worker().sweeps(true).sweeper(hear);
        let _worker = start(builder.handle("none", async || {}));
        later(&bench, secs(5)).await;
        bench.pass(secs(25)).await;
        let heard = passes.all();
        let busy = heard.iter().filter(|pass| !pass.is_idle());
        let busy: Vec<u64> = busy.map(|pass| pass.promoted).collect();
        assert_eq!(busy, [1], "{heard:?}");
        assert!(heard.len() > 1, "those that find nothing are told too");
        bench.away(&[Method::Due]);
        bench.pass(secs(11)).await;
        let heard = passes.all();
        let trouble = heard.last().map(|pass| pass.troubles.len());
        assert_eq!(trouble, Some(1), "{heard:?}");
    }
}

#[tokio::test]
async fn ten_idle_workers_ask_little_of_the_store() {
    let bench = Bench::new();
    let worker = || bench.worker().sweeps(true).registers(true);
    let _workers: Vec<_> = (0..10)
        .map(|_| start(worker().handle("k", async || {})))
        .collect();
    bench.pass(secs(20)).await;
    bench.calls.reset();
    bench.pass(secs(60)).await;
    let calls = |method| bench.calls.of(method);
    let (looks, sweeps) = (calls(Method::Exchange), calls(Method::Due));
    assert!(
        looks <= 60 && sweeps <= 60,
        "{looks} looks, {sweeps} sweeps"
    );
    // Each is heard of every ten seconds. The one that leads says so four times, and the others ask
    // when its term would be over: at most four times each.
    let asked = calls(Method::Commit) - 60 - 4;
    assert!(asked <= 9 * 4, "{asked} asked to lead");
    // What was stored to be kept is read three times: to archive, for jobs, and to remove.
    assert_eq!(calls(Method::Get), asked + 3, "who leads, and until when");
    // It looks twice for workers that nobody has heard of, and once for what was kept long enough: jobs,
    // and tasks to be archived, in each way to end, or to be removed.
    assert_eq!((calls(Method::Ping), calls(Method::Scan)), (2, 3));
    assert_eq!((calls(Method::List), calls(Method::Compact)), (3, 1));
    let counted = looks + sweeps + 64 + 2 * asked + 3 + 5 + 4;
    assert_eq!(bench.calls.all(), counted);
    assert!(counted <= 250, "{counted} calls");
}

#[tokio::test]
async fn of_many_sweepers_one_follows_hints_and_another_takes_over_when_it_is_gone() {
    let bench = Bench::new();
    let mut sweepers: Vec<_> = (0..5).map(|_| bench.start_sweeper()).collect();
    settle_down().await;
    bench.pass(secs(20)).await;
    bench.calls.reset();
    for _ in 0..100 {
        later(&bench, secs(3_600)).await;
        bench.pass(millis(100)).await;
    }
    // One looks once a second at most, the others once in these ten seconds.
    let looks = bench.calls.of(Method::Due);
    assert!((5..=20).contains(&looks), "{looks} looks");
    let led = bench.engine.locks().get("plimsoll.sweeper").await.unwrap();
    // The first that was started leads.
    sweepers.remove(0).abort();
    bench.pass(secs(31)).await;
    let leads = bench.engine.locks().get("plimsoll.sweeper").await.unwrap();
    assert!(leads.unwrap().token > led.unwrap().token);
    let id = later(&bench, secs(7)).await;
    bench.pass(secs(7) + millis(200)).await;
    assert_eq!(bench.get(id).await.status, Status::Pending, "on time");
}

#[tokio::test]
async fn who_follows_looks_a_second_after_the_leader_and_leaves_the_rest_to_it() {
    let bench = Bench::new();
    let builder = bench.worker().sweeps(true);
    let builder = builder.sweeper(|sweeper| sweeper.leads(false));
    let _worker = start(builder.handle("none", async || {}));
    settle_down().await;
    let id = later(&bench, secs(12)).await;
    bench.calls.reset();
    bench.pass(secs(13) - millis(10)).await;
    assert_eq!(bench.get(id).await.status, Status::Scheduled);
    bench.pass(millis(10)).await;
    assert_eq!(bench.get(id).await.status, Status::Pending);
    bench.pass(secs(47)).await;
    // One look each interval, and another after the one that found something.
    assert_eq!(bench.calls.of(Method::Due), 7);
    assert_eq!(bench.calls.of(Method::Commit), 1);
    let others = [Method::Scan, Method::List, Method::Compact];
    assert!(others.iter().all(|method| bench.calls.of(*method) == 0));
}

#[tokio::test]
async fn a_worker_that_ends_lets_others_sweep_at_once() {
    let bench = Bench::new();
    let worker = start(bench.worker().sweeps(true).handle("k", async || {}));
    settle_down().await;
    let leader = async || {
        let lock = bench.engine.locks().get("plimsoll.sweeper").await;
        lock.unwrap()
    };
    assert!(leader().await.is_some());
    // As long as it has not heard that this is done, it is not over.
    bench.calls.hold(Method::Commit);
    worker.stopper.drain();
    settle_down().await;
    assert!(!worker.work.is_finished());
    assert_eq!(leader().await, None);
    bench.calls.let_go(Method::Commit);
    assert!(worker.work.await.unwrap().unwrap().is_clean());
}

#[tokio::test]
async fn a_worker_that_ends_waits_for_its_store_a_second_and_no_longer() {
    let bench = Bench::new();
    let worker = start(bench.worker().sweeps(true).handle("k", async || {}));
    settle_down().await;
    bench.calls.hold(Method::Commit);
    worker.stopper.drain();
    bench.pass(millis(999)).await;
    assert!(!worker.work.is_finished());
    bench.pass(millis(1)).await;
    assert!(worker.work.is_finished());
}

#[tokio::test]
async fn where_nothing_hints_an_idle_worker_polls_and_finds_tasks_within_one_poll() {
    let bench = Bench::without_hints();
    let worker = start(bench.worker().handle("k", async || {}));
    bench.pass(millis(10_500)).await;
    assert!((10..=11).contains(&bench.calls.of(Method::Exchange)));
    bench.submit("k", "").await;
    bench.pass(millis(1_000)).await;
    assert_eq!(worker.summary().completed, 1);
}

#[tokio::test]
async fn what_was_kept_long_enough_goes_within_two_minutes_and_nothing_else() {
    let bench = Bench::new();
    let old = bench.submit("k", "").await;
    let worker = bench.worker().handle("k", async || {});
    worker.build().unwrap().run_until_empty().await.unwrap();
    bench.clock.advance(30 * secs(86_400) - secs(60));
    let young = bench.submit("k", "").await;
    let worker = bench.worker().handle("k", async || {});
    worker.build().unwrap().run_until_empty().await.unwrap();
    let waiting = bench.submit("other", "").await;
    let _worker = start(bench.worker().sweeps(true).handle("k", async || {}));
    bench.pass(secs(50)).await;
    assert_eq!(bench.get(old).await.status, Status::Completed);
    bench.pass(secs(75)).await;
    assert!(bench.store.task(old).await.unwrap().is_none());
    assert_eq!(bench.get(young).await.status, Status::Completed);
    assert_eq!(bench.get(waiting).await.status, Status::Pending);
}

#[tokio::test]
async fn who_wants_to_keep_everything_can() {
    let bench = Bench::new();
    let old = bench.submit("k", "").await;
    let worker = bench.worker().handle("k", async || {});
    worker.build().unwrap().run_until_empty().await.unwrap();
    bench.clock.advance(1_000 * secs(86_400));
    let keep = |sweeper: Sweeper| sweeper.retention(Retention::forever());
    let builder = bench.worker().sweeps(true).sweeper(keep);
    let _worker = start(builder.handle("k", async || {}));
    bench.pass(secs(130)).await;
    assert_eq!(bench.get(old).await.status, Status::Completed);
    assert!(bench.calls.of(Method::Compact) > 0);
}

#[tokio::test]
async fn what_is_due_when_the_leader_has_just_died_is_neither_late_nor_slow() {
    let bench = Bench::new();
    let leader = bench.start_sweeper();
    settle_down().await;
    let follows = Sweeper::new(bench.engine.clone()).limit(5);
    let _follower = spawn(follows.run());
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(later(&bench, secs(12)).await);
    }
    bench.pass(secs(11)).await;
    // Nobody else can lead for half a minute.
    leader.abort();
    bench.pass(secs(2) + millis(200)).await;
    for id in ids {
        assert_eq!(bench.get(id).await.status, Status::Pending);
    }
}

#[tokio::test]
async fn a_sweeper_leads_however_short_or_long_its_term_is_to_be() {
    for term in [std::time::Duration::ZERO, std::time::Duration::MAX] {
        let bench = Bench::new();
        let _sweeper = spawn(Sweeper::new(bench.engine.clone()).term(term).run());
        settle_down().await;
        let leads = bench.engine.locks().get("plimsoll.sweeper").await.unwrap();
        assert!(leads.is_some(), "{term:?}");
    }
}

#[tokio::test]
async fn who_leads_is_decided_on_the_store_that_is_swept() {
    let (here, there) = (Bench::new(), Bench::new());
    let locks = here.other_store("locks");
    let sweep = |bench: &Bench| {
        let engine = bench.engine.clone().locks_on(locks.clone());
        spawn(Sweeper::new(engine).run())
    };
    let _sweepers = [sweep(&here), sweep(&there)];
    settle_down().await;
    for bench in [&here, &there] {
        let leads = bench.engine.locks().get("plimsoll.sweeper").await.unwrap();
        assert!(leads.is_some());
    }
    let elsewhere = here.engine.clone().locks_on(locks);
    assert!(
        elsewhere
            .locks()
            .get("plimsoll.sweeper")
            .await
            .unwrap()
            .is_none()
    );
}
