//! What one pass does, how much of it, and what keeps it from nothing else.

use futures::future::join_all;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Put, Write};
use plimsoll_core::task::{Due, RetryPolicy, Status};
use plimsoll_core::{Error, Key, StoreExt};
use plimsoll_engine::registry::WorkerStatus;
use plimsoll_engine::sweeper::{Part, Pass, Reason};

use crate::world::{DAY, World, after_a_day, secs, worlds};

async fn put(world: &World, key: &str, ttl: Option<std::time::Duration>) {
    let put = Put {
        ttl,
        ..Put::new(Key::new(key).unwrap(), fields([("a", "b")]).unwrap())
    };
    world.store.write(Write::Put(put)).await.unwrap();
}

/// Something for every part of a pass. Answers what a pass over it must do.
async fn everything(world: &World) -> Pass {
    put(world, "fleeting", Some(secs(60))).await;
    let mut later = world.task("later");
    later.due = Due::After(secs(60));
    world.submit(later).await;
    let tries = |max_attempts| RetryPolicy {
        max_attempts,
        ..RetryPolicy::default()
    };
    for max_attempts in [1, 2] {
        let task = world.task("lost").retry(tries(max_attempts));
        let id = world.submit(task).await;
        world.claim(id, secs(60)).await;
    }
    world.register("silent").await;
    for status in [Status::Completed, Status::Failed, Status::Cancelled] {
        world.ended("old", status).await;
        world.ended("old", status).await;
    }
    world.clock.advance(DAY - secs(60));
    for status in [Status::Completed, Status::Failed, Status::Cancelled] {
        world.ended("young", status).await;
    }
    world.clock.advance(secs(60));
    Pass {
        promoted: 1,
        expired: 2,
        failed: 1,
        // The worker's record is a day old, too.
        records: 2,
        archived: 4,
        ..Pass::default()
    }
}

#[tokio::test]
async fn one_pass_does_everything_that_is_due() {
    for world in worlds().await {
        let expected = everything(&world).await;
        world.register("quiet").await;
        world.clock.advance(secs(30));
        let pass = world.sweeper().retention(after_a_day()).pass().await;
        assert_eq!(pass.removed.tasks, 2);
        assert!(pass.removed.entries > 0);
        let removed = pass.removed;
        let expected = Pass {
            offline: 1,
            removed,
            ..expected
        };
        assert_eq!(pass, expected);
        let workers = world.engine.workers().list().await.unwrap();
        assert_eq!(workers.len(), 1);
        assert_eq!(workers[0].status, WorkerStatus::Offline);
        let again = world.sweeper().retention(after_a_day()).pass().await;
        assert_eq!(again, Pass::default());
    }
}

#[tokio::test]
async fn several_at_once_do_everything_once() {
    for world in worlds().await {
        let expected = everything(&world).await;
        for n in 0..20 {
            world.register(&format!("w{n}")).await;
        }
        world.clock.advance(secs(30));
        let sweepers: Vec<_> = (0..8)
            .map(|_| world.sweeper().retention(after_a_day()))
            .collect();
        let passes = join_all(sweepers.iter().map(|sweeper| sweeper.pass())).await;
        let sum = |count: fn(&Pass) -> u64| passes.iter().map(count).sum::<u64>();
        assert_eq!(sum(|pass| pass.promoted), expected.promoted);
        assert_eq!(sum(|pass| pass.expired), expected.expired);
        assert_eq!(sum(|pass| pass.failed), expected.failed);
        assert_eq!(sum(|pass| pass.records), expected.records);
        assert_eq!(sum(|pass| pass.archived), expected.archived);
        assert_eq!(sum(|pass| pass.removed.tasks), 2);
        assert_eq!(sum(|pass| pass.offline), 20);
        let troubles: Vec<_> = passes.iter().flat_map(|pass| &pass.troubles).collect();
        assert!(troubles.is_empty(), "{troubles:?}");
    }
}

#[tokio::test]
async fn a_thousand_workers_are_listed_and_marked() {
    for world in worlds().await {
        let names: Vec<String> = (0..1_000).map(|n| format!("w{n}")).collect();
        join_all(names.iter().map(|name| world.register(name))).await;
        let workers = world.engine.workers();
        assert_eq!(workers.list().await.unwrap().len(), 1_000);
        assert!(workers.stale().await.unwrap().is_empty());
        world.clock.advance(secs(30));
        assert_eq!(workers.stale().await.unwrap().len(), 1_000);
        assert_eq!(world.sweeper().pass().await.offline, 1_000);
        assert!(workers.stale().await.unwrap().is_empty());
        assert_eq!(world.sweeper().pass().await, Pass::default());
    }
}

#[tokio::test]
async fn a_worker_whose_record_cannot_be_read_keeps_no_other_from_being_marked() {
    for world in worlds().await {
        world.register("a").await;
        world.register("z").await;
        for (key, status) in [("b", "active"), ("c", "asleep")] {
            let fields = fields([("status", status), ("pid", "x")]).unwrap();
            let key = Key::new(format!("plimsoll.workers.{key}/1")).unwrap();
            world
                .store
                .write(Write::Put(Put::new(key, fields)))
                .await
                .unwrap();
        }
        world.clock.advance(secs(30));
        let due = world.task("");
        let due = world.submit(plimsoll_core::task::NewTask {
            due: Due::After(secs(1)),
            ..due
        });
        let due = due.await;
        world.clock.advance(secs(1));
        for expected in [2, 0] {
            let pass = world.sweeper().pass().await;
            assert_eq!(pass.offline, expected);
            assert_eq!(pass.troubles.len(), 2);
            for trouble in &pass.troubles {
                assert_eq!(trouble.part, Part::Workers);
                assert!(
                    matches!(&trouble.error, Reason::Store(Error::Corrupt(_))),
                    "{trouble}"
                );
                assert!(
                    trouble.to_string().contains("plimsoll.workers."),
                    "{trouble}"
                );
            }
        }
        let task = world.store.task(due).await.unwrap().unwrap();
        assert_eq!(task.status, Status::Pending);
        assert_eq!(world.engine.workers().list().await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_pass_is_bounded_and_says_that_there_is_more() {
    for world in worlds().await {
        for _ in 0..25 {
            world.ended("", Status::Completed).await;
            world.ended("", Status::Cancelled).await;
        }
        world.clock.advance(DAY);
        let sweeper = world.sweeper().retention(after_a_day()).limit(10);
        let pass = sweeper.pass().await;
        assert_eq!(
            (pass.archived, pass.removed.tasks, pass.more),
            (10, 10, true)
        );
        let rest = sweeper.pass_all().await;
        assert_eq!(
            (rest.archived, rest.removed.tasks, rest.more),
            (15, 15, false)
        );
    }
}

#[tokio::test]
async fn a_closed_store_is_told_from_one_that_is_away() {
    for world in worlds().await {
        let sweeper = world.sweeper();
        assert!(!sweeper.pass().await.is_closed());
        world.store.close().await.unwrap();
        let pass = sweeper.pass().await;
        assert!(pass.is_closed());
        // One part after another was tried.
        let parts: Vec<Part> = pass.troubles.iter().map(|trouble| trouble.part).collect();
        assert!(parts.contains(&Part::Due) && parts.contains(&Part::Retention));
        sweeper.run().await;
    }
}
