//! What becomes of readers while the store is out of reach, and afterwards.

use std::time::Duration;

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_engine::history::Reconnect;
use plimsoll_engine::jobs::{Scope, StateEvent, SubscribeOptions};

use crate::world::{JOB, World, seconds, tag};

#[tokio::test]
async fn a_listener_that_is_disconnected_tries_again_after_1_2_4_8_and_16_seconds() {
    let world = World::with(1).await;
    let process = world.process();
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await, ["marker"]);
    process.disconnect(5);
    world.set(0, "a", 1).await;
    world.settle().await;
    let tries = || process.plan.injected()[&Method::Changes];
    let moment = Duration::from_millis(1);
    for (wait, tried) in [(1, 1), (2, 2), (4, 3), (8, 4)] {
        world.pass(seconds(wait) - moment).await;
        assert_eq!(tries(), tried, "too early");
        world.pass(moment).await;
        assert_eq!(tries(), tried + 1, "after {wait} s");
        assert!(world.told(&mut all).await.is_empty());
    }
    world.pass(seconds(16) - moment).await;
    assert!(world.told(&mut all).await.is_empty());
    world.pass(moment).await;
    assert_eq!(world.told(&mut all).await, ["now 0-a=1 v1"]);
}

#[tokio::test]
async fn five_failed_attempts_end_subscriptions_and_the_next_read_begins_anew() {
    let world = World::with(1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await, ["marker"]);
    process.disconnect(6);
    world.set(0, "a", 1).await;
    world.pass(seconds(30)).await;
    assert!(world.told(&mut all).await.is_empty());
    // Reads go on with what was told.
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 0);
    world.pass(seconds(1)).await;
    assert_eq!(world.told(&mut all).await, ["unavailable"]);
    assert_eq!(all.next().await, None);
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 1);
    world.set(0, "a", 2).await;
    world.settle().await;
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 2);
}

#[tokio::test]
async fn how_patient_it_is_can_be_chosen() {
    let world = World::with(1).await;
    let process = world.process();
    let engine = process.engine.clone().reconnecting(Reconnect {
        first: seconds(10),
        attempts: 1,
        ..Reconnect::default()
    });
    let monitor = engine.jobs().monitor(JOB).await.unwrap();
    let mut all = monitor
        .subscribe(Scope::all(), Default::default())
        .await
        .unwrap();
    assert_eq!(world.told(&mut all).await, ["marker"]);
    process.disconnect(2);
    world.set(0, "a", 1).await;
    world.pass(seconds(9)).await;
    assert!(world.told(&mut all).await.is_empty());
    world.pass(seconds(1)).await;
    assert_eq!(world.told(&mut all).await, ["unavailable"]);
}

#[tokio::test]
async fn one_who_is_patient_does_not_give_up_because_another_one_tries_more_often() {
    let world = World::with(1).await;
    let process = world.process();
    let open = async |first: u64, attempts: u32| {
        let patience = Reconnect {
            first: seconds(first),
            attempts,
            ..Reconnect::default()
        };
        let engine = process.engine.clone().reconnecting(patience);
        let monitor = engine.jobs().monitor(JOB).await.unwrap();
        let all = monitor.subscribe(Scope::all(), Default::default());
        all.await.unwrap()
    };
    let (mut patient, mut hasty) = (open(10, 1).await, open(1, 20).await);
    world.settle().await;
    process.disconnect(6);
    world.set(0, "a", 1).await;
    world.pass(seconds(9)).await;
    assert_eq!(world.told(&mut patient).await, ["marker"]);
    world.pass(seconds(1)).await;
    assert_eq!(world.told(&mut patient).await, ["unavailable"]);
    world.pass(seconds(60)).await;
    assert_eq!(world.told(&mut hasty).await, ["marker", "now 0-a=1 v1"]);
}

#[tokio::test]
async fn a_store_that_fails_while_states_are_loaded_is_asked_again() {
    let world = World::with(1).await;
    world.set(0, "a", 3).await;
    let process = world.process();
    for method in [Method::Get, Method::Scan, Method::Changes] {
        process.plan.next(method, Fault::ErrorBefore);
    }
    let engine = process.engine.clone();
    let opening = crate::world::spawn(async move { engine.jobs().monitor(JOB).await });
    world.pass(seconds(10)).await;
    let monitor = world.soon(opening).await.unwrap();
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 3);
}

#[tokio::test]
async fn what_the_history_left_out_is_found_by_the_refresh_after_a_reconnection() {
    let world = World::with(2).await;
    world.set(1, "b", 1).await;
    world.set(1, "c", 1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await.len(), 3);
    process.history.omits("-b");
    world.set(0, "b", 7).await;
    world.set(1, "b", 2).await;
    world.settle().await;
    assert_eq!(monitor.get_state(&tag("b")).await.unwrap().status, 0);
    process.history.tells_all();
    process.disconnect(1);
    world.set(1, "c", 2).await;
    world.pass(seconds(1)).await;
    assert_eq!(monitor.get_state(&tag("b")).await.unwrap().status, 2);
    let told = ["now 1-c=2 v2", "now 0-b=7 v1", "now 1-b=2 v2"];
    assert_eq!(world.told(&mut all).await, told);
    // And once only.
    process.disconnect(1);
    world.set(1, "c", 3).await;
    world.pass(seconds(1)).await;
    assert_eq!(world.told(&mut all).await, ["now 1-c=3 v3"]);
}

#[tokio::test]
async fn an_end_that_the_history_left_out_is_found_too() {
    let world = World::with(1).await;
    world.set(0, "b", 7).await;
    world.set(0, "c", 1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    process.history.omits("-b");
    world.remove(0, "b").await;
    world.settle().await;
    assert_eq!(monitor.get_state(&tag("b")).await.unwrap().status, 7);
    process.disconnect(1);
    world.set(0, "c", 2).await;
    world.pass(seconds(1)).await;
    assert_eq!(monitor.get_state(&tag("b")).await.unwrap().status, 0);
    let states = monitor.states(&Scope::all()).await.unwrap();
    assert_eq!(states.len(), 1);
}

#[tokio::test]
async fn a_deletion_that_the_history_left_out_is_found_too() {
    let world = World::with(1).await;
    let process = world.process();
    let mut all = process.subscribe(Scope::all()).await;
    process.history.omits("jobs.import");
    world.mark_deleted().await;
    process.disconnect(1);
    world.set(0, "c", 2).await;
    world.pass(seconds(1)).await;
    let told = ["marker", "now 0-c=2 v1", "job_deleted"];
    assert_eq!(world.told(&mut all).await, told);
}

#[tokio::test]
async fn history_that_is_compacted_while_disconnected_is_replaced_by_what_there_is() {
    let world = World::with(2).await;
    world.set(0, "a", 1).await;
    world.set(1, "b", 1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await.len(), 3);
    process.disconnect(2);
    world.set(0, "a", 2).await;
    world.pass(seconds(1)).await;
    world.remove(1, "b").await;
    world.compact().await;
    world.pass(seconds(2)).await;
    let told = ["restarted", "was 0-a=2 v2", "marker"];
    assert_eq!(world.told(&mut all).await, told);
    assert_eq!(monitor.get_state(&tag("b")).await.unwrap().version, 0);
    world.set(1, "b", 3).await;
    assert_eq!(world.told(&mut all).await, ["now 1-b=3 v1"]);
}

#[tokio::test]
async fn a_job_that_is_deleted_during_a_reconnection_ends_after_everything_was_told() {
    let world = World::with(1).await;
    let process = world.process();
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await, ["marker"]);
    process.disconnect(1);
    world.set(0, "a", 1).await;
    world.settle().await;
    // The job is read again later than the history.
    process.plan.next(Method::Get, Fault::ErrorBefore);
    world.pass(seconds(1)).await;
    assert_eq!(world.told(&mut all).await, ["now 0-a=1 v1"]);
    process.history.hold_changes();
    world.set(0, "a", 2).await;
    world.mark_deleted().await;
    world.pass(seconds(1)).await;
    process.history.tell_changes();
    let told = ["now 0-a=2 v2", "job_deleted"];
    assert_eq!(world.told(&mut all).await, told);
}

#[tokio::test]
async fn who_has_gone_on_from_a_cursor_is_told_what_the_history_left_out_before() {
    let world = World::with(1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    process.history.omits("0-c");
    world.set(0, "c", 1).await;
    world.settle().await;
    let mut first = process.subscribe(Scope::all()).await;
    let Some(Ok(StateEvent::ReplayComplete { cursor })) = first.next().await else {
        panic!("nothing is there");
    };
    let options = SubscribeOptions {
        after: Some(cursor),
        ..SubscribeOptions::default()
    };
    let mut on = monitor.subscribe(Scope::all(), options).await.unwrap();
    assert!(world.told(&mut on).await.is_empty());
    process.disconnect(1);
    world.pass(seconds(3)).await;
    assert_eq!(world.told(&mut on).await, ["now 0-c=1 v1"]);
}

#[tokio::test]
async fn a_job_that_was_begun_again_while_its_history_was_compacted_is_another_one() {
    let world = World::with(1).await;
    let process = world.process();
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await, ["marker"]);
    process.disconnect(2);
    world.mark_deleted().await;
    world.pass(seconds(1)).await;
    world.create(3, "2").await;
    world.compact().await;
    world.pass(seconds(2)).await;
    assert_eq!(world.told(&mut all).await, ["job_deleted"]);
    assert_eq!(process.monitor().await.partitions().await.unwrap(), 3);
}

#[tokio::test]
async fn a_store_that_was_closed_ends_subscriptions() {
    let world = World::with(1).await;
    let process = world.process();
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await, ["marker"]);
    process.engine.store().close().await.unwrap();
    world.pass(seconds(1)).await;
    assert_eq!(world.told(&mut all).await, ["closed"]);
}

/// What a refresh has read may be old when it comes.
#[tokio::test]
async fn a_refresh_does_not_go_back_to_lower_versions() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let mut events = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut events).await, ["was 0-a=1 v1", "marker"]);
    process.history.hold_scans();
    process.disconnect(1);
    world.set(0, "b", 1).await;
    world.pass(seconds(1)).await;
    assert_eq!(world.told(&mut events).await, ["now 0-b=1 v1"]);
    let scans = process.history.scans();
    world.set(0, "a", 2).await;
    world.settle().await;
    process.history.let_go(10);
    assert_eq!(world.told(&mut events).await, ["now 0-a=2 v2"]);
    assert_eq!(process.history.scans(), scans, "it had read before that");
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 2);
}
