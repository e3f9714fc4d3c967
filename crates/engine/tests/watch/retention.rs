//! The retention of a namespace: stored with it, and kept by every sweeper that has no other.

use std::sync::Arc;

use plimsoll_core::record::fields;
use plimsoll_core::store::{Put, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{Key, StoreExt};
use plimsoll_engine::Retention;
use plimsoll_engine::sweeper::Part;

use crate::sinks::Shelf;
use crate::world::{DAY, after_a_day, in_memory, secs, spawn, worlds};

#[tokio::test]
async fn what_is_stored_is_what_was_said() {
    for world in worlds().await {
        let retention = world.engine.retention();
        assert_eq!(retention.get().await.unwrap(), None);
        let elsewhere = Retention {
            elsewhere: true,
            logs: Some(secs(7)),
            archived: None,
            ..after_a_day()
        };
        for said in [after_a_day(), Retention::forever(), elsewhere] {
            retention.set(&said).await.unwrap();
            assert_eq!(retention.get().await.unwrap(), Some(said));
        }
        retention.clear().await.unwrap();
        assert_eq!(retention.get().await.unwrap(), None);
    }
}

#[tokio::test]
async fn of_two_who_change_it_at_once_neither_is_lost() {
    for world in worlds().await {
        let (one, other) = (world.engine.retention(), world.engine.retention());
        let jobs = one.update(|before| Retention {
            jobs: Some(secs(7)),
            ..before
        });
        let logs = other.update(|before| Retention {
            logs: Some(secs(8)),
            ..before
        });
        let (jobs, logs) = futures::join!(jobs, logs);
        let stored = one.get().await.unwrap().unwrap();
        let both = Retention {
            jobs: Some(secs(7)),
            logs: Some(secs(8)),
            ..Retention::default()
        };
        assert_eq!(stored, both);
        assert!([jobs.unwrap(), logs.unwrap()].contains(&both));
        // What makes no sense changes nothing.
        let wrong = one.update(|before| Retention {
            archive: [Status::Claimed].into(),
            ..before
        });
        assert_eq!(wrong.await.unwrap_err().code(), "invalid");
        assert_eq!(one.get().await.unwrap(), Some(both));
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_name() {
    let ages = || Retention::default().tasks;
    let long = 200 * 365 * DAY;
    let wrong = [
        (
            "tasks",
            Retention {
                tasks: [(Status::Pending, DAY)].into(),
                ..after_a_day()
            },
        ),
        (
            "tasks",
            Retention {
                tasks: [(Status::Failed, long)].into(),
                ..after_a_day()
            },
        ),
        (
            "archive",
            Retention {
                archive: [Status::Claimed].into(),
                ..after_a_day()
            },
        ),
        (
            "archived",
            Retention {
                archived: Some(long),
                tasks: ages(),
                ..after_a_day()
            },
        ),
        (
            "groups",
            Retention {
                groups: Some(long),
                ..after_a_day()
            },
        ),
        (
            "history",
            Retention {
                history: Some(long),
                ..after_a_day()
            },
        ),
        (
            "logs",
            Retention {
                logs: Some(long),
                ..after_a_day()
            },
        ),
    ];
    for world in worlds().await {
        for (field, retention) in &wrong {
            let refused = world.engine.retention().set(retention).await.unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(&format!(": {field}: ")), "{refused}");
        }
        assert_eq!(world.engine.retention().get().await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_sweeper_goes_by_what_is_stored_unless_it_was_given_another() {
    for world in worlds().await {
        let id = world.ended("", Status::Completed).await;
        world.clock.advance(DAY);
        let forever = world.sweeper().retention(Retention::forever());
        assert_eq!(world.sweeper().pass().await.archived, 0, "not the default");
        world.engine.retention().set(&after_a_day()).await.unwrap();
        assert_eq!(forever.pass().await.archived, 0, "its own");
        assert_eq!(world.sweeper().pass().await.archived, 1);
        assert!(world.archived(id).await);
    }
}

#[tokio::test]
async fn a_running_sweeper_hears_of_a_change_with_its_next_pass() {
    let world = in_memory().await;
    let id = world.ended("", Status::Cancelled).await;
    world.clock.advance(DAY);
    let running = spawn(world.sweeper().run());
    world.pass(secs(70)).await;
    assert!(world.exists(id).await);
    world.engine.retention().set(&after_a_day()).await.unwrap();
    world.pass(secs(61)).await;
    assert!(!world.exists(id).await);
    running.abort();
}

#[tokio::test]
async fn what_goes_elsewhere_is_left_to_who_has_a_sink() {
    for world in worlds().await {
        let id = world.ended("", Status::Completed).await;
        let removed = world.ended("", Status::Cancelled).await;
        world.clock.advance(DAY);
        let elsewhere = Retention {
            elsewhere: true,
            ..after_a_day()
        };
        world.engine.retention().set(&elsewhere).await.unwrap();
        let pass = world.sweeper().pass().await;
        assert_eq!((pass.archived, pass.removed.tasks), (0, 1));
        assert!(world.exists(id).await && !world.exists(removed).await);
        let shelf = Arc::new(Shelf::default());
        let pass = world.sweeper().archive_to(shelf.clone()).pass().await;
        assert_eq!((pass.archived, shelf.count(id)), (1, 1));
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_removes_nothing_and_is_told() {
    for world in worlds().await {
        let id = world.ended("", Status::Cancelled).await;
        world.clock.advance(1_000 * DAY);
        let key = Key::new("plimsoll.retention").unwrap();
        for tasks in ["soon", "{\"pending\": 1}", "{\"failed\": 999999999999999}"] {
            let said = [
                ("tasks_ms", tasks),
                ("archive", "[]"),
                ("elsewhere", "false"),
            ];
            let put = Put::new(key.clone(), fields(said).unwrap());
            world.store.write(Write::Put(put)).await.unwrap();
            let pass = world.sweeper().pass().await;
            let parts: Vec<Part> = pass.troubles.iter().map(|one| one.part).collect();
            let going_by_it = [Part::Archive, Part::Jobs, Part::Retention];
            assert_eq!(parts, going_by_it, "{tasks}");
            let told = pass.troubles[0].to_string();
            assert!(told.contains("plimsoll.retention"), "{told}");
            assert!(world.exists(id).await);
        }
    }
}
