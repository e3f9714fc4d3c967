//! Jobs that are over go after a while; jobs that go on never do.

use std::time::Duration;

use plimsoll_core::decorate::Method;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Commit, Put, Write};
use plimsoll_core::{Key, Limits, StoreExt};
use plimsoll_engine::{Retention, Sweeper};

use crate::world::{
    DAY, Process, World, at, code, finish, in_memory, in_memory_with, spawn, text, worlds,
};

fn after(jobs: Duration) -> Retention {
    Retention {
        jobs: Some(jobs),
        ..Retention::forever()
    }
}

fn silent_for(silent_jobs: Duration) -> Retention {
    Retention {
        silent_jobs: Some(silent_jobs),
        ..Retention::forever()
    }
}

async fn sweep(world: &World) -> u64 {
    sweep_by(world, after(DAY)).await
}

async fn sweep_by(world: &World, retention: Retention) -> u64 {
    let seed = world.store.ping().await.unwrap().as_micros().unsigned_abs();
    let pass = world.sweeper(seed).retention(retention).pass_all().await;
    assert_eq!(pass.troubles, []);
    pass.jobs
}

#[tokio::test]
async fn a_job_goes_when_all_its_states_have_been_finished_for_that_long() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let [a, b] = [0, 1].map(|partition| jobs.join("import", partition, 2));
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        finish(&a, "x").await;
        world.clock.advance(DAY);
        assert_eq!(sweep(&world).await, 0, "a partition is missing");
        b.set_state(at("x", 1)).await.unwrap();
        world.clock.advance(DAY);
        assert_eq!(sweep(&world).await, 0, "one has not finished");
        finish(&b, "x").await;
        world.clock.advance(DAY - Duration::from_secs(1));
        assert_eq!(sweep(&world).await, 0, "one is too young");
        a.set_state(at("y", 1)).await.unwrap();
        world.clock.advance(DAY);
        assert_eq!(sweep(&world).await, 0, "another tag has not finished");
        finish(&a, "y").await;
        world.clock.advance(DAY);
        assert_eq!(sweep(&world).await, 1);
        assert_eq!(world.records("plimsoll.states.").await, []);
        assert_eq!(code(a.set_state(at("x", 1)).await), "job_deleted");
    }
}

#[tokio::test]
async fn a_job_that_has_not_finished_goes_when_nobody_writes_to_it() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let failed = jobs.join("failed", 0, 2).await.unwrap();
        failed.set_state(at("x", -1)).await.unwrap();
        jobs.join("empty", 0, 1).await.unwrap();
        finish(&jobs.join("finished", 0, 1).await.unwrap(), "x").await;
        let goes_on = jobs.join("goes-on", 0, 1).await.unwrap();
        goes_on.set_state(at("x", 1)).await.unwrap();
        world.clock.advance(DAY - Duration::from_secs(1));
        assert_eq!(sweep_by(&world, silent_for(DAY)).await, 0);
        goes_on.set_state(at("y", 1)).await.unwrap();
        world.clock.advance(Duration::from_secs(1));
        assert_eq!(sweep_by(&world, silent_for(DAY)).await, 2);
        assert_eq!(code(failed.set_state(at("x", 1)).await), "job_deleted");
        assert_eq!(goes_on.set_state(at("y", 2)).await.unwrap().version, 2);
        world.clock.advance(DAY);
        assert_eq!(sweep_by(&world, silent_for(DAY)).await, 1);
        let finished = jobs.get("finished").await.unwrap().unwrap();
        assert_eq!(finished.deleted_at, None, "it is kept for ever");
        assert_eq!(sweep(&world).await, 1);
    }
}

/// Each of its states would be old enough by one of the rules, and it is not over by either.
#[tokio::test]
async fn a_job_is_over_by_one_rule_alone() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let manager = jobs.join("import", 0, 1).await.unwrap();
        manager.set_state(at("left", 1)).await.unwrap();
        world.clock.advance(DAY * 8);
        finish(&manager, "new").await;
        world.clock.advance(DAY);
        let both = Retention {
            jobs: Some(DAY),
            ..silent_for(DAY * 9)
        };
        assert_eq!(sweep_by(&world, both.clone()).await, 0);
        world.clock.advance(DAY * 8);
        assert_eq!(sweep_by(&world, both).await, 1);
    }
}

#[tokio::test]
async fn a_job_that_has_a_time_of_its_own_goes_by_that() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let short = jobs.join("short", 0, 1).retain(DAY).await.unwrap();
        let long = jobs.join("long", 0, 1).retain(DAY * 9).await.unwrap();
        let none = jobs.join("none", 0, 1).await.unwrap();
        for manager in [&short, &long, &none] {
            finish(manager, "x").await;
        }
        world.clock.advance(DAY * 2);
        // By default, jobs are kept.
        let pass = world.sweeper(90).pass_all().await;
        assert_eq!((pass.jobs, pass.states), (1, 1));
        assert!(
            jobs.get("short")
                .await
                .unwrap()
                .unwrap()
                .deleted_at
                .is_some()
        );
        assert_eq!(sweep(&world).await, 1);
        assert!(
            jobs.get("none")
                .await
                .unwrap()
                .unwrap()
                .deleted_at
                .is_some()
        );
        let gone = sweep_by(&world, silent_for(DAY)).await;
        assert_eq!(
            gone, 0,
            "it has finished, and says itself how long it is kept"
        );
        assert_eq!(jobs.get("long").await.unwrap().unwrap().deleted_at, None);
        world.clock.advance(DAY * 7);
        assert_eq!(sweep_by(&world, silent_for(DAY)).await, 1);
    }
}

#[tokio::test]
async fn the_time_is_stored_with_the_namespace() {
    for world in worlds().await {
        let process = world.process(1);
        let manager = process.jobs.join("import", 0, 1).await.unwrap();
        finish(&manager, "x").await;
        world.clock.advance(DAY);
        let retention = process.engine.retention();
        retention.set(&after(DAY)).await.unwrap();
        assert_eq!(retention.get().await.unwrap(), Some(after(DAY)));
        assert_eq!(world.sweeper(90).pass_all().await.jobs, 1);
        retention.set(&silent_for(DAY)).await.unwrap();
        assert_eq!(retention.get().await.unwrap(), Some(silent_for(DAY)));
        let century = DAY * 365 * 101;
        for (wrong, field) in [
            (after(century), "jobs: "),
            (silent_for(century), "silent_jobs: "),
            (silent_for(Duration::from_millis(999)), "silent_jobs: "),
        ] {
            let refused = retention.set(&wrong).await.unwrap_err().to_string();
            assert!(refused.contains(field), "{refused}");
        }
    }
}

/// Between any two calls of the sweeper, somebody writes: that job stays, and so does what was written.
#[tokio::test]
async fn a_job_that_goes_on_meanwhile_is_kept() {
    for (retention, method) in [
        (after(DAY), Method::Scan),
        (after(DAY), Method::Commit),
        (silent_for(DAY), Method::Commit),
    ] {
        let mut reopened = 0;
        for skip in 0..4 {
            for world in worlds().await {
                let jobs = world.process(1).jobs;
                let manager = jobs.join("import", 0, 1).await.unwrap();
                match retention.silent_jobs {
                    Some(_) => drop(manager.set_state(at("x", -1)).await.unwrap()),
                    None => finish(&manager, "x").await,
                }
                world.clock.advance(DAY);
                let process = world.process(2);
                let sweeper = Sweeper::new(process.engine.clone()).retention(retention.clone());
                process.spy.hold(method);
                let sweeping = spawn(async move { sweeper.pass_all().await });
                for n in 0..=skip {
                    while process.spy.calls(method) <= n && !sweeping.is_finished() {
                        tokio::task::yield_now().await;
                    }
                    if n < skip {
                        process.spy.let_go();
                        process.spy.hold(method);
                    }
                }
                let job = world.job("import").await.unwrap();
                let closing = text(&job, "closing").is_some();
                reopened += usize::from(closing);
                let written = manager.set_state(at("x", 1)).await;
                assert!(written.is_ok() || !closing);
                process.spy.let_go();
                let pass = sweeping.await.unwrap();
                assert_eq!(pass.troubles, []);
                match written {
                    Ok(_) => {
                        assert_eq!(pass.jobs, 0);
                        assert!(world.state("import", 0, "x").await.is_some());
                        manager.set_state(at("x", 2)).await.unwrap();
                    }
                    Err(error) => {
                        assert_eq!(error.code(), "job_deleted");
                        assert_eq!(pass.jobs, 1);
                        assert_eq!(world.records("plimsoll.states.").await, []);
                    }
                }
            }
        }
        assert!(reopened >= 1, "nobody came while it was closing");
    }
}

#[tokio::test]
async fn whoever_joins_or_describes_a_job_that_is_closing_opens_it_again() {
    for joins in [true, false] {
        for world in worlds().await {
            let jobs = world.process(1).jobs;
            let manager = jobs.join("import", 0, 1).await.unwrap();
            finish(&manager, "x").await;
            world.clock.advance(DAY);
            let process = world.process(2);
            let sweeper = Sweeper::new(process.engine.clone()).retention(after(DAY));
            process.spy.hold(Method::Commit);
            let sweeping = spawn(async move { sweeper.pass_all().await });
            let commits = async |count| {
                while process.spy.calls(Method::Commit) < count {
                    tokio::task::yield_now().await;
                }
            };
            commits(1).await;
            process.spy.let_go();
            process.spy.hold(Method::Commit);
            commits(2).await;
            assert!(text(&world.job("import").await.unwrap(), "closing").is_some());
            match joins {
                true => assert!(!jobs.join("import", 0, 1).await.unwrap().created()),
                false => assert!(manager.describe([("a", "1")]).await.unwrap()),
            }
            process.spy.let_go();
            assert_eq!(sweeping.await.unwrap().jobs, 0);
            assert_eq!(manager.set_state(at("x", 1)).await.unwrap().version, 2);
        }
    }
}

/// What keeps a job is remembered, and one call tells for all jobs that it still does.
#[tokio::test]
async fn jobs_that_go_on_cost_a_leader_two_reads_a_page() {
    let world = in_memory();
    let jobs = world.process(1).jobs;
    for n in 0..50 {
        let manager = jobs.join(format!("job-{n}"), 0, 1).await.unwrap();
        finish(&manager, "a").await;
        manager.set_state(at("b", 1)).await.unwrap();
    }
    world.clock.advance(DAY);
    let process = world.process(2);
    let sweeper = Sweeper::new(process.engine.clone()).retention(after(DAY));
    let running = spawn(sweeper.run());
    let scans = |minutes| scans(&world, &process, minutes);
    // The registry is scanned twice a minute, the list of jobs once, each job once at first.
    let first = scans(2).await;
    assert!(first >= 50, "{first}");
    let later = scans(10).await;
    assert!(later <= 10 * 3 + 3, "{later}");
    let manager = jobs.join("job-7", 0, 1).await.unwrap();
    finish(&manager, "b").await;
    world.clock.advance(DAY);
    scans(2).await;
    assert!(
        jobs.get("job-7")
            .await
            .unwrap()
            .unwrap()
            .deleted_at
            .is_some()
    );
    assert_eq!(jobs.get("job-8").await.unwrap().unwrap().deleted_at, None);
    running.abort();
}

async fn go_on(world: &World, jobs: u32) {
    let client = world.process(1).jobs;
    for n in 0..jobs {
        let manager = client.join(format!("a-{n:04}"), 0, 1).await.unwrap();
        manager.set_state(at("x", 1)).await.unwrap();
    }
}

async fn is_over(world: &World, job: &str) {
    let manager = world.process(2).jobs.join(job, 0, 1).await.unwrap();
    finish(&manager, "x").await;
}

#[tokio::test]
async fn a_job_behind_any_number_of_jobs_that_go_on_is_found() {
    for world in worlds().await {
        go_on(&world, 150).await;
        is_over(&world, "z").await;
        world.clock.advance(DAY);
        assert_eq!(sweep(&world).await, 1);
        assert_eq!(world.records("plimsoll.states.z.").await, []);
    }
}

/// A pass is of bounded size. The next one of the same sweeper goes on behind it.
#[tokio::test]
async fn passes_one_after_the_other_find_what_is_behind_any_number_of_jobs() {
    for world in worlds().await {
        go_on(&world, 250).await;
        is_over(&world, "z").await;
        world.clock.advance(DAY);
        let sweeper = world.sweeper(90).retention(after(DAY));
        let (mut passes, mut deleted) = (0, 0);
        loop {
            let pass = sweeper.pass().await;
            assert_eq!(pass.troubles, []);
            (passes, deleted) = (passes + 1, deleted + pass.jobs);
            if !pass.more {
                break;
            }
            assert!(passes < 10, "it never ends");
        }
        assert!(passes > 1, "one was enough");
        assert_eq!(deleted, 1);
        // What comes later is found by a later one.
        is_over(&world, "a").await;
        world.clock.advance(DAY);
        let later = [
            sweeper.pass().await,
            sweeper.pass().await,
            sweeper.pass().await,
        ];
        assert_eq!(later.map(|pass| pass.jobs).iter().sum::<u64>(), 1);
    }
}

#[tokio::test]
async fn what_a_pass_has_listed_goes_by_the_retention_of_the_next_one() {
    let world = in_memory();
    let jobs = world.process(1).jobs;
    for n in 0..60 {
        let manager = jobs.join(format!("job-{n}"), 0, 1).await.unwrap();
        finish(&manager, "x").await;
    }
    world.clock.advance(DAY);
    let sweeper = world.sweeper(90);
    let first = sweeper.clone().retention(after(DAY)).pass().await;
    assert!(first.more && (1..60).contains(&first.jobs), "{first:?}");
    let second = sweeper.retention(after(DAY * 2)).pass().await;
    assert_eq!((second.jobs, second.more), (0, false));
}

#[tokio::test]
async fn one_that_cannot_be_read_hides_none_behind_it() {
    let world = in_memory();
    go_on(&world, 150).await;
    is_over(&world, "z").await;
    let broken = Key::new("plimsoll.jobs.a").unwrap();
    let broken = Put::new(broken, fields([("partitions", "many")]).unwrap());
    let commit = Commit::of(Write::Put(broken));
    world.store.commit_one(commit).await.unwrap();
    world.clock.advance(DAY);
    let pass = world.sweeper(90).retention(after(DAY)).pass_all().await;
    assert_eq!((pass.jobs, pass.troubles.len()), (1, 1));
}

/// Whatever step of a pass is its last one.
#[tokio::test]
async fn no_pass_leaves_a_job_that_it_is_closing() {
    for jobs in 95..=100 {
        let world = in_memory();
        go_on(&world, jobs).await;
        is_over(&world, "z").await;
        world.clock.advance(DAY);
        let pass = world.sweeper(90).retention(after(DAY)).pass().await;
        let job = world.job("z").await.unwrap();
        assert_eq!(text(&job, "closing"), None, "after {jobs}");
        assert_eq!(text(&job, "deleted_at").is_some(), pass.jobs == 1);
    }
}

/// Before a job can be over, nothing of it is looked at, whatever keeps it.
#[tokio::test]
async fn a_new_leader_finds_all_at_once_and_looks_again_when_they_may_be_over() {
    let world = in_memory();
    let jobs = world.process(1).jobs;
    for n in 0..300 {
        let manager = jobs.join(format!("a-{n:04}"), 0, 2).await.unwrap();
        finish(&manager, "x").await;
    }
    is_over(&world, "z").await;
    world.clock.advance(DAY);
    let process = world.process(3);
    let sweeper = Sweeper::new(process.engine.clone()).retention(after(DAY));
    let running = spawn(sweeper.run());
    let scans = |minutes| scans(&world, &process, minutes);
    let first = scans(2).await;
    assert!(first >= 300, "{first}");
    assert!(jobs.get("z").await.unwrap().unwrap().deleted_at.is_some());
    // The registry is scanned twice a minute, the list of jobs once.
    let later = scans(10).await;
    assert!(later <= 10 * 3 + 3, "{later}");
    let last = jobs.join("a-0299", 1, 2).await.unwrap();
    finish(&last, "x").await;
    world.clock.advance(DAY);
    scans(2).await;
    assert!(
        jobs.get("a-0299")
            .await
            .unwrap()
            .unwrap()
            .deleted_at
            .is_some()
    );
    assert_eq!(jobs.get("a-0298").await.unwrap().unwrap().deleted_at, None);
    running.abort();
}

/// How often a process scans in so many minutes.
async fn scans(world: &World, process: &Process, minutes: u32) -> u64 {
    let before = process.spy.calls(Method::Scan);
    for _ in 0..minutes * 60 {
        world.settle().await;
        world.clock.advance(Duration::from_secs(1));
    }
    process.spy.calls(Method::Scan) - before
}

/// What keeps them is read for as many as may be read at once.
#[tokio::test]
async fn many_jobs_that_are_kept_by_both_rules_keep_none_from_going() {
    let limits = Limits {
        page_max: 10,
        ..Limits::default()
    };
    let world = in_memory_with(limits);
    let jobs = world.process(1).jobs;
    let mut managers = Vec::new();
    for n in 0..10 {
        let manager = jobs.join(format!("job-{n}"), 0, 1).await.unwrap();
        manager.set_state(at("a", 1)).await.unwrap();
        manager.set_state(at("b", 1)).await.unwrap();
        managers.push(manager);
    }
    let age = Duration::from_secs(600);
    let both = Retention {
        jobs: Some(age),
        ..silent_for(age)
    };
    let process = world.process(2);
    let sweeper = Sweeper::new(process.engine.clone()).retention(both);
    let running = spawn(sweeper.run());
    let set_all_but = async |left: usize| {
        for manager in &managers[left..] {
            manager.set_state(at("b", 2)).await.unwrap();
        }
    };
    // First one state keeps each job by both rules, then one by each.
    scans(&world, &process, 5).await;
    set_all_but(0).await;
    scans(&world, &process, 9).await;
    set_all_but(1).await;
    scans(&world, &process, 9).await;
    let mut gone = Vec::new();
    for job in jobs.list("", None, 10).await.unwrap().rows {
        let job = job.unwrap();
        gone.extend(job.deleted_at.map(|_| job.name.to_string()));
    }
    assert_eq!(gone, ["job-0"]);
    running.abort();
}

/// The partition that kept the job before is none of the one that was created in its place.
#[tokio::test]
async fn a_job_that_was_created_again_with_fewer_partitions_goes_when_it_has_finished() {
    let world = in_memory();
    let jobs = world.process(1).jobs;
    let first = jobs.join("import", 0, 8).await.unwrap();
    finish(&first, "a").await;
    let process = world.process(2);
    let age = Duration::from_secs(600);
    let sweeper = Sweeper::new(process.engine.clone()).retention(after(age));
    let running = spawn(sweeper.run());
    scans(&world, &process, 15).await;
    assert!(jobs.delete("import").await.unwrap());
    let second = jobs.join("import", 0, 1).await.unwrap();
    finish(&second, "a").await;
    scans(&world, &process, 25).await;
    let job = jobs.get("import").await.unwrap().unwrap();
    assert_eq!((job.generation, job.deleted_at.is_some()), (2, true));
    running.abort();
}

/// Nothing goes by a retention that cannot be meant, wherever it comes from.
#[tokio::test]
async fn a_silence_of_nothing_deletes_nothing() {
    let world = in_memory();
    let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
    manager.set_state(at("a", 1)).await.unwrap();
    world.clock.advance(Duration::from_secs(60));
    let sweeper = world.sweeper(90).retention(silent_for(Duration::ZERO));
    let pass = sweeper.pass_all().await;
    assert_eq!(pass.jobs, 0);
    let said = pass.troubles[0].error.to_string();
    assert!(
        said.contains("silent_jobs: 0ns is not between 1s"),
        "{said}"
    );
    manager.set_state(at("a", 2)).await.unwrap();
}
