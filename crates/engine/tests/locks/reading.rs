//! Looking at locks, and a store of their own for them.

use futures::TryStreamExt;
use plimsoll_core::Result;
use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::Method;
use plimsoll_engine::locks::LockState;

use crate::world::{TTL, World, seconds, spawn};

#[tokio::test]
async fn a_lock_shows_who_has_it_since_when_until_when_and_who_waits() -> Result<()> {
    let w = World::new();
    let [a, b, c] = [1, 2, 3].map(|seed| w.process(seed));
    let lock = a.locks.lock("job.7").owner("ada").metadata("why");
    let guard = lock.acquire().await?;
    let since = w.clock.now();
    let _waiting = [b.waits("job.7", "bob"), c.waits("job.7", "cy")];
    w.pass(seconds(20.0)).await;
    let expected = LockState {
        name: "job.7".try_into()?,
        owner: "ada".into(),
        metadata: Some("why".into()),
        token: guard.token(),
        since,
        until: since.plus("ttl", TTL / 2 + TTL)?,
        reserved: false,
        waiting: 2,
    };
    assert_eq!(b.locks.get("job.7").await?, Some(expected));
    assert_eq!(b.locks.get("job").await?, None);
    Ok(())
}

#[tokio::test]
async fn locks_are_listed_in_the_order_of_their_names_and_in_pages() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let mut held = Vec::new();
    for n in 0..450 {
        held.push(a.locks.lock(format!("job.{n:03}")).acquire().await?);
    }
    held.push(a.locks.lock("other").acquire().await?);
    let _waiting = b.waits("job.007", "bob");
    w.settle().await;
    let all: Vec<LockState> = b.locks.list_all().try_collect().await?;
    assert_eq!(all.len(), 451);
    assert!(all.is_sorted_by(|a, b| a.name < b.name));
    let waited: Vec<_> = all.iter().filter(|lock| lock.waiting > 0).collect();
    assert_eq!((waited.len(), waited[0].name.as_str()), (1, "job.007"));
    let page = b.locks.list("job.", None, 400).await?;
    assert_eq!((page.rows.len(), page.next.is_some()), (400, true));
    let page = b.locks.list("job.", page.next, 400).await?;
    assert_eq!((page.rows.len(), page.next.is_some()), (50, false));
    assert_eq!(b.locks.list("none", None, 400).await?.rows, []);
    Ok(())
}

#[tokio::test]
async fn breaking_what_nobody_has_answers_so() -> Result<()> {
    let w = World::new();
    let a = w.process(1);
    assert_eq!(a.locks.break_lock("a").await?, None);
    let guard = a.locks.lock("a").acquire().await?;
    assert_eq!(a.locks.break_lock("a").await?.unwrap().token, guard.token());
    assert_eq!(a.locks.break_lock("a").await?, None);
    Ok(())
}

#[tokio::test]
async fn a_lock_that_passed_to_another_is_not_broken() -> Result<()> {
    let w = World::new();
    let [a, b, c] = [1, 2, 3].map(|seed| w.process(seed));
    let stuck = a.locks.lock("a").owner("ada").acquire().await?;
    // It sees who has the lock, and then looks for who waits.
    b.spy.hold_calls(Method::Scan);
    let breaking = spawn({
        let locks = b.locks.clone();
        async move { locks.break_lock("a").await }
    });
    w.settle().await;
    stuck.release().await?;
    let guard = c.locks.lock("a").owner("cy").acquire().await?;
    b.spy.let_go();
    let refused = w.soon(breaking).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("lock a is held by cy"),
        "{refused}"
    );
    guard.release().await
}

#[tokio::test]
async fn locks_may_live_on_a_store_of_their_own() -> Result<()> {
    let (w, other) = (World::new(), World::new());
    let a = w.process(1);
    let engine = a.engine.clone().locks_on(other.store());
    let guard = engine.locks().lock("a").acquire().await?;
    assert_eq!(w.records().await, []);
    assert_eq!(other.records().await.len(), 1);
    // Those who did not agree on it do not exclude each other; those who did, do.
    assert!(a.locks.lock("a").try_acquire().await.is_ok());
    let agreed = w.process(2).engine.locks_on(other.store()).locks();
    assert!(agreed.lock("a").try_acquire().await.is_err());
    guard.release().await?;
    // Tasks stay where they were.
    let tasks = engine.tasks();
    let before = a.spy.calls(Method::Commit);
    tasks.submit(tasks.task("q", "k", "work")?).await?;
    assert_eq!(a.spy.calls(Method::Commit), before + 1);
    Ok(())
}
