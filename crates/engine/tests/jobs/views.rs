//! What readers in another process are told, on each store.

use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::error::Conflict;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Compact, Merge, Write};
use plimsoll_core::{Error, Key, Result, StoreExt, Timestamp};
use plimsoll_engine::jobs::{
    Cursor, FINISHED, Jobs, Manager, Monitor, Scope, State, StateEvent, SubscribeOptions,
    Subscription,
};

use crate::world::{DAY, World, at, code, of, spawn, worlds};

const SECOND: Duration = Duration::from_secs(1);

fn tag(tag: &str) -> Scope {
    Scope::all().tag(tag).unwrap()
}

/// A state in short: `0-a=5 v1`.
fn short(state: &State) -> String {
    let (tag, version) = (state.tag.as_ref().unwrap(), state.version);
    format!("{}-{tag}={} v{version}", state.partition, state.status)
}

fn told(event: Option<Result<StateEvent>>) -> String {
    match event {
        Some(Ok(StateEvent::State(state))) if state.is_replay() => format!("was {}", short(&state)),
        Some(Ok(StateEvent::State(state))) => format!("now {}", short(&state)),
        Some(Ok(StateEvent::ReplayComplete { .. })) => "marker".into(),
        Some(Ok(StateEvent::Restarted)) => "restarted".into(),
        Some(Err(error)) => error.code().into(),
        None => "end".into(),
    }
}

impl World {
    /// The next event. Time passes if nobody hints at it.
    async fn next(&self, events: &mut Subscription) -> Option<Result<StateEvent>> {
        let next = async { events.next().await.map(|event| event.map(StateEvent::keep)) };
        self.time(next).await
    }

    /// The next events in short.
    async fn told(&self, events: &mut Subscription, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(told(self.next(events).await));
        }
        all
    }

    /// Removes all the history that there is.
    async fn compact(&self) -> Result<()> {
        let compact = Compact {
            tasks: std::collections::BTreeMap::new(),
            groups: None,
            history: Some(Duration::ZERO),
            logs: None,
            limit: 1_000,
        };
        while self.store.compact(compact.clone()).await?.more {}
        Ok(())
    }
}

async fn subscribe(monitor: &Monitor, scope: &Scope) -> Result<Subscription> {
    let options = SubscribeOptions::default();
    monitor.subscribe(scope.clone(), options).await
}

async fn two_partitions(jobs: &Jobs) -> Result<(Manager, Manager)> {
    let zero = jobs.join("import", 0, 2).await?;
    Ok((zero, jobs.join("import", 1, 2).await?))
}

#[tokio::test]
async fn what_is_set_at_one_moment_is_replayed_in_the_order_of_the_calls() -> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        let manager = here.jobs.join("import", 0, 1).await?;
        manager.set_state(at("z", 1)).await?;
        manager.set_state(at("m", 2)).await?;
        world.clock.advance(SECOND);
        // They wait together, and are written in one call.
        let tags = ["z", "b", "m", "a"];
        let set = tags.map(|tag| manager.set_state(at(tag, 5)));
        futures::future::try_join_all(set).await?;
        let monitor = there.jobs.monitor("import").await?;
        monitor.refresh().await?;
        let mut all = subscribe(&monitor, &Scope::all()).await?;
        let told = world.told(&mut all, 5).await;
        let expected = [
            "was 0-z=5 v2",
            "was 0-b=5 v1",
            "was 0-m=5 v2",
            "was 0-a=5 v1",
            "marker",
        ];
        assert_eq!(told, expected);
    }
    Ok(())
}

#[tokio::test]
async fn each_scope_is_replayed_in_the_order_of_time_and_then_told_live() -> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        let (zero, one) = two_partitions(&here.jobs).await?;
        for (manager, tag, status) in [
            (&one, "b", 4),
            (&zero, "b", 3),
            (&one, "a", 2),
            (&zero, "a", 1),
            (&one, "b", 5),
        ] {
            world.clock.advance(SECOND);
            manager.set_state(at(tag, status)).await?;
        }
        let monitor = there.jobs.monitor("import").await?;
        monitor.refresh().await?;
        let scopes = [
            Scope::all(),
            tag("b"),
            Scope::all().partition(1),
            tag("b").partition(1),
        ];
        let mut all = Vec::new();
        for (scope, lowest) in scopes
            .iter()
            .zip(["0-a=1 v1", "0-b=3 v1", "1-a=2 v1", "1-b=5 v2"])
        {
            all.push(subscribe(&monitor, scope).await?);
            assert_eq!(short(&monitor.get_state(scope).await?), lowest);
        }
        // Who has not said anything counts as not started, but is not told.
        let silent = monitor.get_state(&tag("c")).await?;
        assert_eq!((silent.partition, silent.status, silent.version), (0, 0, 0));
        zero.set_state(at("b", -7)).await?;
        one.set_state(at("a", 8)).await?;
        one.set_finished(of("b")).await?;
        let finished = format!("now 1-b={FINISHED} v3");
        let expected: [&[&str]; 4] = [
            &[
                "was 0-b=3 v1",
                "was 1-a=2 v1",
                "was 0-a=1 v1",
                "was 1-b=5 v2",
                "marker",
                "now 0-b=-7 v2",
                "now 1-a=8 v2",
                &finished,
            ],
            &[
                "was 0-b=3 v1",
                "was 1-b=5 v2",
                "marker",
                "now 0-b=-7 v2",
                &finished,
            ],
            &[
                "was 1-a=2 v1",
                "was 1-b=5 v2",
                "marker",
                "now 1-a=8 v2",
                &finished,
            ],
            &["was 1-b=5 v2", "marker", &finished],
        ];
        for (events, expected) in all.iter_mut().zip(expected) {
            assert_eq!(world.told(events, expected.len()).await, expected);
        }
    }
    Ok(())
}

#[tokio::test]
async fn whoever_looks_on_from_when_a_job_is_created_waits_for_one_that_is_not_deleted()
-> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        here.jobs.join("import", 0, 1).await?;
        here.jobs.delete("import").await?;
        let jobs = there.jobs.clone();
        let mut looking = spawn(async move { jobs.monitor_when_created("import").await });
        // Another job is not waited for.
        here.jobs.join("import-2", 0, 1).await?;
        for _ in 0..20 {
            world.settle().await;
            assert!(!looking.is_finished());
        }
        let again = here.jobs.join("import", 0, 3).await?;
        again.set_state(at("a", 7)).await?;
        let monitor = world.time(&mut looking).await.expect("a monitor")?;
        monitor.refresh().await?;
        assert_eq!(monitor.partitions().await?, 3);
        let state = monitor.get_state(&tag("a").partition(0)).await?;
        assert_eq!(short(&state), "0-a=7 v1");
    }
    Ok(())
}

#[tokio::test]
async fn one_who_is_slower_than_what_is_kept_is_told_everything_once() -> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        let (zero, one) = two_partitions(&here.jobs).await?;
        let monitor = there
            .engine
            .keeping_events(8)
            .jobs()
            .monitor("import")
            .await?;
        let mut slow = subscribe(&monitor, &Scope::all().partition(0)).await?;
        assert_eq!(world.told(&mut slow, 1).await, ["marker"]);
        for status in 1..=300 {
            let writes = [
                zero.set_state(at("a", status)),
                one.set_state(at("a", status)),
            ];
            for written in writes {
                written.await?;
            }
        }
        monitor.refresh().await?;
        let expected = (1..=300).map(|n| format!("now 0-a={n} v{n}"));
        assert_eq!(
            world.told(&mut slow, 300).await,
            expected.collect::<Vec<_>>()
        );
        // It is live again.
        zero.set_state(at("b", 1)).await?;
        assert_eq!(world.told(&mut slow, 1).await, ["now 0-b=1 v1"]);
    }
    Ok(())
}

#[tokio::test]
async fn one_for_whom_changes_are_not_kept_is_told_so_and_what_there_is() -> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        let (zero, one) = two_partitions(&here.jobs).await?;
        let monitor = there
            .engine
            .keeping_events(8)
            .jobs()
            .monitor("import")
            .await?;
        let mut slow = subscribe(&monitor, &Scope::all()).await?;
        let Some(Ok(StateEvent::ReplayComplete { cursor })) = world.next(&mut slow).await else {
            panic!("nothing is there");
        };
        let mut quick = subscribe(&monitor, &tag("b")).await?;
        for status in 1..=100 {
            zero.set_state(at("a", status)).await?;
        }
        world.clock.advance(SECOND);
        one.set_state(at("b", 3)).await?;
        assert_eq!(world.told(&mut quick, 2).await, ["marker", "now 1-b=3 v1"]);
        world.clock.advance(SECOND);
        world.compact().await?;
        let there = ["restarted", "was 0-a=100 v100", "was 1-b=3 v1", "marker"];
        assert_eq!(world.told(&mut slow, 4).await, there);
        // Likewise for one who has been away.
        let options = SubscribeOptions {
            after: Some(cursor.to_string().parse::<Cursor>()?),
            ..SubscribeOptions::default()
        };
        let mut away = monitor.subscribe(Scope::all(), options).await?;
        assert_eq!(world.told(&mut away, 4).await, there);
        one.set_state(at("b", 4)).await?;
        for events in [&mut slow, &mut quick, &mut away] {
            assert_eq!(world.told(events, 1).await, ["now 1-b=4 v2"]);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_out_of_reach_for_too_long_ends_subscriptions_and_barriers() -> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        let (zero, _) = two_partitions(&here.jobs).await?;
        let monitor = there.jobs.monitor("import").await?;
        let mut events = subscribe(&monitor, &Scope::all()).await?;
        assert_eq!(world.told(&mut events, 1).await, ["marker"]);
        let barrier = spawn(monitor.barrier("a", 5)?.into_future());
        world.settle().await;
        for _ in 0..100 {
            there.plan.next(Method::Changes, Fault::ErrorBefore);
        }
        let began = world.clock.monotonic();
        zero.set_state(at("a", 1)).await?;
        assert_eq!(world.told(&mut events, 2).await, ["unavailable", "end"]);
        // 1, 2, 4, 8 and 16 seconds after the first time.
        assert!(world.clock.monotonic() - began >= 31 * SECOND);
        assert_eq!(code(world.time(barrier).await.unwrap()), "unavailable");
        there.plan.calm();
        let mut again = subscribe(&monitor, &Scope::all()).await?;
        assert_eq!(world.told(&mut again, 2).await, ["was 0-a=1 v1", "marker"]);
    }
    Ok(())
}

#[tokio::test]
async fn a_barrier_of_another_process_opens_fails_and_gives_up() -> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        let (zero, one) = two_partitions(&here.jobs).await?;
        let monitor = there.jobs.monitor("import").await?;
        let barrier = || monitor.barrier("a", 5).unwrap();
        // What it begins with.
        monitor.get_state(&tag("a")).await?;

        let wait = spawn(barrier().into_future());
        world.settle().await;
        // One after the other, before it is told of any: there is a moment at which both are there.
        for (manager, status) in [(&zero, 5), (&one, 6), (&zero, 1)] {
            manager.set_state(at("a", status)).await?;
        }
        assert_eq!(short(&world.time(wait).await.unwrap()?), "0-a=5 v1");
        monitor.refresh().await?;

        let late = world.time(barrier().within(3 * SECOND).into_future()).await;
        let Err(Error::Conflict(late)) = late else {
            panic!("{late:?}");
        };
        let behind = matches!(
            *late,
            Conflict::BarrierNotReached {
                behind: 1,
                partition: 0,
                status: 1,
                ..
            }
        );
        assert!(behind, "{late:?}");

        let despite = spawn(barrier().despite_warnings().into_future());
        let wait = spawn(barrier().into_future());
        world.settle().await;
        one.set_warning("slow", of("a")).await?;
        one.set_state(at("a", 9)).await?;
        assert_eq!(code(world.time(wait).await.unwrap()), "partition_failed");
        zero.set_state(at("a", 7)).await?;
        assert_eq!(short(&world.time(despite).await.unwrap()?), "0-a=7 v3");

        let wait = spawn(monitor.barrier("a", 10)?.into_future());
        world.settle().await;
        here.jobs.delete("import").await?;
        assert_eq!(code(world.time(wait).await.unwrap()), "job_deleted");
    }
    Ok(())
}

/// Nothing of the life before is left when the next one begins, not even its number.
#[tokio::test]
async fn a_cursor_of_a_life_before_begins_again_however_long_ago_that_was() -> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        let before = here.jobs.join("import", 0, 1).await?;
        before.set_state(at("a", 1)).await?;
        let monitor = there.jobs.monitor("import").await?;
        let mut events = subscribe(&monitor, &Scope::all()).await?;
        assert_eq!(world.told(&mut events, 2).await, ["was 0-a=1 v1", "marker"]);
        let after = events.cursor();
        here.jobs.delete("import").await?;
        assert_eq!(world.told(&mut events, 1).await, ["job_deleted"]);

        world.clock.advance(31 * DAY);
        let anew = here.jobs.join("import", 0, 1).await?;
        let info = here.jobs.get("import").await?.unwrap();
        assert_eq!(info.generation, 1, "it is remembered for longer");
        anew.set_state(at("a", 2)).await?;
        monitor.refresh().await?;
        let options = SubscribeOptions {
            after,
            ..SubscribeOptions::default()
        };
        let mut away = monitor.subscribe(Scope::all(), options).await?;
        let there = ["restarted", "was 0-a=2 v1", "marker"];
        assert_eq!(world.told(&mut away, 3).await, there);
    }
    Ok(())
}

/// Whoever still reads the life before keeps nobody from reading the next one.
#[tokio::test]
async fn a_job_that_is_created_again_after_the_clock_was_set_back_is_read() -> Result<()> {
    for world in worlds().await {
        let here = world.process(1);
        world.clock.advance(DAY);
        let before = here.jobs.join("import", 0, 1).await?;
        before.set_state(at("a", 1)).await?;
        let mut events = before
            .subscribe(Scope::all(), SubscribeOptions::default())
            .await?;
        assert_eq!(world.told(&mut events, 2).await, ["was 0-a=1 v1", "marker"]);
        // Nobody in this process hears of it.
        let there = world.process(2);
        here.spy.hold(Method::Changes);
        there.jobs.delete("import").await?;
        world.clock.jump_to(Timestamp::MIN);
        there.jobs.join("import", 0, 1).await?;
        let anew = here.jobs.join("import", 0, 1).await?;
        anew.set_state(at("a", 7)).await?;
        let scope = tag("a");
        let read = anew.get_state(&scope);
        here.spy.let_go();
        assert_eq!(short(&world.time(read).await?), "0-a=7 v2");
        assert_eq!(world.told(&mut events, 1).await, ["job_deleted"]);
    }
    Ok(())
}

#[tokio::test]
async fn who_reads_a_job_goes_on_when_somebody_spoils_its_record() -> Result<()> {
    for world in worlds().await {
        let (here, there) = (world.process(1), world.process(2));
        let (zero, _) = two_partitions(&here.jobs).await?;
        let monitor = there.jobs.monitor("import").await?;
        let mut events = subscribe(&monitor, &Scope::all()).await?;
        assert_eq!(world.told(&mut events, 1).await, ["marker"]);
        let barrier = spawn(monitor.barrier("a", 5)?.into_future());
        let write = async |retain: &'static str| {
            let merge = Merge::new(Key::new("plimsoll.jobs.import")?);
            let merge = merge.set(fields([("retain_ms", retain)])?);
            world.store.write(Write::Merge(merge)).await
        };
        write("for ever").await?;
        zero.set_state(at("a", 1)).await?;
        assert_eq!(world.told(&mut events, 1).await, ["now 0-a=1 v1"]);
        monitor.refresh().await?;
        assert_eq!(monitor.partitions().await?, 2);
        assert_eq!(
            short(&monitor.get_state(&tag("a").partition(0)).await?),
            "0-a=1 v1"
        );
        let other = world.process(3);
        assert_eq!(code(other.jobs.monitor("import").await), "corrupt");
        let mut here_too = subscribe(&there.jobs.monitor("import").await?, &tag("a")).await?;
        let begun = ["was 0-a=1 v1", "marker"];
        assert_eq!(world.told(&mut here_too, 2).await, begun);
        // It is the same job when it can be read again, and not when it was deleted.
        write("5").await?;
        zero.set_state(at("a", 2)).await?;
        assert_eq!(world.told(&mut events, 1).await, ["now 0-a=2 v2"]);
        assert!(!barrier.is_finished());
        write("for ever").await?;
        assert!(here.jobs.delete("import").await?);
        assert_eq!(world.told(&mut events, 1).await, ["job_deleted"]);
        assert_eq!(code(world.time(barrier).await.unwrap()), "job_deleted");

        // Nor when it is another one, whatever else its record says.
        here.jobs.join("import", 0, 2).await?;
        monitor.refresh().await?;
        let mut events = subscribe(&monitor, &tag("b")).await?;
        assert_eq!(world.told(&mut events, 1).await, ["marker"]);
        let merge = Merge::new(Key::new("plimsoll.jobs.import")?);
        let another = [("generation", "7"), ("retain_ms", "for ever")];
        let merge = merge.set(fields(another)?);
        world.store.write(Write::Merge(merge)).await?;
        assert_eq!(world.told(&mut events, 1).await, ["job_deleted"]);
    }
    Ok(())
}
