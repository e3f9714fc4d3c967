//! Jobs that are over go after a while; jobs that go on never do.

use std::time::Duration;

use plimsoll_core::decorate::Method;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Commit, Put, Write};
use plimsoll_core::{Key, StoreExt};
use plimsoll_engine::{Retention, Sweeper};

use crate::world::{DAY, Process, World, at, code, finish, in_memory, spawn, text, worlds};

fn after(jobs: Duration) -> Retention {
    Retention {
        jobs: Some(jobs),
        ..Retention::forever()
    }
}

async fn sweep(world: &World) -> u64 {
    let seed = world.store.ping().await.unwrap().as_micros().unsigned_abs();
    let pass = world.sweeper(seed).retention(after(DAY)).pass_all().await;
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
        assert_eq!(jobs.get("long").await.unwrap().unwrap().deleted_at, None);
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
        let century = after(DAY * 365 * 101);
        let refused = retention.set(&century).await.unwrap_err().to_string();
        assert!(refused.contains("jobs: "), "{refused}");
    }
}

/// Between any two calls of the sweeper, somebody writes: that job stays, and so does what was written.
#[tokio::test]
async fn a_job_that_goes_on_meanwhile_is_kept() {
    let mut reopened = 0;
    for method in [Method::Scan, Method::Commit] {
        for skip in 0..4 {
            for world in worlds().await {
                let jobs = world.process(1).jobs;
                let manager = jobs.join("import", 0, 1).await.unwrap();
                finish(&manager, "x").await;
                world.clock.advance(DAY);
                let process = world.process(2);
                let sweeper = Sweeper::new(process.engine.clone()).retention(after(DAY));
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
    }
    assert!(reopened >= 2, "nobody came while it was closing");
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
