//! Jobs that are deleted, created again and loaded again while somebody reads them.

use std::time::Duration;

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::{Merge, Write};
use plimsoll_core::{Error, Key};
use plimsoll_engine::jobs::{NewState, Scope, StateEvent, SubscribeOptions};

use crate::world::{JOB, World, seconds, spawn, stored, tag};

#[tokio::test]
async fn one_who_looks_while_states_are_loaded_again_misses_nothing() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    let process = world.process();
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await.len(), 2);
    process.disconnect(2);
    world.set(0, "a", 2).await;
    world.pass(seconds(1)).await;
    world.set(0, "a", 3).await;
    world.compact().await;
    process.history.hold_scans();
    world.pass(seconds(2)).await;
    // It is being loaded, and has nothing to tell yet.
    assert!(world.told(&mut all).await.is_empty());
    process.history.let_go(10);
    let told = ["restarted", "was 0-a=3 v3", "marker"];
    assert_eq!(world.told(&mut all).await, told);
}

/// One who knows a version already is told the newest again, as what there is, and nothing of it once more.
#[tokio::test]
async fn a_version_that_is_repeated_while_states_are_loaded_again_is_told_once() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    let process = world.process();
    process.history.repeats();
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await, ["was 0-a=1 v1", "marker"]);
    process.disconnect(2);
    world.set(0, "a", 2).await;
    world.pass(seconds(1)).await;
    world.set(0, "a", 3).await;
    world.compact().await;
    process.history.hold_scans();
    world.pass(seconds(2)).await;
    // What was read is held, and has been told of twice by the time that it is shown.
    world.set(0, "a", 4).await;
    world.set(0, "b", 1).await;
    world.settle().await;
    assert!(world.told(&mut all).await.is_empty());
    process.history.let_go(10);
    let told = ["restarted", "was 0-a=4 v4", "was 0-b=1 v1", "marker"];
    assert_eq!(world.told(&mut all).await, told);
    world.set(0, "a", 5).await;
    assert_eq!(world.told(&mut all).await, ["now 0-a=5 v5"]);
}

#[tokio::test]
async fn a_job_that_is_deleted_while_its_record_is_read_is_not_served() {
    let world = World::with(1).await;
    let process = world.process();
    process.history.hold_gets();
    let engine = process.engine.clone();
    let opening = spawn(async move { engine.jobs().monitor(JOB).await.map(drop) });
    world.settle().await;
    // Its record was read, and is on its way.
    world.mark_deleted().await;
    world.settle().await;
    process.history.let_gets_go();
    let error = world.soon(opening).await.unwrap_err();
    assert_eq!(error.code(), "job_deleted");
}

#[tokio::test]
async fn a_job_that_is_created_again_while_its_record_is_read_is_served_as_it_is() {
    let world = World::with(1).await;
    let process = world.process();
    process.history.hold_gets();
    let engine = process.engine.clone();
    let opening = spawn(async move { engine.jobs().monitor(JOB).await });
    world.settle().await;
    world.mark_deleted().await;
    world.create(5, "2").await;
    world.settle().await;
    process.history.let_gets_go();
    let monitor = world.soon(opening).await.unwrap();
    assert_eq!(monitor.partitions().await.unwrap(), 5);
}

#[tokio::test]
async fn one_who_gives_up_while_the_history_is_read_leaves_nothing_behind() {
    let world = World::with(1).await;
    let process = world.process();
    // Somebody else follows, so that the history goes on to be read.
    let other = process.engine.jobs().monitor(JOB).await.unwrap();
    world.create_job("other", 1).await;
    world.settle().await;
    process.history.hold_changes();
    let engine = process.engine.clone();
    let gives_up = spawn(async move { engine.jobs().monitor("other").await.map(drop) });
    world.settle().await;
    gives_up.abort();
    world.set(0, "a", 1).await;
    world.settle().await;
    let scans = process.history.scans();
    process.history.tell_changes();
    world.settle().await;
    assert_eq!(process.history.scans(), scans, "nobody wants to know");
    assert_eq!(other.get_state(&tag("a")).await.unwrap().status, 1);
}

#[tokio::test]
async fn a_late_answer_shows_nothing_of_a_former_life() {
    let world = World::with(1).await;
    let process = world.process();
    let manager = process.engine.jobs().join(JOB, 0, 1).await.unwrap();
    process.plan.next(Method::Commit, Fault::ErrorAfter);
    let write = manager.set_state(NewState::new("a", 7).unwrap());
    let write = spawn(write);
    world.settle().await;
    // It was written, but nobody has heard of it yet. Then the job ends and begins anew.
    let jobs = world.process_of(2).engine.jobs();
    assert!(jobs.delete(JOB).await.unwrap());
    jobs.join(JOB, 0, 1).await.unwrap();
    let monitor = process.monitor().await;
    world.pass(seconds(10)).await;
    assert!(write.is_finished());
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 0);
}

#[tokio::test]
async fn a_manager_does_not_read_the_job_that_replaced_its_own() {
    let world = World::with(1).await;
    let jobs = world.process().engine.jobs();
    let old = jobs.join(JOB, 0, 1).await.unwrap();
    jobs.delete(JOB).await.unwrap();
    let new = jobs.join(JOB, 0, 3).await.unwrap();
    let code = |error: Error| error.code();
    assert_eq!(
        old.get_state(&Scope::all()).await.map_err(code),
        Err("job_deleted")
    );
    assert_eq!(old.refresh().await.map_err(code), Err("job_deleted"));
    let options = SubscribeOptions::default();
    let subscribed = old.subscribe(Scope::all(), options).await;
    assert_eq!(subscribed.map(drop).map_err(code), Err("job_deleted"));
    let barrier = old.barrier("a", 1).unwrap().await;
    assert_eq!(barrier.map(drop).map_err(code), Err("job_deleted"));
    assert_eq!(new.get_state(&Scope::all()).await.unwrap().status, 0);
}

#[tokio::test]
async fn a_write_that_is_repeated_is_read_at_once() {
    let world = World::with(1).await;
    let process = world.process();
    let retries = plimsoll_engine::Retries::none();
    let jobs = process.engine.jobs().with_retries(retries);
    let manager = jobs.join(JOB, 0, 1).await.unwrap();
    assert_eq!(manager.get_state(&tag("a")).await.unwrap().status, 0);
    process.history.hold_changes();
    let state = || NewState::new("a", 5).unwrap().event_id("e1").unwrap();
    process.plan.next(Method::Commit, Fault::ErrorAfter);
    assert!(manager.set_state(state()).await.is_err());
    assert!(manager.set_state(state()).await.unwrap().repeated);
    assert_eq!(manager.get_state(&tag("a")).await.unwrap().status, 5);
    process.history.tell_changes();
}

#[tokio::test]
async fn a_cursor_of_a_former_life_begins_again() {
    let world = World::with(1).await;
    let jobs = world.process().engine.jobs();
    let manager = jobs.join(JOB, 0, 1).await.unwrap();
    let monitor = jobs.monitor(JOB).await.unwrap();
    let mut all = monitor
        .subscribe(Scope::all(), SubscribeOptions::default())
        .await
        .unwrap();
    let marker = all.next().await.unwrap().unwrap();
    let StateEvent::ReplayComplete { cursor } = marker else {
        panic!("{marker:?}")
    };
    manager
        .set_state(NewState::new("a", 1).unwrap())
        .await
        .unwrap();
    jobs.delete(JOB).await.unwrap();
    let again = jobs.join(JOB, 0, 1).await.unwrap();
    again
        .set_state(NewState::new("a", 9).unwrap())
        .await
        .unwrap();
    let options = SubscribeOptions {
        after: Some(cursor),
        ..SubscribeOptions::default()
    };
    let monitor = jobs.monitor(JOB).await.unwrap();
    let mut all = monitor.subscribe(Scope::all(), options).await.unwrap();
    let told = ["restarted", "was 0-a=9 v2", "marker"];
    assert_eq!(world.told(&mut all).await, told);
}

/// Whoever wrote it by hand did not go by the rule that versions grow.
#[tokio::test]
async fn a_version_that_does_not_grow_is_not_told() {
    let world = World::with(1).await;
    let process = world.process();
    let mut all = process.subscribe(Scope::all()).await;
    world.set(0, "a", 1).await;
    world.set(0, "a", 2).await;
    for version in [2, 1] {
        let merge = Merge::new(World::key(0, "a")).set(stored(7, version));
        world.commit(Write::Merge(merge)).await;
    }
    world.settle().await;
    let mut late = process.subscribe(Scope::all()).await;
    world.set(0, "b", 3).await;
    let told = ["marker", "now 0-a=1 v1", "now 0-a=2 v2", "now 0-b=3 v1"];
    assert_eq!(world.told(&mut all).await, told);
    let told = ["was 0-a=2 v2", "marker", "now 0-b=3 v1"];
    assert_eq!(world.told(&mut late).await, told);
}

/// What this process has written is not put together with what others said before.
#[tokio::test]
async fn a_barrier_opens_when_all_were_there_at_one_moment() {
    let world = World::with(2).await;
    let process = world.process();
    let manager = process.engine.jobs().join(JOB, 0, 2).await.unwrap();
    world.set(1, "a", 5).await;
    assert_eq!(manager.get_state(&tag("a")).await.unwrap().status, 0);
    process.history.hold_changes();
    // The other one falls back before this one gets there.
    world.set(1, "a", 1).await;
    manager
        .set_state(NewState::new("a", 5).unwrap())
        .await
        .unwrap();
    let barrier = manager.barrier("a", 5).unwrap();
    let barrier = spawn(async move { barrier.await });
    let hasty = manager
        .barrier("a", 5)
        .unwrap()
        .within(Duration::ZERO)
        .await;
    assert_eq!(hasty.unwrap_err().code(), "unavailable");
    world.settle().await;
    assert!(!barrier.is_finished());
    process.history.tell_changes();
    world.settle().await;
    assert!(!barrier.is_finished());
    let hasty = manager
        .barrier("a", 5)
        .unwrap()
        .within(Duration::ZERO)
        .await;
    assert_eq!(hasty.unwrap_err().code(), "barrier_not_reached");
    world.set(1, "a", 6).await;
    assert_eq!(world.soon(barrier).await.unwrap().status, 5);
}

/// Whatever this process says of other things keeps no barrier closed.
#[tokio::test]
async fn a_barrier_does_not_wait_for_what_is_said_of_other_tags_or_further_on() {
    let world = World::with(2).await;
    let process = world.process();
    let manager = process.engine.jobs().join(JOB, 0, 2).await.unwrap();
    for partition in [0, 1] {
        world.set(partition, "a", 5).await;
    }
    assert_eq!(manager.get_state(&tag("a")).await.unwrap().status, 5);
    process.history.hold_changes();
    for (tag, status) in [("b", 1), ("a", 7)] {
        let state = NewState::new(tag, status).unwrap();
        manager.set_state(state).await.unwrap();
    }
    let barrier = manager.barrier("a", 5).unwrap();
    assert_eq!(barrier.within(Duration::ZERO).await.unwrap().status, 5);
    let barrier = manager.barrier("a", 6).unwrap();
    let late = barrier.within(Duration::ZERO).await.unwrap_err();
    assert_eq!(late.code(), "barrier_not_reached");
    process.history.tell_changes();
}

#[tokio::test]
async fn a_new_life_is_read_while_others_have_yet_to_hear_of_the_end_of_the_one_before() {
    let world = World::with(1).await;
    let process = world.process();
    let jobs = process.engine.jobs();
    let old = jobs.join(JOB, 0, 1).await.unwrap();
    old.set_state(NewState::new("a", 1).unwrap()).await.unwrap();
    let mut told = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut told).await.len(), 2);
    process.history.hold_changes();
    jobs.delete(JOB).await.unwrap();
    world.clock.advance(seconds(1));
    let new = jobs.join(JOB, 0, 3).await.unwrap();
    new.set_state(NewState::new("a", 2).unwrap()).await.unwrap();
    let read = spawn(async move {
        let own = Scope::all().partition(0).tag("a").unwrap();
        let status = new.get_state(&own).await.map(|state| state.status);
        let barrier = new.barrier("a", 1).unwrap().within(Duration::ZERO);
        (status, barrier.await.map_err(|late| late.to_string()))
    });
    world.settle().await;
    process.history.tell_changes();
    let late = "job import: 2 partitions have not reached status 1 at a, the first is 1 with 0";
    assert_eq!(world.soon(read).await, (Ok(2), Err(late.into())));
    assert_eq!(world.told(&mut told).await, ["job_deleted"]);
}

#[tokio::test]
async fn one_who_joins_reads_although_another_finds_no_job() {
    let world = World::empty();
    let process = world.process();
    process.history.hold_gets();
    process.history.hold_changes();
    let engine = process.engine.clone();
    let looking = spawn(async move { engine.jobs().monitor(JOB).await.map(drop) });
    world.settle().await;
    // Nothing was there, and that is on its way to both of them.
    let held = process.history.hold_no_more_gets();
    let manager = process.engine.jobs().join(JOB, 0, 1).await.unwrap();
    let reading = spawn(async move { manager.get_state(&Scope::all()).await });
    world.settle().await;
    drop(held);
    assert_eq!(
        world.soon(looking).await.unwrap_err().code(),
        "job_not_found"
    );
    process.history.tell_changes();
    assert_eq!(world.soon(reading).await.unwrap().status, 0);
}

#[tokio::test]
async fn a_job_that_is_told_of_while_none_was_found_is_found() {
    let world = World::empty();
    let process = world.process();
    process.history.hold_gets();
    let engine = process.engine.clone();
    let looking = spawn(async move { engine.jobs().monitor(JOB).await });
    world.settle().await;
    let held = process.history.hold_no_more_gets();
    world.create(3, "1").await;
    world.settle().await;
    drop(held);
    let monitor = world.soon(looking).await.unwrap();
    assert_eq!(monitor.partitions().await.unwrap(), 3);
}

#[tokio::test]
async fn closing_a_manager_ends_its_barriers_and_everything_else() {
    let world = World::with(2).await;
    let manager = world.process().engine.jobs().join(JOB, 0, 2).await.unwrap();
    let barrier = manager
        .barrier("a", 1)
        .unwrap()
        .within(Duration::from_secs(60));
    let barrier = spawn(async move { barrier.await });
    world.settle().await;
    assert!(!barrier.is_finished());
    manager.close().await;
    assert_eq!(world.soon(barrier).await, Err(Error::Closed));
    assert_eq!(
        manager.describe([("owner", "me")]).await,
        Err(Error::Closed)
    );
    assert_eq!(manager.delete_job().await, Err(Error::Closed));
    assert_eq!(manager.mark_job_deleted().await, Err(Error::Closed));
}

/// Also of what it has taken already.
#[tokio::test]
async fn closing_a_manager_ends_its_subscriptions_at_once() {
    let world = World::with(1).await;
    let manager = world.process().engine.jobs().join(JOB, 0, 1).await.unwrap();
    for name in ["a", "b", "c"] {
        manager
            .set_state(NewState::new(name, 1).unwrap())
            .await
            .unwrap();
    }
    let options = SubscribeOptions::default();
    let mut all = manager.subscribe(Scope::all(), options).await.unwrap();
    assert!(matches!(all.next().await, Some(Ok(StateEvent::State(_)))));
    manager.close().await;
    assert_eq!(all.next().await, None);
}

#[tokio::test]
async fn closing_goes_on_when_whoever_closes_goes_away() {
    let world = World::with(1).await;
    let process = world.process();
    let manager = process.engine.jobs().join(JOB, 0, 1).await.unwrap();
    let mut all = manager
        .subscribe(Scope::all(), SubscribeOptions::default())
        .await
        .unwrap();
    assert!(matches!(
        all.next().await,
        Some(Ok(StateEvent::ReplayComplete { .. }))
    ));
    process.plan.next(Method::Commit, Fault::Delay(seconds(5)));
    let write = spawn(manager.set_state(NewState::new("a", 1).unwrap()));
    world.settle().await;
    let closing = manager.clone();
    let closing = spawn(async move { closing.close().await });
    world.settle().await;
    closing.abort();
    world.pass(seconds(5)).await;
    assert_eq!(world.soon(write).await.unwrap().version, 1);
    assert_eq!(all.next().await, None);
}

impl World {
    async fn create_job(&self, job: &str, partitions: u32) {
        let fields = plimsoll_core::record::fields([
            ("partitions", partitions.to_string()),
            ("created_at", "0".into()),
            ("floor", "0".into()),
            ("generation", "1".into()),
        ]);
        let key = Key::new(format!("plimsoll.jobs.{job}")).unwrap();
        let put = plimsoll_core::store::Put::new(key, fields.unwrap());
        self.commit(Write::Put(put)).await;
    }
}
