//! Taking and releasing, with and without a limit on waiting.

use std::time::Duration;

use plimsoll_core::decorate::{Fault, FaultPlan, Method};
use plimsoll_core::{Error, Result};

use crate::wire::Wire;
use crate::world::{TTL, World, code, seconds, spawn};

#[tokio::test]
async fn a_free_lock_costs_one_commit_to_take_and_one_to_release() -> Result<()> {
    let w = World::new();
    let p = w.process(1);
    let guard = p.locks.lock("a").acquire().await?;
    assert_eq!((p.spy.calls(Method::Commit), p.spy.all_calls()), (1, 1));
    guard.release().await?;
    assert_eq!((p.spy.calls(Method::Commit), p.spy.all_calls()), (2, 2));
    let guard = p.locks.lock("a").try_acquire().await?;
    assert_eq!((p.spy.calls(Method::Commit), p.spy.all_calls()), (3, 3));
    drop(guard);
    w.settle().await;
    assert_eq!(w.records().await, []);
    Ok(())
}

#[tokio::test]
async fn a_lock_that_is_taken_says_who_has_it_and_until_when() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("nightly").owner("ada").try_acquire().await?;
    for locks in [&a.locks, &b.locks] {
        let refused = locks.lock("nightly").try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), "conflict");
        assert_eq!(
            refused.to_string(),
            "lock nightly is held by ada until 2030-01-01T00:00:30Z"
        );
    }
    // Who does not say is called by its host and process.
    let nameless = a.locks.lock("b").try_acquire().await?;
    let owner = b.locks.get("b").await?.unwrap().owner;
    assert!(
        owner.ends_with(&format!(" ({})", std::process::id())),
        "{owner}"
    );
    nameless.release().await?;
    // One who was only refused has nothing to clean up.
    w.settle().await;
    assert_eq!(b.spy.calls(Method::Commit), 1);
    guard.release().await?;
    b.locks.lock("nightly").try_acquire().await?.release().await
}

#[tokio::test]
async fn bad_input_names_the_field_and_the_limit_and_writes_nothing() -> Result<()> {
    let w = World::new();
    let p = w.process(1);
    let lock = |name: &str| p.locks.lock(name);
    let long = "x".repeat(65_537);
    for (lock, problem) in [
        (lock(""), "lock: must not be empty"),
        (
            lock(&"x".repeat(129)),
            "lock: 129 bytes, at most 128 are allowed",
        ),
        (lock("a\0"), "lock: contains a NUL character"),
        (
            lock("a").ttl(Duration::ZERO),
            "ttl: 0ns is not between 1s and 604800s",
        ),
        (
            lock("a").ttl(Duration::from_millis(999)),
            "ttl: 999ms is not between 1s and 604800s",
        ),
        (
            lock("a").ttl(Duration::from_secs(604_801)),
            "ttl: 604801s is not between 1s and 604800s",
        ),
        (
            lock("a").owner(long.clone()),
            "owner: 65537 bytes, at most 65536 are allowed",
        ),
        (
            lock("a").metadata(long.clone()),
            "metadata: 65537 bytes, at most 65536 are allowed",
        ),
    ] {
        let text = format!("invalid input: {problem}");
        assert_eq!(lock.try_acquire().await.unwrap_err().to_string(), text);
        assert_eq!(lock.acquire().await.unwrap_err().to_string(), text);
        let limited = lock.acquire_within(TTL).await;
        assert_eq!(limited.unwrap_err().to_string(), text);
    }
    assert_eq!(code(p.locks.get("").await), "invalid");
    assert_eq!(code(p.locks.break_lock("").await), "invalid");
    assert_eq!(p.spy.all_calls(), 0);
    Ok(())
}

#[tokio::test]
async fn names_are_text_and_one_is_never_taken_for_another() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let names = [
        "a",
        "a.",
        "a.b",
        "1.a",
        "a%",
        "a*",
        "'; drop table",
        "é",
        "A",
    ];
    let mut held = Vec::new();
    for name in names {
        held.push(a.locks.lock(name).try_acquire().await?);
    }
    let waiting = names.map(|name| b.waits(name, name));
    w.settle().await;
    // Each is handed to the one who waits for it.
    for (guard, waiting) in held.into_iter().zip(waiting).rev() {
        let name = guard.name().to_owned();
        guard.release().await?;
        assert_eq!(w.soon(waiting).await?.name(), name);
    }
    Ok(())
}

#[tokio::test]
async fn waiting_ends_when_its_time_is_over_and_leaves_nothing_behind() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").owner("ada").acquire().await?;
    let (lock, others) = (b.locks.lock("a"), a.locks.clone());
    let late = spawn(async move {
        let answer = lock.acquire_within(seconds(5.0)).await;
        // When it is answered, the place in the line is given up.
        (answer, others.get("a").await.unwrap().unwrap().waiting)
    });
    let (took, (answer, waiting)) = w.time(late).await;
    assert_eq!(took, seconds(5.0));
    assert_eq!((code(answer), waiting), ("lock_not_acquired", 0));
    guard.release().await?;
    assert!(a.locks.get("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn waiting_with_a_limit_ends_when_the_lock_is_free() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let lock = a.locks.lock("a");
    let guard = lock.acquire_within(Duration::ZERO).await?;
    let lock = b.locks.lock("a");
    let waiting = spawn(async move { lock.acquire_within(seconds(5.0)).await });
    w.pass(seconds(4.0)).await;
    assert!(!waiting.is_finished());
    guard.release().await?;
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

/// The store hangs at once, or after it was seen who has the lock; or it is away.
#[tokio::test]
async fn waiting_ends_in_time_also_when_the_store_does_not_answer() -> Result<()> {
    for seen in [false, true] {
        for hangs in [false, true] {
            let (w, wire) = (World::new(), Wire::default());
            let (a, b) = (w.process(1), w.process_over(2, FaultPlan::none(), &wire));
            let _guard = a.locks.lock("a").owner("ada").acquire().await?;
            let lock = b.locks.lock("a");
            let late = spawn(async move { lock.acquire_within(seconds(5.0)).await });
            if seen {
                w.pass(seconds(1.0)).await;
            }
            match hangs {
                true => wire.hang(),
                false => b.cut_off(),
            }
            let (took, answer) = w.time(late).await;
            assert!(took <= seconds(7.0), "{seen} {hangs}: {took:?}");
            let told = if seen {
                "lock_not_acquired"
            } else {
                "unavailable"
            };
            assert_eq!(code(answer), told, "{hangs}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn who_took_a_lock_without_hearing_of_it_is_not_told_that_another_has_it() -> Result<()> {
    let w = World::new();
    let a = w.process(1);
    a.plan.next(Method::Commit, Fault::ErrorAfter);
    for _ in 0..1_000 {
        a.plan.next(Method::Commit, Fault::ErrorBefore);
    }
    let lock = a.locks.lock("a");
    let late = spawn(async move { lock.acquire_within(seconds(5.0)).await });
    let (_, answer) = w.time(late).await;
    assert_eq!(code(answer), "unavailable");
    Ok(())
}

#[tokio::test]
async fn a_closed_store_ends_every_wait() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let _guard = a.locks.lock("a").acquire().await?;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    b.engine.store().close().await?;
    let (took, answer) = w.time(waiting).await;
    assert!(took <= seconds(15.0), "{took:?}");
    assert_eq!(answer.unwrap_err(), Error::Closed);
    assert_eq!(code(b.locks.lock("b").try_acquire().await), "closed");
    Ok(())
}

#[tokio::test]
async fn whoever_waits_for_ever_waits_while_the_store_is_away() -> Result<()> {
    let w = World::new();
    let p = w.process(1);
    p.cut_off();
    let waiting = p.waits("a", "ada");
    w.pass(seconds(60.0)).await;
    assert!(!waiting.is_finished());
    assert_eq!(code(p.locks.lock("a").try_acquire().await), "unavailable");
    p.plan.calm();
    let (took, guard) = w.time(waiting).await;
    assert!(took <= seconds(1.0));
    assert!(guard?.is_held());
    Ok(())
}
