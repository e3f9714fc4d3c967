//! What is said of a job as a whole.

use plimsoll_core::decorate::Method;
use plimsoll_core::store::{Merge, Write};
use plimsoll_core::{Key, Limits, StoreExt};
use plimsoll_engine::Retention;

use crate::world::{DAY, at, code, finish, in_memory_with, name, number, spawn, worlds};

#[tokio::test]
async fn only_partition_0_describes_the_job() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let first = jobs
            .join("import", 0, 2)
            .about("a", "1")
            .unwrap()
            .await
            .unwrap();
        let other = jobs.join("import", 1, 2).await.unwrap();
        assert!(!other.describe([("a", "9")]).await.unwrap());
        assert!(first.describe([("b", "2")]).await.unwrap());
        let about = jobs.get("import").await.unwrap().unwrap().about;
        assert_eq!(about.get(&name("a")).unwrap(), "1");
        assert_eq!(about.get(&name("b")).unwrap(), "2");
        jobs.delete("import").await.unwrap();
        assert_eq!(code(first.describe([("c", "3")]).await), "job_deleted");
    }
}

/// Its deletion is written into the same record.
#[tokio::test]
async fn a_job_of_which_as_much_is_said_as_may_be_can_be_deleted() {
    let by_fields = Limits {
        fields_max: 12,
        ..Limits::default()
    };
    let by_bytes = Limits {
        record_bytes_max: 600,
        ..Limits::default()
    };
    for limits in [by_fields, by_bytes] {
        let world = in_memory_with(limits);
        let jobs = world.process(1).jobs;
        let manager = jobs.join("import", 0, 1).await.unwrap();
        let (mut said, value) = (0, "x".repeat(40));
        let refused = loop {
            let about = [(format!("n{said}"), value.clone())];
            match manager.describe(about).await {
                Ok(done) => assert!(done),
                Err(error) => break error,
            }
            said += 1;
        };
        assert!(said > 2);
        assert_eq!(refused.code(), "invalid");
        let join = jobs.join("import", 0, 1).about("more", &value).unwrap();
        assert_eq!(code(join.await), "invalid");
        assert!(jobs.delete("import").await.unwrap());

        let all = (0..=said).map(|n| format!("n{n}"));
        let mut join = jobs.join("import", 0, 1);
        for name in all {
            join = join.about(name, &value).unwrap();
        }
        assert_eq!(code(join.await), "invalid");
        let info = jobs.get("import").await.unwrap().unwrap();
        assert!(info.deleted_at.is_some(), "none was created");
    }
}

/// Each would fit by itself.
#[tokio::test]
async fn two_who_say_much_at_once_leave_room_for_the_deletion_too() {
    let world = in_memory_with(Limits {
        fields_max: 12,
        ..Limits::default()
    });
    let slow = world.process(1);
    let first = slow.jobs.join("import", 0, 1).await.unwrap();
    let jobs = world.process(2).jobs;
    let second = jobs.join("import", 0, 1).await.unwrap();
    let about = |prefix: char| (0..4).map(move |n| (format!("{prefix}{n}"), "x"));
    slow.spy.hold(Method::Commit);
    let commits = slow.spy.calls(Method::Commit);
    let saying = spawn(async move { first.describe(about('a')).await });
    while slow.spy.calls(Method::Commit) == commits {
        tokio::task::yield_now().await;
    }
    assert!(second.describe(about('b')).await.unwrap());
    slow.spy.let_go();
    assert_eq!(code(world.time(saying).await.unwrap()), "invalid");
    assert!(jobs.delete("import").await.unwrap());
}

/// Programs of before left no room for it.
#[tokio::test]
async fn a_job_whose_record_is_full_can_be_deleted_by_hand_and_by_a_sweeper() {
    for by_hand in [true, false] {
        let world = in_memory_with(Limits {
            fields_max: 12,
            ..Limits::default()
        });
        let jobs = world.process(1).jobs;
        let manager = jobs.join("import", 0, 1).await.unwrap();
        finish(&manager, "a").await;
        let key = Key::new("plimsoll.jobs.import").unwrap();
        let free = 12 - world.job("import").await.unwrap().fields.len();
        let about = (0..free).map(|n| (name(&format!("about.{n}")), "x".into()));
        let full = Merge::new(key).set(about.collect());
        world.store.write(Write::Merge(full)).await.unwrap();
        world.clock.advance(DAY);
        if by_hand {
            assert!(jobs.delete("import").await.unwrap());
        } else {
            let retention = Retention {
                jobs: Some(DAY),
                ..Retention::forever()
            };
            let pass = world.sweeper(2).retention(retention).pass_all().await;
            assert_eq!((pass.jobs, pass.states, pass.troubles), (1, 1, Vec::new()));
        }
        let mark = jobs.get("import").await.unwrap().unwrap();
        assert!(mark.deleted_at.is_some() && mark.about.is_empty());
        // Versions and generations go on.
        let again = jobs.join("import", 0, 1).await.unwrap();
        assert_eq!(again.set_state(at("a", 1)).await.unwrap().version, 2);
        assert_eq!(jobs.get("import").await.unwrap().unwrap().generation, 2);
    }
}

/// There is room for the mark, and none for how far the versions went.
#[tokio::test]
async fn a_job_whose_record_is_almost_full_can_be_deleted_with_its_states() {
    let limits = Limits {
        record_bytes_max: 4_000,
        ..Limits::default()
    };
    let world = in_memory_with(limits);
    let jobs = world.process(1).jobs;
    let manager = jobs.join("import", 0, 1).await.unwrap();
    for status in 1..=100 {
        manager.set_state(at("a", status)).await.unwrap();
    }
    let key = Key::new("plimsoll.jobs.import").unwrap();
    let about = async |length: usize| {
        let value = "x".repeat(length);
        let said = [(name("about.n"), value.into())].into();
        let merge = Merge::new(key.clone()).set(said);
        world.store.write(Write::Merge(merge)).await.is_ok()
    };
    let mut most = 0;
    while about(most + 1).await {
        most += 1;
    }
    let created_at = number(&world.job("import").await.unwrap(), "created_at");
    let mark = "deleted_at".len() + created_at.to_string().len();
    // In place of "generation" comes "deleted".
    let shorter = "generation".len() - "deleted".len();
    assert!(about(most + shorter - mark).await);
    assert!(jobs.delete("import").await.unwrap());
    assert_eq!(world.records("plimsoll.states.").await.len(), 0);
    let again = jobs.join("import", 0, 1).await.unwrap();
    assert_eq!(again.set_state(at("a", 1)).await.unwrap().version, 101);
}
