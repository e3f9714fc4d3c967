//! Two processes with the same partition: neither loses a write, and each keeps its order.

use futures::future::join_all;
use plimsoll_core::decorate::Method;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Merge, Write};
use plimsoll_core::{Key, StoreExt};

use crate::world::{at, code, in_memory, number, spawn, text, worlds};

#[tokio::test]
async fn versions_grow_by_one_whoever_writes() {
    for world in worlds().await {
        let a = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        let b = world.process(2).jobs.join("import", 0, 1).await.unwrap();
        let mut version = 0;
        for n in 0..20 {
            let writer = if n % 3 == 0 { &a } else { &b };
            version += 1;
            let written = writer.set_state(at("ingest", n)).await.unwrap();
            assert_eq!(written.version, version);
        }
    }
}

#[tokio::test]
async fn many_who_write_the_same_state_lose_nothing() {
    for world in worlds().await {
        let mut writing = Vec::new();
        for seed in 1..=4 {
            let manager = world.process(seed).jobs.join("import", 0, 1).await.unwrap();
            writing.push(spawn(async move {
                let mut versions = Vec::new();
                while versions.len() < 25 {
                    match manager.set_state(at("ingest", 1)).await {
                        Ok(written) => versions.push(written.version),
                        // Time that only tests move does not keep them apart.
                        Err(error) => assert_eq!(error.code(), "contended"),
                    }
                }
                versions
            }));
        }
        let written = world.time(join_all(writing)).await;
        let written: Vec<Vec<u64>> = written.into_iter().map(Result::unwrap).collect();
        assert!(written.iter().all(|versions| versions.is_sorted()));
        let mut all: Vec<u64> = written.into_iter().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, (1..=100).collect::<Vec<_>>());
    }
}

/// Of one call, the first write is refused because another process was faster. The second would fit what
/// that one has left, but it comes after the first.
#[tokio::test]
async fn a_refused_write_is_not_overtaken_by_those_behind_it() {
    for world in worlds().await {
        let process = world.process(1);
        let slow = process.jobs.join("import", 0, 1).await.unwrap();
        let fast = world.process(2).jobs.join("import", 0, 1).await.unwrap();
        slow.set_state(at("a", 1)).await.unwrap();
        process.spy.hold(Method::Commit);
        let calls = [at("a", 2), at("a", 3), at("b", 4), at("a", 5)];
        let calls = spawn(join_all(calls.map(|state| slow.set_state(state))));
        while process.spy.calls(Method::Commit) < 3 {
            tokio::task::yield_now().await;
        }
        fast.set_state(at("a", 100)).await.unwrap();
        process.spy.let_go();
        let answers = world.time(calls).await.unwrap();
        let versions = answers.into_iter().map(|answer| answer.unwrap().version);
        assert_eq!(versions.collect::<Vec<_>>(), [3, 4, 1, 5]);
        let [a, b] = ["a", "b"].map(|tag| world.state("import", 0, tag));
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        assert_eq!(number(&a, "status"), 5);
        assert!(a.revision > b.revision);
    }
}

/// Somebody else changes the version whenever this one looks.
#[tokio::test]
async fn a_write_that_is_always_overtaken_is_given_up() {
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 0, 1).await.unwrap();
    manager.set_state(at("a", 1)).await.unwrap();
    // What it knows of another tag is out of date.
    manager.set_state(at("b", 1)).await.unwrap();
    let other = world.process(2).jobs.join("import", 0, 1).await.unwrap();
    other.set_state(at("b", 2)).await.unwrap();
    process.spy.hold(Method::Commit);
    let write = spawn(manager.set_state(at("a", 2)));
    let others = [at("a", 3), at("b", 4), at("c", 5)].map(|state| spawn(manager.set_state(state)));
    let store = world.store.clone();
    let spoil = async {
        for n in 3.. {
            let seen = process.spy.calls(Method::Commit);
            let key = Key::new("plimsoll.states.import.0-a").unwrap();
            let set = fields([("version", n.to_string())]).unwrap();
            let merge = Merge::new(key).set(set);
            store.write(Write::Merge(merge)).await.unwrap();
            process.spy.let_go();
            process.spy.hold(Method::Commit);
            while process.spy.calls(Method::Commit) == seen {
                tokio::task::yield_now().await;
            }
        }
    };
    let answer = tokio::select! {
        answer = world.time(write) => answer.unwrap(),
        () = spoil => panic!("it never ends"),
    };
    assert_eq!(code(answer), "contended");
    process.spy.let_go();
    // Nobody is in the way of the other tags.
    let [a, b, c] = <[_; 3]>::try_from(world.time(join_all(others)).await).unwrap();
    assert_eq!(code(a.unwrap()), "contended");
    assert_eq!(
        (b.unwrap().unwrap().version, c.unwrap().unwrap().version),
        (3, 1)
    );
    manager.set_state(at("a", 4)).await.unwrap();
}

#[tokio::test]
async fn a_state_that_cannot_be_read_keeps_nothing_from_the_others() {
    for world in worlds().await {
        let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        manager.set_state(at("a", 1)).await.unwrap();
        let key = Key::new("plimsoll.states.import.0-a").unwrap();
        let merge = Merge::new(key.clone()).set(fields([("events", "x")]).unwrap());
        world.store.write(Write::Merge(merge)).await.unwrap();
        let other = world.process(2).jobs.join("import", 0, 1).await.unwrap();
        let calls = [at("a", 2), at("b", 3)].map(|state| other.set_state(state));
        let [a, b] = <[_; 2]>::try_from(join_all(calls).await).unwrap();
        assert_eq!(code(a), "corrupt");
        assert_eq!(b.unwrap().version, 1);
        // Somebody mends it.
        let merge = Merge::new(key).set(fields([("events", "[]")]).unwrap());
        world.store.write(Write::Merge(merge)).await.unwrap();
        assert_eq!(other.set_state(at("a", 2)).await.unwrap().version, 2);
    }
}

#[tokio::test]
async fn a_repeat_is_not_answered_as_long_as_it_is_not_known_whether_the_job_may_be_written() {
    for world in worlds().await {
        let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        let event = || at("a", 1).event_id("event").unwrap();
        manager.set_state(event()).await.unwrap();
        world.store.close().await.unwrap();
        assert_eq!(code(manager.set_state(event()).await), "closed");
        let both = join_all([event(), at("a", 2)].map(|state| manager.set_state(state)));
        for answer in both.await {
            assert_eq!(code(answer), "closed");
        }
    }
}

/// What is known of the second is not taken for the answer to the first.
#[tokio::test]
async fn a_refused_write_and_a_repeated_one_behind_it_have_their_own_answers() {
    for world in worlds().await {
        let process = world.process(1);
        let slow = process.jobs.join("import", 0, 1).await.unwrap();
        let fast = world.process(2).jobs.join("import", 0, 1).await.unwrap();
        let first = || at("a", 1).event_id("first").unwrap();
        slow.set_state(first()).await.unwrap();
        fast.set_state(at("a", 100)).await.unwrap();
        let calls = [at("a", 2), first()].map(|state| slow.set_state(state));
        let answers = join_all(calls).await.into_iter();
        let answers = answers.map(|answer| answer.unwrap());
        let answers = answers.map(|written| (written.version, written.repeated));
        assert_eq!(answers.collect::<Vec<_>>(), [(3, false), (1, true)]);
    }
}

/// Two processes that are the same partition, after a restart that left the old one running, repeat the same events.
#[tokio::test]
async fn what_follows_a_refused_write_waits_for_it_although_others_write_the_same_events() {
    for world in worlds().await {
        let slow = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        let fast = world.process(2).jobs.join("import", 0, 1).await.unwrap();
        let event = |tag, id| at(tag, 1).event_id(id).unwrap();
        slow.set_state(event("a", "known to both")).await.unwrap();
        fast.set_state(event("a", "in the way")).await.unwrap();
        fast.set_state(event("a", "second")).await.unwrap();
        let calls = [("a", "first"), ("a", "second"), ("b", "third")];
        let calls = calls.map(|(tag, id)| slow.set_state(event(tag, id)));
        let written = join_all(calls).await.into_iter().map(Result::unwrap);
        let written: Vec<_> = written.map(|it| (it.version, it.repeated)).collect();
        assert_eq!(written, [(4, false), (3, true), (1, false)]);
        let [a, b] = ["a", "b"].map(|tag| world.state("import", 0, tag));
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        assert_eq!(text(&a, "event_id").unwrap(), "first");
        assert!(a.revision < b.revision, "{a:?} {b:?}");
    }
}
