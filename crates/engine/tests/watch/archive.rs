//! The archive: what is in it, and that a task is in one place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::decorate::{Decorated, Method};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Amend, Commit, Ending, Merge, Retry, Write};
use plimsoll_core::task::{KeyLifetime, NewTask, OnConflict, Progress, Status, Task};
use plimsoll_core::{Key, Limits, Name, StoreExt};
use plimsoll_engine::archive::ListArchived;
use plimsoll_engine::sweeper::Part;
use plimsoll_engine::{Retention, Sweeper};

use crate::crashes::Gatekeeper;
use crate::world::{DAY, World, after_a_day, failure, secs, worlds, worlds_with};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A task with everything that a task can have, ended.
async fn rich(world: &World) -> Task {
    let key = "order-7".try_into().unwrap();
    let new = NewTask {
        owner: Some(name("ada")),
        labels: BTreeMap::from([(name("team"), name("mail"))]),
        trace: Some("00-abc-def-01".into()),
        ..world.task("{\"to\": \"bob\"}")
    };
    let id = world
        .submit(new.key_with(key, KeyLifetime::Forever, OnConflict::Attach))
        .await;
    let holder = world.claim(id, secs(30)).await.holder().unwrap();
    let amend = Amend {
        progress: Some(Progress {
            percent: Some(40),
            message: Some("half way".into()),
            ..Progress::default()
        }),
        checkpoint: Some(Bytes::from_static(&[0, 159, 146, 150])),
        set: fields([("plan", "{\"steps\": 2}"), ("output_files", "[]")]).unwrap(),
        ..Amend::new(holder.clone())
    };
    let commit = Commit::of(Write::Amend(Box::new(amend)));
    world.store.commit_one(commit).await.unwrap();
    world.clock.advance(secs(5));
    world
        .store
        .settle(holder, failure("disk full"))
        .await
        .unwrap();
    world.store.task(id).await.unwrap().unwrap()
}

#[tokio::test]
async fn everything_that_is_known_of_a_task_is_kept() {
    for world in worlds().await {
        let task = rich(&world).await;
        world.clock.advance(DAY);
        let pass = world.sweeper().retention(after_a_day()).pass().await;
        assert_eq!(pass.archived, 1);
        assert!(!world.exists(task.id()).await);
        let archived = world
            .engine
            .archive()
            .get(task.id())
            .await
            .unwrap()
            .unwrap();
        assert_eq!((archived.id, archived.status), (task.id(), Status::Failed));
        assert_eq!(archived.lane, task.spec.lane);
        assert_eq!(archived.owner, Some(name("ada")));
        assert_eq!(archived.attributes, task.attributes);
        let text = |field: &str| {
            let value = archived.field(field).unwrap_or_else(|| panic!("{field}"));
            std::str::from_utf8(value).unwrap().to_owned()
        };
        let error = &task.errors[0];
        let worker = error.worker.to_string();
        let created = task.spec.created_at.as_micros().to_string();
        let completed = task.finished_at.unwrap().as_micros().to_string();
        for (field, expected) in [
            ("job_id", task.id().to_string().as_str()),
            ("user_id", "ada"),
            ("status", "failed"),
            ("priority", "5"),
            ("queue", "q"),
            ("kind", "k"),
            ("spec", "{\"to\": \"bob\"}"),
            ("created_at", &created),
            ("started_at", &created),
            ("worker_claimed_at", &created),
            ("run_at", &created),
            ("completed_at", &completed),
            ("updated_at", &completed),
            ("error", "disk full"),
            ("worker_id", &worker),
            ("attempts", "1"),
            ("retry_count", "1"),
            ("max_retries", "3"),
            ("redrives", "0"),
            ("fence", "1"),
            ("labels", "{\"team\":\"mail\"}"),
            ("idempotency_key", "order-7"),
            ("trace", "00-abc-def-01"),
        ] {
            assert_eq!(text(field), expected, "{field}");
        }
        let errors: serde_json::Value = serde_json::from_str(&text("errors")).unwrap();
        assert_eq!(errors[0]["message"], "disk full");
        assert_eq!(archived.field("checkpoint"), task.checkpoint.as_ref());
        assert_eq!(archived.field("output"), None);
        // Its key is free again.
        let key = "order-7".try_into().unwrap();
        let by_key = plimsoll_core::store::TaskByKey { key };
        assert_eq!(world.store.task_by_key(by_key).await.unwrap(), None);
    }
}

fn noise(bytes: usize, of: u8) -> Bytes {
    (0..bytes)
        .map(|n| (n as u8).wrapping_mul(31) ^ of)
        .collect::<Vec<u8>>()
        .into()
}

#[tokio::test]
async fn what_does_not_fit_into_one_record_is_kept_in_parts() {
    let max = Limits::default().payload_bytes_max;
    for (payload, result) in [(max, max), (max - 1, 0), (max / 2, max / 2), (0, max)] {
        for world in worlds().await {
            let (payload, result) = (noise(payload, 1), noise(result, 2));
            let complete = Ending::Complete {
                result: Some(result.clone()),
            };
            let id = world.submit(world.task(payload.clone())).await;
            let holder = world.claim(id, secs(30)).await.holder().unwrap();
            let amend = Amend {
                checkpoint: Some(noise(max, 3)),
                set: [(name("large"), noise(200_000, 4))].into(),
                ..Amend::new(holder.clone())
            };
            let commit = Commit::of(Write::Amend(Box::new(amend)));
            world.store.commit_one(commit).await.unwrap();
            world.store.settle(holder, complete).await.unwrap();
            world.clock.advance(DAY);
            let task = world.store.task(id).await.unwrap().unwrap();
            let pass = world.sweeper().retention(after_a_day()).pass().await;
            assert_eq!(pass.troubles, []);
            assert!(!world.exists(id).await);
            let archive = world.engine.archive();
            let archived = archive.get(id).await.unwrap().unwrap();
            assert_eq!(archived.field("spec"), Some(&payload));
            assert_eq!(archived.field("output"), Some(&result));
            assert_eq!(archived.field("checkpoint"), task.checkpoint.as_ref());
            assert_eq!(archived.attributes, task.attributes);
            assert!(archived.left_out.is_empty());
            let listed = archive
                .list(ListArchived::default(), 10)
                .await
                .unwrap()
                .rows;
            assert!(listed[0].left_out.contains("attributes"));
            assert!(listed[0].fields.len() + listed[0].left_out.len() > archived.fields.len());
        }
    }
}

#[tokio::test]
async fn the_archive_is_listed_in_pages_and_by_what_people_ask_for() {
    for world in worlds().await {
        let mut all = Vec::new();
        for n in 0..7 {
            let mut task = world.task("x");
            task.owner = (n % 2 == 0).then(|| name("ada"));
            task.lane.kind = name(["k", "other"][n % 2]);
            let how = match n % 3 {
                0 => failure("no"),
                _ => Ending::Complete { result: None },
            };
            all.push(world.end(task, how).await);
        }
        world.clock.advance(DAY);
        assert_eq!(
            world
                .sweeper()
                .retention(after_a_day())
                .pass()
                .await
                .archived,
            7
        );
        let archive = world.engine.archive();
        let mut list = ListArchived::default();
        let mut found = Vec::new();
        loop {
            let page = archive.list(list.clone(), 3).await.unwrap();
            assert!(page.rows.len() <= 3);
            found.extend(page.rows.iter().map(|archived| archived.id));
            match page.next {
                Some(next) => list.cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(found, all);
        let count = async |list: ListArchived| archive.list(list, 100).await.unwrap().rows.len();
        let none = ListArchived::default;
        assert_eq!(
            count(ListArchived {
                status: Some(Status::Failed),
                ..none()
            })
            .await,
            3
        );
        assert_eq!(
            count(ListArchived {
                owner: Some(name("ada")),
                ..none()
            })
            .await,
            4
        );
        assert_eq!(
            count(ListArchived {
                kind: Some(name("other")),
                ..none()
            })
            .await,
            3
        );
        assert_eq!(
            count(ListArchived {
                queue: Some(name("q")),
                ..none()
            })
            .await,
            7
        );
        let both = ListArchived {
            status: Some(Status::Failed),
            owner: Some(name("ada")),
            ..none()
        };
        assert_eq!(count(both).await, 2);
    }
}

#[tokio::test]
async fn each_outcome_has_its_own_age_and_the_archive_one_of_its_own() {
    for world in worlds().await {
        let mut ids = Vec::new();
        for status in [Status::Completed, Status::Failed, Status::Cancelled] {
            ids.push(world.ended("", status).await);
        }
        let retention = Retention {
            tasks: [(Status::Completed, DAY), (Status::Failed, DAY * 3)].into(),
            archived: Some(DAY * 10),
            ..Retention::default()
        };
        let sweeper = world.sweeper().retention(retention);
        world.clock.advance(DAY - secs(1));
        assert_eq!(sweeper.pass().await.archived, 0);
        world.clock.advance(secs(1));
        assert_eq!(sweeper.pass().await.archived, 1);
        assert!(world.archived(ids[0]).await && world.exists(ids[1]).await);
        world.clock.advance(DAY * 2);
        assert_eq!(sweeper.pass().await.archived, 1);
        assert!(world.archived(ids[1]).await);
        // Nobody said how long a cancelled task is kept.
        world.clock.advance(DAY * 8 - secs(1));
        assert!(world.archived(ids[0]).await);
        world.clock.advance(secs(1));
        assert!(!world.archived(ids[0]).await);
        assert!(world.archived(ids[1]).await);
        assert!(world.exists(ids[2]).await);
    }
}

#[tokio::test]
async fn what_is_not_archived_is_removed() {
    for world in worlds().await {
        let id = world.ended("", Status::Completed).await;
        world.clock.advance(DAY * 30);
        let retention = Retention::default().without_archive();
        let pass = world.sweeper().retention(retention).pass().await;
        assert_eq!((pass.archived, pass.removed.tasks), (0, 1));
        assert!(!world.exists(id).await && !world.archived(id).await);
    }
}

#[tokio::test]
async fn a_task_that_is_run_again_meanwhile_is_not_archived() {
    for world in worlds().await {
        let id = world.ended("", Status::Failed).await;
        world.clock.advance(DAY);
        let keeper = Gatekeeper::default();
        keeper.hold(Method::List);
        let store = Arc::new(Decorated::new(world.store.clone(), keeper.clone()));
        let sweeper = Sweeper::new(world.through(store)).retention(after_a_day());
        let retry = Retry {
            task: id,
            force: true,
            delay: Duration::ZERO,
        };
        let commit = Commit::of(Write::Retry(retry)).id(world.engine.ids().commit());
        let (pass, _) = futures::join!(sweeper.pass(), async {
            // Completed tasks are listed first.
            keeper.held().await;
            keeper.let_one_go();
            keeper.held().await;
            world.store.commit_one(commit).await.unwrap();
            keeper.let_one_go();
        });
        assert_eq!((pass.archived, pass.troubles.len()), (0, 0));
        assert!(world.exists(id).await && !world.archived(id).await);
    }
}

#[tokio::test]
async fn a_task_that_the_store_cannot_take_as_an_archived_one_keeps_no_other_from_it() {
    let limits = Limits {
        commit_bytes_max: 20_000,
        ..Limits::default()
    };
    for world in worlds_with(limits).await {
        let mut large = Vec::new();
        for n in 0..12 {
            // Each fits on its own, but not all that is known of them together.
            let id = world.submit(world.task(noise(12_000, n))).await;
            let holder = world.claim(id, secs(30)).await.holder().unwrap();
            let result = Some(noise(12_000, n));
            world
                .store
                .settle(holder, Ending::Complete { result })
                .await
                .unwrap();
            large.push(id);
        }
        world.clock.advance(secs(1));
        let mut small = Vec::new();
        for _ in 0..4 {
            small.push(world.ended("", Status::Completed).await);
        }
        world.clock.advance(DAY);
        let sweeper = world.sweeper().retention(after_a_day()).limit(5);
        for expected in [4, 0] {
            let pass = sweeper.pass().await;
            assert_eq!(pass.archived, expected);
            assert_eq!((pass.troubles.len(), pass.untold), (10, 2));
            for (trouble, id) in pass.troubles.iter().zip(&large) {
                assert_eq!(trouble.part, Part::Archive);
                assert_eq!(trouble.what, Some(format!("task {id}")));
            }
        }
        for id in large {
            assert!(world.exists(id).await && !world.archived(id).await);
        }
        for id in small {
            assert!(!world.exists(id).await && world.archived(id).await);
        }
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_keeps_no_other_from_being_listed() {
    for world in worlds().await {
        let ids = [
            world.ended("a", Status::Completed).await,
            world.ended("b", Status::Completed).await,
        ];
        world.clock.advance(DAY);
        let sweeper = world.sweeper().retention(after_a_day());
        assert_eq!(sweeper.pass().await.archived, 2);
        let completed = world.engine.archive().get(ids[1]).await.unwrap().unwrap();
        let by = completed.field("worker_id").unwrap();
        assert!(by.starts_with(b"elsewhere#"), "{by:?}");
        let key = Key::new(format!("plimsoll.archive.tasks.{}", ids[0])).unwrap();
        let broken = Merge::new(key).set(fields([("status", "lost")]).unwrap());
        world.store.write(Write::Merge(broken)).await.unwrap();
        let archive = world.engine.archive();
        let page = archive.list(ListArchived::default(), 10).await.unwrap();
        let found: Vec<_> = page.rows.iter().map(|row| row.id).collect();
        assert_eq!(found, [ids[1]]);
        assert_eq!(page.unreadable.len(), 1);
        let why = page.unreadable[0].to_string();
        assert!(
            why.contains(&ids[0].to_string()) && why.contains("status"),
            "{why}"
        );
        assert_eq!(archive.get(ids[0]).await.unwrap_err().kind(), "corrupt");
    }
}

#[tokio::test]
async fn a_task_with_a_part_missing_is_corrupt_and_not_taken_for_whole() {
    for world in worlds().await {
        let task = rich(&world).await;
        world.clock.advance(DAY);
        let sweeper = world.sweeper().retention(after_a_day());
        assert_eq!(sweeper.pass().await.archived, 1);
        let id = task.id();
        let part = Key::new(format!("plimsoll.archive.parts.{id}.attributes.0")).unwrap();
        world.store.write(Write::Delete(part)).await.unwrap();
        let broken = world.engine.archive().get(id).await.unwrap_err();
        assert_eq!(broken.kind(), "corrupt");
        assert!(broken.to_string().contains("attributes"), "{broken}");
    }
}
