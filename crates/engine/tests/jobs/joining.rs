//! Who joins a job, and what they are told.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Merge, Put, Write};
use plimsoll_core::{Key, StoreExt};
use plimsoll_engine::jobs::{NewState, PARTITIONS_MAX};

use crate::world::{DAY, at, code, in_memory, message, name, spawn, worlds};

#[tokio::test]
async fn the_first_creates_the_job_and_its_count_holds_for_all() {
    for world in worlds().await {
        let (a, b) = (world.process(1), world.process(2));
        let first = a.jobs.join("import", 0, 4).await.unwrap();
        assert!(first.created());
        assert_eq!((first.partition(), first.partitions()), (0, 4));
        let second = b.jobs.join("import", 3, 8).await.unwrap();
        assert!(!second.created());
        assert_eq!((second.partition(), second.partitions()), (3, 4));
        assert_eq!(second.job().as_str(), "import");
    }
}

#[tokio::test]
async fn of_many_who_come_at_once_one_creates_the_job() {
    for world in worlds().await {
        let joining = (0..20).map(|n| {
            let jobs = world.process(u64::from(n) + 1).jobs;
            spawn(async move { jobs.join("import", n, 20 + n).await.unwrap() })
        });
        let managers = world.time(futures::future::join_all(joining)).await;
        let managers: Vec<_> = managers.into_iter().map(Result::unwrap).collect();
        let created: Vec<_> = managers.iter().filter(|one| one.created()).collect();
        assert_eq!(created.len(), 1);
        let partitions = created[0].partitions();
        assert!(managers.iter().all(|one| one.partitions() == partitions));
    }
}

#[tokio::test]
async fn a_partition_must_be_below_the_stored_count() {
    let world = in_memory();
    let jobs = world.process(1).jobs;
    // Neither of these creates anything.
    let beyond = jobs.join("import", 4, 4).await;
    assert_eq!(
        message(beyond),
        "invalid input: partition: 4 is not between 0 and 3"
    );
    for partitions in [0, PARTITIONS_MAX + 1] {
        let refused = jobs.join("import", 0, partitions).await;
        assert_eq!(
            message(refused),
            format!("invalid input: partitions: {partitions} is not between 1 and 1000000")
        );
    }
    assert_eq!(jobs.get("import").await.unwrap(), None);

    jobs.join("import", 0, 4).await.unwrap();
    let beyond = jobs.join("import", 5, 8).await;
    assert_eq!(
        message(beyond),
        "invalid input: partition: 5 is not between 0 and 3"
    );
    jobs.join("many", PARTITIONS_MAX - 1, PARTITIONS_MAX)
        .await
        .unwrap();
}

#[tokio::test]
async fn names_and_options_have_limits() {
    let world = in_memory();
    let jobs = world.process(1).jobs;
    assert!(message(jobs.join("", 0, 1).await).contains("job: must not be empty"));
    let century = Duration::from_secs(101 * 365 * 86_400);
    let refused = jobs.join("import", 0, 1).retain(century).await;
    assert!(message(refused).contains("retain: "));
    let large = jobs.join("import", 0, 1).about("a", "x".repeat(300_000));
    assert!(message(large.unwrap().await).contains("fields.about.a: 300000 bytes"));
}

#[tokio::test]
async fn what_partition_0_says_when_it_creates_the_job_others_do_not_change() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let join = jobs.join("a.job", 0, 2).retain(DAY).about("source", "ftp");
        join.unwrap().await.unwrap();
        let join = jobs
            .join("a.job", 1, 2)
            .retain(DAY * 2)
            .about("source", "http");
        join.unwrap().await.unwrap();
        let info = jobs.get("a.job").await.unwrap().unwrap();
        assert_eq!(info.name, name("a.job"));
        assert_eq!((info.partitions, info.generation), (2, 1));
        assert_eq!(info.retain, Some(DAY));
        assert_eq!(info.about[&name("source")], "ftp");
        assert_eq!(info.deleted_at, None);
    }
}

#[tokio::test]
async fn partition_0_says_it_whoever_creates_the_job_and_says_it_anew_when_it_joins_again() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let said = async || {
            let info = jobs.get("import").await.unwrap().unwrap();
            let about = info.about.iter();
            let about: Vec<_> = about
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            (info.retain, about.join(" "))
        };
        let join = |partition, retain, source| {
            let join = jobs.join("import", partition, 2).retain(retain);
            join.about("source", source).unwrap()
        };
        let other = join(1, DAY * 2, "http").await.unwrap();
        assert!(other.created());
        assert_eq!(said().await, (None, String::new()));

        let first = join(0, DAY, "ftp").await.unwrap();
        assert!(!first.created());
        assert_eq!(said().await, (Some(DAY), "source=ftp".to_owned()));
        let revision = async || world.job("import").await.unwrap().revision;
        let before = revision().await;
        join(1, DAY * 3, "file").await.unwrap();
        join(0, DAY, "ftp").await.unwrap();
        jobs.join("import", 0, 2).await.unwrap();
        assert_eq!(revision().await, before, "nothing new was said");

        first.describe([("owner", "ana")]).await.unwrap();
        let join = jobs.join("import", 0, 2).about("source", "s3").unwrap();
        join.await.unwrap();
        let about = "owner=ana source=s3".to_owned();
        assert_eq!(said().await, (Some(DAY), about));
        // Whoever writes notices nothing of it.
        let state = NewState::new("a", 3).unwrap();
        assert_eq!(other.set_state(state).await.unwrap().version, 1);
    }
}

#[tokio::test]
async fn who_joins_what_somebody_else_has_created_creates_nothing() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let early = jobs.join_existing("import", 1).await;
        assert_eq!(code(early), "job_not_found");
        assert_eq!(world.job("import").await, None);

        let first = jobs.join("import", 0, 4).await.unwrap();
        first.set_state(at("a", 1)).await.unwrap();
        let second = jobs.join_existing("import", 1).await.unwrap();
        assert_eq!((second.partitions(), second.created()), (4, false));
        assert_eq!(code(jobs.join_existing("import", 4).await), "invalid");

        jobs.mark_deleted("import").await.unwrap();
        let deleted = world.job("import").await;
        let late = jobs.join_existing("import", 1).await;
        assert_eq!(code(late), "job_not_found");
        assert_eq!(world.job("import").await, deleted);
        assert_eq!(world.records("plimsoll.states.").await.len(), 1);
        jobs.delete("import").await.unwrap();
        assert_eq!(code(jobs.join_existing("import", 1).await), "job_not_found");
    }
}

#[tokio::test]
async fn who_is_refused_has_removed_and_opened_nothing() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let manager = jobs.join("import", 0, 4).await.unwrap();
        manager.set_state(at("a", 1)).await.unwrap();
        let key = Key::new("plimsoll.jobs.import").unwrap();
        for (before, now) in [("generation", "closing"), ("closing", "deleted")] {
            let merge = Merge::new(key.clone()).unset(name(before));
            let merge = merge.set(fields([(now, "1")]).unwrap());
            world.store.write(Write::Merge(merge)).await.unwrap();
            let before = world.job("import").await;
            assert_eq!(code(jobs.join("import", 9, 4).await), "invalid");
            assert_eq!(world.job("import").await, before);
            assert_eq!(world.records("plimsoll.states.").await.len(), 1);
        }
    }
}

#[tokio::test]
async fn jobs_are_listed_by_prefix_with_what_cannot_be_read_in_its_place() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        for job in ["a", "a.1", "a.2", "a%2E3", "b"] {
            jobs.join(job, 0, 1).await.unwrap();
        }
        let key = Key::new("plimsoll.jobs.a%2E1x").unwrap();
        let put = Put::new(key, fields([("generation", "x")]).unwrap());
        world.store.write(Write::Put(put)).await.unwrap();
        let listed: Vec<_> = jobs.list_all("a.").collect().await;
        let listed = listed.into_iter().map(|job| match job {
            Ok(job) => job.name.to_string(),
            Err(error) => error.code().to_owned(),
        });
        assert_eq!(listed.collect::<Vec<_>>(), ["a.1", "corrupt", "a.2"]);
        let page = jobs.list("", None, 2).await.unwrap();
        assert_eq!(page.rows.len(), 2);
        let rest = jobs.list("", page.next, 10).await.unwrap();
        assert_eq!(rest.rows.len(), 4);
        let one: Vec<_> = jobs.list_all("a%").try_collect().await.unwrap();
        assert_eq!(one[0].name, name("a%2E3"));
        assert_eq!(one.len(), 1);
    }
}

#[tokio::test]
async fn a_lost_answer_does_not_change_who_created_the_job() {
    for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Duplicate] {
        for world in worlds().await {
            let a = world.process(1);
            for method in [Method::Get, Method::Commit] {
                a.plan.next(method, fault);
            }
            assert!(a.jobs.join("import", 0, 1).await.unwrap().created());
            assert_eq!(a.jobs.get("import").await.unwrap().unwrap().generation, 1);
        }
    }
}
