//! Futures and guards that are dropped, wherever they are.

use plimsoll_core::Result;
use plimsoll_core::decorate::Method;

use crate::world::{World, seconds, spawn};

#[tokio::test]
async fn a_guard_that_is_dropped_releases_and_hands_over() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    let (tenure, waiting) = (guard.tenure(), b.waits("a", "bob"));
    w.settle().await;
    drop(guard);
    assert!(!tenure.is_held(), "at once");
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

#[tokio::test]
async fn one_who_stops_waiting_is_out_of_the_line() -> Result<()> {
    let w = World::new();
    let [a, b, c] = [1, 2, 3].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").acquire().await?;
    let gone = b.waits("a", "bob");
    w.settle().await;
    let waiting = c.waits("a", "cy");
    w.settle().await;
    assert_eq!(a.locks.get("a").await?.unwrap().waiting, 2);
    gone.abort();
    w.settle().await;
    assert_eq!(a.locks.get("a").await?.unwrap().waiting, 1);
    guard.release().await?;
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

#[tokio::test]
async fn one_who_stops_waiting_when_its_turn_has_come_passes_it_on() -> Result<()> {
    let w = World::new();
    let [a, b, c] = [1, 2, 3].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").acquire().await?;
    let gone = b.waits("a", "bob");
    w.settle().await;
    let waiting = c.waits("a", "cy");
    w.settle().await;
    guard.release().await?;
    assert_eq!(a.locks.get("a").await?.unwrap().owner, "bob");
    gone.abort();
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

#[tokio::test]
async fn one_who_goes_away_in_its_process_lets_the_next_there_be_first() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    let gone = [b.waits("a", "1"), b.waits("a", "2")];
    let waiting = b.waits("a", "3");
    w.settle().await;
    gone.iter().for_each(tokio::task::JoinHandle::abort);
    w.settle().await;
    assert_eq!(a.locks.get("a").await?.unwrap().waiting, 1);
    guard.release().await?;
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

/// Dropped after each of the commits that taking or waiting makes, while its answer is under way.
#[tokio::test]
async fn whoever_is_dropped_before_the_answer_leaves_nothing_behind() -> Result<()> {
    for commits in 1..=4 {
        let w = World::new();
        let (a, b) = (w.process(1), w.process(2));
        // The first commit takes a free lock, or is refused; then come ticket, place, and the lock.
        let guard = match commits {
            1 => None,
            _ => Some(a.locks.lock("a").acquire().await?),
        };
        b.spy.hold_answers();
        let gone = b.waits("a", "bob");
        w.settle().await;
        let mut guard = guard;
        for _ in 1..commits {
            b.spy.answer_again();
            if b.spy.calls(Method::Commit) == 3
                && let Some(guard) = guard.take()
            {
                guard.release().await?;
            }
            b.spy.hold_answers();
            w.settle().await;
        }
        assert_eq!(b.spy.calls(Method::Commit), commits);
        gone.abort();
        w.settle().await;
        b.spy.answer_again();
        w.settle().await;
        drop(guard);
        w.settle().await;
        let left = w.records().await;
        let line =
            |record: &plimsoll_core::record::Record| record.key.as_str() == "plimsoll.lock-lines.a";
        assert!(left.iter().all(line), "after {commits}: {left:?}");
        a.locks.lock("a").try_acquire().await?.release().await?;
        w.pass(seconds(30.0)).await;
        assert_eq!(w.records().await, []);
    }
    Ok(())
}

#[tokio::test]
async fn a_release_that_is_dropped_halfway_is_finished_in_the_background() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    a.spy.hold_answers();
    let releasing = spawn(guard.release());
    w.settle().await;
    releasing.abort();
    a.spy.answer_again();
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

/// Holder and first in line are gone. Who comes then is not served before those who wait.
#[tokio::test]
async fn when_a_holder_dies_the_first_in_line_comes_before_a_newcomer() -> Result<()> {
    let w = World::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").ttl(seconds(10.0)).acquire().await?;
    let first = b.waits("a", "bob");
    w.settle().await;
    let second = c.waits("a", "cy");
    w.settle().await;
    a.cut_off();
    drop(guard);
    // Before anybody else had a moment to run.
    w.clock.advance(seconds(10.0));
    let refused = d.locks.lock("a").try_acquire().await.unwrap_err();
    assert!(refused.to_string().starts_with("lock a is held by bob"));
    assert!(d.locks.get("a").await?.unwrap().reserved);
    let newcomer = d.waits("a", "dee");
    let guard = w.soon(first).await?;
    assert!(!second.is_finished() && !newcomer.is_finished());
    guard.release().await?;
    w.soon(second).await?.release().await?;
    assert!(w.soon(newcomer).await?.is_held());
    Ok(())
}

#[tokio::test]
async fn a_line_in_which_all_have_died_is_passed_in_two_seconds_each() -> Result<()> {
    let w = World::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").ttl(seconds(10.0)).acquire().await?;
    let _dead = b.waits("a", "bob");
    w.settle().await;
    let _dead = c.waits("a", "cy");
    w.settle().await;
    [&a, &b, &c].iter().for_each(|dead| dead.cut_off());
    drop(guard);
    w.pass(seconds(10.0)).await;
    let (took, guard) = w.time(d.waits("a", "dee")).await;
    assert_eq!(took, seconds(4.0));
    assert!(guard?.is_held());
    Ok(())
}

#[tokio::test]
async fn a_holder_that_dies_is_waited_for_as_long_as_its_lock_lives() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").ttl(seconds(10.0)).acquire().await?;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    a.cut_off();
    drop(guard);
    let (took, guard) = w.time(waiting).await;
    assert!(took >= seconds(10.0) && took <= seconds(11.0), "{took:?}");
    assert!(guard?.is_held());
    Ok(())
}
