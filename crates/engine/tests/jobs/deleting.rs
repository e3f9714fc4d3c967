//! Jobs that are deleted while others write, and created again.

use futures::future::join_all;
use plimsoll_core::decorate::Method;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Commit, Merge, Put, Write};
use plimsoll_core::{Key, StoreExt};

use crate::world::{DAY, at, code, in_memory, name, number, spawn, text, worlds};

#[tokio::test]
async fn a_deleted_job_refuses_writes_and_leaves_only_a_mark_that_expires() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let manager = jobs.join("import", 1, 2).await.unwrap();
        let other = jobs.join("import2", 0, 1).await.unwrap();
        for tag in ["a", "b"] {
            manager.set_state(at(tag, 1)).await.unwrap();
            manager.set_state(at(tag, 2)).await.unwrap();
            other.set_state(at(tag, 1)).await.unwrap();
        }
        assert!(jobs.delete("import").await.unwrap());
        assert_eq!(code(manager.set_state(at("a", 3)).await), "job_deleted");
        assert_eq!(code(manager.set_state(at("c", 3)).await), "job_deleted");
        assert_eq!(world.records("plimsoll.states.import.").await, []);
        assert_eq!(world.records("plimsoll.states.import2.").await.len(), 2);
        let info = jobs.get("import").await.unwrap().unwrap();
        assert!(info.deleted_at.is_some());
        let mark = world.job("import").await.unwrap();
        assert_eq!(number(&mark, "floor"), 2);
        assert_eq!(text(&mark, "generation"), None);
        assert!(!jobs.delete("import").await.unwrap());

        world.clock.advance(DAY * 30);
        assert_eq!(jobs.get("import").await.unwrap(), None);
        assert!(!jobs.delete("import").await.unwrap());
    }
}

#[tokio::test]
async fn versions_go_on_when_a_job_is_created_again_and_its_old_managers_are_refused() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let old = jobs.join("import", 0, 2).await.unwrap();
        for n in 0..3 {
            old.set_state(at("a", n)).await.unwrap();
        }
        jobs.delete("import").await.unwrap();
        let new = world.process(2).jobs.join("import", 0, 5).await.unwrap();
        assert!(new.created());
        assert_eq!(new.partitions(), 5);
        assert_eq!(jobs.get("import").await.unwrap().unwrap().generation, 2);
        assert!(world.job("import").await.unwrap().expires_at.is_none());
        assert_eq!(new.set_state(at("a", 1)).await.unwrap().version, 4);
        assert_eq!(new.set_state(at("b", 1)).await.unwrap().version, 4);
        assert_eq!(code(old.set_state(at("a", 9)).await), "job_deleted");
        assert!(!old.delete_job().await.unwrap());
        assert_eq!(new.set_state(at("a", 2)).await.unwrap().version, 5);
    }
}

/// Even when nothing is left that tells of the former life.
#[tokio::test]
async fn an_old_manager_is_refused_also_after_the_mark_has_expired() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let old = jobs.join("import", 0, 1).await.unwrap();
        jobs.delete("import").await.unwrap();
        world.clock.advance(DAY * 31);
        let new = jobs.join("import", 0, 1).await.unwrap();
        assert_eq!(jobs.get("import").await.unwrap().unwrap().generation, 1);
        assert_eq!(code(old.set_state(at("a", 1)).await), "job_deleted");
        assert!(!old.mark_job_deleted().await.unwrap());
        new.set_state(at("a", 1)).await.unwrap();
    }
}

#[tokio::test]
async fn a_marked_job_is_removed_by_the_sweeper() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let manager = jobs.join("import", 0, 1).await.unwrap();
        manager.set_state(at("a", 1)).await.unwrap();
        assert!(manager.mark_job_deleted().await.unwrap());
        assert!(!manager.mark_job_deleted().await.unwrap());
        assert_eq!(code(manager.set_state(at("a", 2)).await), "job_deleted");
        assert_eq!(world.records("plimsoll.states.").await.len(), 1);
        assert!(world.job("import").await.unwrap().expires_at.is_none());

        let pass = world.sweeper(2).pass_all().await;
        assert_eq!((pass.jobs, pass.states, pass.troubles), (0, 1, vec![]));
        assert_eq!(world.records("plimsoll.states.").await, []);
        assert!(world.job("import").await.unwrap().expires_at.is_some());
    }
}

#[tokio::test]
async fn only_partition_0_deletes() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let first = jobs.join("import", 0, 2).await.unwrap();
        let other = jobs.join("import", 1, 2).await.unwrap();
        assert!(!other.delete_job().await.unwrap());
        assert!(!other.mark_job_deleted().await.unwrap());
        other.set_state(at("a", 1)).await.unwrap();
        assert!(first.delete_job().await.unwrap());
        assert_eq!(world.records("plimsoll.states.").await, []);
        assert!(!jobs.delete("nothing").await.unwrap());
    }
}

#[tokio::test]
async fn joining_a_marked_job_removes_what_is_left_first() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let old = jobs.join("import", 1, 2).await.unwrap();
        for n in 0..7 {
            old.set_state(at("a", n)).await.unwrap();
        }
        jobs.mark_deleted("import").await.unwrap();
        let new = jobs.join("import", 0, 1).await.unwrap();
        assert_eq!(world.records("plimsoll.states.").await, []);
        assert_eq!(new.set_state(at("a", 1)).await.unwrap().version, 8);
    }
}

/// Writers go on until they are refused. None of them leaves anything behind.
#[tokio::test]
async fn deleting_while_others_write_leaves_nothing() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let mut writing = Vec::new();
        for partition in 0..8 {
            let other = world.process(u64::from(partition) + 10).jobs;
            let manager = other.join("import", partition, 8).await.unwrap();
            writing.push(spawn(async move {
                for n in 0.. {
                    if let Err(error) = manager.set_state(at("a", n)).await {
                        return (n, error.code());
                    }
                }
                unreachable!()
            }));
        }
        while world.records("plimsoll.states.").await.len() < 8 {
            tokio::task::yield_now().await;
        }
        assert!(jobs.delete("import").await.unwrap());
        let written = join_all(writing).await;
        let written: Vec<_> = written.into_iter().map(Result::unwrap).collect();
        assert!(written.iter().all(|(_, code)| *code == "job_deleted"));
        assert_eq!(world.records("plimsoll.states.").await, []);
        let highest = written.iter().map(|(count, _)| i64::from(*count)).max();
        let floor = number(&world.job("import").await.unwrap(), "floor");
        assert_eq!(Some(floor), highest);
    }
}

#[tokio::test]
async fn many_states_go_in_commits_of_bounded_size() {
    for world in worlds().await {
        let process = world.process(1);
        process.jobs.join("import", 0, 2_500).await.unwrap();
        let state = |n: u32| {
            let key = Key::new(format!("plimsoll.states.import.{n}-a")).unwrap();
            let fields = fields([("version", n.to_string())]).unwrap();
            Commit::of(Write::Put(Put::new(key, fields)))
        };
        let stored = world.store.commit((0..2_500).map(state).collect()).await;
        assert!(stored.iter().all(Result::is_ok));
        process.spy.commits();
        process.jobs.delete("import").await.unwrap();
        assert_eq!(world.records("plimsoll.states.").await, []);
        let mark = world.job("import").await.unwrap();
        assert_eq!(number(&mark, "floor"), 2_499);
        // The mark, 6 + 6 + 3 times up to 199 states, and that the mark expires.
        assert_eq!(process.spy.commits().len(), 1 + 15 + 1);
    }
}

#[tokio::test]
async fn states_that_wait_when_the_job_is_deleted_are_all_refused() {
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 0, 1).await.unwrap();
    process.spy.hold(Method::Commit);
    let calls = [at("a", 1), at("b", 2), at("a", 3)];
    let calls = spawn(join_all(calls.map(|state| manager.set_state(state))));
    tokio::task::yield_now().await;
    world.process(2).jobs.delete("import").await.unwrap();
    process.spy.let_go();
    for answer in calls.await.unwrap() {
        assert_eq!(code(answer), "job_deleted");
    }
}

/// One who deletes is held up between any two commits, until the job is there again.
#[tokio::test]
async fn a_removal_that_comes_late_takes_nothing_from_the_next_life() {
    for held_up in 1..3 {
        for world in worlds().await {
            let process = world.process(1);
            let old = process.jobs.join("import", 0, 1).await.unwrap();
            old.set_state(at("a", 1)).await.unwrap();
            let before = process.spy.calls(Method::Commit);
            process.spy.hold(Method::Commit);
            let late = spawn({
                let jobs = process.jobs.clone();
                async move { jobs.delete("import").await }
            });
            for n in 0..=held_up {
                while process.spy.calls(Method::Commit) <= before + n {
                    tokio::task::yield_now().await;
                }
                if n < held_up {
                    process.spy.let_go();
                    process.spy.hold(Method::Commit);
                }
            }
            let new = world.process(2).jobs.join("import", 0, 1).await.unwrap();
            assert_eq!(new.set_state(at("a", 2)).await.unwrap().version, 2);
            process.spy.let_go();
            assert!(late.await.unwrap().unwrap());
            assert!(world.state("import", 0, "a").await.is_some(), "{held_up}");
            assert_eq!(world.job("import").await.unwrap().expires_at, None);
            assert_eq!(new.set_state(at("a", 3)).await.unwrap().version, 3);
        }
    }
}

#[tokio::test]
async fn a_job_whose_record_cannot_be_read_is_deleted_and_can_be_created_again() {
    let broken = [
        ("generation", None),
        ("generation", Some("x")),
        ("partitions", Some("many")),
        ("partitions", Some("0")),
        ("partitions", Some("4000000000")),
        ("created_at", Some("")),
        ("floor", None),
        ("retain_ms", Some("long")),
    ];
    for world in worlds().await {
        for (n, (field, value)) in broken.into_iter().enumerate() {
            let job = format!("import-{n}");
            let jobs = world.process(n as u64).jobs;
            jobs.join(&job, 0, 2).await.unwrap();
            jobs.delete(&job).await.unwrap();
            let old = jobs.join(&job, 0, 2).await.unwrap();
            old.set_state(at("a", 1)).await.unwrap();
            old.set_state(at("a", 2)).await.unwrap();
            let merge = Merge::new(Key::new(format!("plimsoll.jobs.{job}")).unwrap());
            let merge = match value {
                Some(value) => merge.set(fields([(field, value)]).unwrap()),
                None => merge.unset(name(field)),
            };
            let spoil = Commit::of(Write::Merge(merge));
            world.store.commit_one(spoil).await.unwrap();
            assert_eq!(code(jobs.get(&job).await), "corrupt");
            assert_eq!(code(jobs.join(&job, 0, 2).await), "corrupt");
            // It does not know whether it is its own.
            assert_eq!(code(old.delete_job().await), "corrupt");

            assert!(jobs.mark_deleted(&job).await.unwrap());
            assert!(!jobs.mark_deleted(&job).await.unwrap());
            assert_eq!(code(old.set_state(at("a", 3)).await), "job_deleted");
            assert!(!jobs.delete(&job).await.unwrap());
            let states = format!("plimsoll.states.{job}.");
            assert_eq!(world.records(&states).await, []);
            assert!(world.job(&job).await.unwrap().expires_at.is_some());

            let new = jobs.join(&job, 0, 5).await.unwrap();
            assert_eq!(new.set_state(at("a", 1)).await.unwrap().version, 3);
            let info = jobs.get(&job).await.unwrap().unwrap();
            assert_eq!(info.partitions, 5);
            // If it could not be read, it is one that was never there.
            match field {
                "generation" => assert!(info.generation > 3, "{info:?}"),
                _ => assert_eq!(info.generation, 3),
            }
            assert_eq!(code(old.set_state(at("a", 3)).await), "job_deleted");
        }
    }
}

#[tokio::test]
async fn a_record_that_is_mended_before_it_is_deleted_is_not_taken_for_unreadable() {
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 0, 4).await.unwrap();
    let key = Key::new("plimsoll.jobs.import").unwrap();
    let good = world.job("import").await.unwrap().fields;
    let put = |fields| Commit::of(Write::Put(Put::new(key.clone(), fields)));
    let bad = fields([("partitions", "x")]).unwrap();
    world.store.commit_one(put(bad)).await.unwrap();
    process.spy.hold(Method::Commit);
    let jobs = process.jobs.clone();
    let deleting = spawn(async move { jobs.mark_deleted("import").await });
    world.settle().await;
    world.store.commit_one(put(good)).await.unwrap();
    process.spy.let_go();
    assert!(deleting.await.unwrap().unwrap());
    // It is the job's own mark, and not one that was made up.
    let mark = world.job("import").await.unwrap();
    assert_eq!(number(&mark, "partitions"), 4);
    assert_eq!(number(&mark, "deleted"), 1);
    assert_eq!(code(manager.set_state(at("a", 1)).await), "job_deleted");
}
