//! Renewing, and being told when that was in vain.

use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::{Commit, Put, Write};
use plimsoll_core::{Key, Result, StoreExt};
use plimsoll_engine::locks::LockGuard;

use crate::world::{TTL, World, code, seconds, spawn};

#[tokio::test]
async fn a_lock_is_held_for_as_long_as_its_holder_lives_and_the_history_stays_quiet() -> Result<()>
{
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    let before = w.entries().await;
    for _ in 0..40 {
        w.pass(seconds(10.0)).await;
        assert!(guard.is_held());
        assert_eq!(
            code(b.locks.lock("a").try_acquire().await),
            "lock_not_acquired"
        );
    }
    // At half the time to live each, and the first of them tells the token.
    assert_eq!(a.spy.calls(Method::Commit), 1 + 26);
    assert_eq!(w.entries().await, before + 1);
    guard.release().await
}

#[tokio::test]
async fn a_holder_that_was_paused_knows_at_once_and_cannot_harm_the_next() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let stale = a.locks.lock("a").acquire().await?;
    // Nothing of it runs: the clock alone tells.
    w.clock.advance(seconds(27.0) - seconds(0.001));
    assert!(stale.is_held());
    w.clock.advance(seconds(0.001));
    assert!(!stale.is_held());
    w.clock.advance(seconds(3.0));
    let next = b.locks.lock("a").owner("bob").try_acquire().await?;
    assert!(next.token() > stale.token());
    let lost = spawn(stale.tenure().lost());
    w.soon(lost).await;
    let late = stale.release().await;
    assert_eq!(
        late.unwrap_err().to_string(),
        "lock a is not held, or no longer"
    );
    let state = b.locks.get("a").await?.unwrap();
    assert_eq!((state.owner.as_str(), state.token), ("bob", next.token()));
    w.pass(TTL).await;
    assert!(next.is_held());
    next.release().await
}

#[tokio::test]
async fn a_renewal_by_a_stale_holder_changes_nothing_and_tells_it() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let stale = a.locks.lock("a").acquire().await?;
    b.locks.break_lock("a").await?.unwrap();
    let next = b.locks.lock("a").ttl(seconds(100.0)).try_acquire().await?;
    let before = w.records().await;
    let lost = spawn(stale.tenure().lost());
    let (took, ()) = w.time(lost).await;
    // At its next renewal, which is at half its time to live.
    assert_eq!(took, seconds(15.0));
    assert!(!stale.is_held());
    assert_eq!(w.records().await, before);
    assert!(next.is_held());
    Ok(())
}

/// A lock that was taken from its holder, and is reserved for it: a place in the line that it had
/// before it got the lock is written late.
async fn reserved_for_its_last_holder(w: &World) -> Result<LockGuard> {
    let (a, b) = (w.process(1), w.process(2));
    let stale = a.locks.lock("a").ttl(seconds(3.0)).acquire().await?;
    let lock = w.records().await.remove(0);
    let holder = String::from_utf8_lossy(lock.field("holder").unwrap()).into_owned();
    let place = Key::new(format!("plimsoll.lock-waiters.1.a.{:020}.{holder}", 1))?;
    let put = Put::new(place, lock.fields).ttl(TTL);
    w.store().commit_one(Commit::of(Write::Put(put))).await?;
    assert!(b.locks.break_lock("a").await?.is_some());
    assert!(b.locks.get("a").await?.unwrap().reserved);
    Ok(stale)
}

#[tokio::test]
async fn a_renewal_does_not_prolong_what_is_only_reserved() -> Result<()> {
    let w = World::new();
    let stale = reserved_for_its_last_holder(&w).await?;
    w.pass(seconds(2.5)).await;
    assert!(!stale.is_held());
    let b = w.process(2);
    b.locks.lock("a").try_acquire().await?.release().await
}

#[tokio::test]
async fn a_release_does_not_give_up_what_is_only_reserved() -> Result<()> {
    let w = World::new();
    let stale = reserved_for_its_last_holder(&w).await?;
    let before = w.records().await;
    assert_eq!(code(stale.release().await), "lock_not_held");
    assert_eq!(w.records().await, before);
    Ok(())
}

#[tokio::test]
async fn a_holder_without_a_store_is_told_before_its_lock_ends() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    a.cut_off();
    let waiting = b.waits("a", "bob");
    let lost = spawn(guard.tenure().lost());
    let (told, ()) = w.time(lost).await;
    assert_eq!(told, seconds(27.0));
    assert!(!guard.is_held());
    assert!(!waiting.is_finished(), "it ends only now");
    let (took, next) = w.time(waiting).await;
    assert!(took >= seconds(3.0) && took <= seconds(4.0), "{took:?}");
    assert!(next?.token() > guard.token());
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_away_for_a_while_costs_no_lock() -> Result<()> {
    let w = World::new();
    let a = w.process(1);
    let guard = a.locks.lock("a").acquire().await?;
    for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Duplicate] {
        for _ in 0..5 {
            a.plan.next(Method::Commit, fault);
        }
        w.pass(seconds(90.0)).await;
        assert!(guard.is_held(), "{fault:?}");
    }
    assert_eq!(a.plan.injected()[&Method::Commit], 15);
    guard.release().await
}

#[tokio::test]
async fn a_renewal_that_is_never_answered_is_tried_again_and_then_given_up() -> Result<()> {
    let w = World::new();
    let a = w.process(1);
    let guard = a.locks.lock("a").acquire().await?;
    a.spy.hold_answers();
    w.pass(seconds(20.0)).await;
    a.spy.answer_again();
    w.pass(seconds(20.0)).await;
    assert!(guard.is_held());
    a.spy.hold_answers();
    let lost = spawn(guard.tenure().lost());
    let (took, ()) = w.time(lost).await;
    assert!(took <= seconds(27.0) && took > seconds(10.0), "{took:?}");
    assert!(!guard.is_held());
    Ok(())
}

#[tokio::test]
async fn the_time_of_a_lock_counts_from_when_the_call_was_sent() -> Result<()> {
    let w = World::new();
    let a = w.process(1);
    // Taken at 0 s, answered at 20 s.
    a.spy.hold_answers();
    let taking = a.waits("a", "ada");
    w.pass(seconds(20.0)).await;
    a.cut_off();
    a.spy.answer_again();
    let guard = w.soon(taking).await?;
    let (told, ()) = w.time(spawn(guard.tenure().lost())).await;
    assert_eq!(told, seconds(7.0));
    // Renewed at 15 s, answered at 18 s.
    a.plan.calm();
    drop(guard);
    w.settle().await;
    let guard = a.locks.lock("a").acquire().await?;
    a.spy.hold_answers();
    w.pass(seconds(18.0)).await;
    a.spy.answer_again();
    w.settle().await;
    a.cut_off();
    let (told, ()) = w.time(spawn(guard.tenure().lost())).await;
    assert_eq!(told, seconds(15.0 + 27.0 - 18.0));
    Ok(())
}

#[tokio::test]
async fn wall_clocks_that_jump_do_not_fool_a_holder() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    // Back: the store would keep the lock for another hour. The holder is as careful as ever.
    w.clock
        .jump_to(w.clock.now().saturating_minus(seconds(3_600.0)));
    w.clock.advance(seconds(27.0));
    assert!(!guard.is_held());
    w.settle().await;
    drop(guard);
    w.settle().await;
    // Ahead: the store ends the lock at once. Its holder is told at the next renewal, and the
    // token keeps it out meanwhile.
    let guard = a.locks.lock("a").acquire().await?;
    w.clock
        .jump_to(w.clock.now().saturating_plus(seconds(3_600.0)));
    let next = b.locks.lock("a").try_acquire().await?;
    assert!(next.token() > guard.token());
    let (took, ()) = w.time(spawn(guard.tenure().lost())).await;
    assert_eq!(took, seconds(15.0));
    Ok(())
}

#[tokio::test]
async fn work_under_a_lock_is_stopped_when_the_lock_is_lost() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let (locks, clock) = (a.locks.clone(), w.clock.clone());
    let (begin, begun) = tokio::sync::oneshot::channel();
    let work = spawn(async move {
        let with = locks.with("a", async move |tenure| {
            begin.send(tenure).ok();
            clock.sleep(seconds(3_600.0)).await;
        });
        with.await
    });
    let tenure = begun.await.unwrap();
    w.pass(seconds(100.0)).await;
    assert!(tenure.is_held());
    b.locks.break_lock("a").await?;
    let (took, answer) = w.time(work).await;
    assert!(took <= seconds(15.0), "{took:?}");
    assert_eq!(code(answer), "lock_not_held");
    Ok(())
}

/// The process is frozen in the middle of the work, and nobody can be asked afterwards.
#[tokio::test]
async fn work_that_ends_when_the_lock_was_lost_says_so_although_nobody_answers() -> Result<()> {
    let w = World::new();
    let a = w.process(1);
    for (frozen, answer) in [(20.0, Ok(())), (60.0, Err("lock_not_held"))] {
        let with = a.locks.with("a", async |_| {
            w.clock.advance(seconds(frozen));
            a.cut_off();
        });
        let answered = with.await.map_err(|error| error.code());
        assert_eq!(answered, answer, "after {frozen} s");
        a.plan.calm();
        w.pass(seconds(60.0)).await;
    }
    // The store is asked if it can be: when the lock was late to be renewed, but still there.
    let with = a.locks.with("a", async |_| w.clock.advance(seconds(28.0)));
    with.await
}

#[tokio::test]
async fn work_under_a_guard_is_stopped_when_the_lock_is_lost() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").try_acquire().await?;
    let clock = w.clock.clone();
    let work = spawn(guard.run(async move { clock.sleep(seconds(3_600.0)).await }));
    b.locks.break_lock("a").await?.unwrap();
    let (took, answer) = w.time(work).await;
    assert_eq!(took, seconds(15.0));
    assert_eq!(code(answer), "lock_not_held");
    Ok(())
}

/// The runtime that renews is gone; whoever works on another is told by the clock.
#[test]
fn a_lock_that_nobody_renews_any_more_is_lost() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let w = World::new();
    let a = w.process(1);
    let gone = runtime();
    let guard = gone.block_on(a.locks.lock("a").acquire()).unwrap();
    drop(gone);
    let (took, ()) = runtime().block_on(async {
        let lost = spawn(guard.tenure().lost());
        w.time(lost).await
    });
    assert_eq!(took, seconds(27.0));
}

#[tokio::test]
async fn work_under_a_lock_answers_and_releases() -> Result<()> {
    let w = World::new();
    let a = w.process(1);
    let seen = a.locks.with("a", async |tenure| {
        let state = a.locks.get("a").await.unwrap().unwrap();
        (tenure.token(), state.token, tenure)
    });
    let (token, stored, tenure) = seen.await?;
    assert_eq!(token, stored);
    assert!(!tenure.is_held(), "it was released");
    w.soon(spawn(tenure.lost())).await;
    assert_eq!(w.records().await, []);
    // Lost without a word while the work ran: the answer says so.
    let b = w.process(2);
    let broken = a
        .locks
        .with("a", async |_| b.locks.break_lock("a").await.unwrap());
    assert_eq!(code(broken.await), "lock_not_held");
    Ok(())
}
