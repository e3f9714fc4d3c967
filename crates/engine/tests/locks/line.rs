//! Those who wait: woken, served in order, and none for ever.

use plimsoll_core::change::Interest;
use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::{FaultPlan, Method};
use plimsoll_core::store::Write;
use plimsoll_core::{Result, StoreExt};

use crate::wire::Wire;
use crate::world::{World, code, seconds, spawn};

#[tokio::test]
async fn one_who_waits_is_woken_by_a_release_without_any_time_passing() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    assert_eq!(a.locks.get("a").await?.unwrap().waiting, 1);
    guard.release().await?;
    let guard = w.soon(waiting).await?;
    let state = a.locks.get("a").await?.unwrap();
    assert_eq!((state.owner.as_str(), state.waiting), ("bob", 0));
    // And by one that is broken.
    let waiting = a.waits("a", "ada");
    w.settle().await;
    assert_eq!(b.locks.break_lock("a").await?.unwrap().token, guard.token());
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

#[tokio::test]
async fn who_comes_first_is_served_first_whatever_its_clock_and_its_ids_say() -> Result<()> {
    let w = World::new();
    // Descending seeds, and clocks that go back: neither ids nor times tell the order.
    let processes = [9, 8, 7, 6, 5].map(|seed| w.process(seed));
    let mut guard = processes[0].locks.lock("a").acquire().await?;
    let mut waiting = Vec::new();
    for process in &processes[1..] {
        waiting.push(process.waits("a", "next"));
        w.settle().await;
        let earlier = w.clock.now().saturating_minus(seconds(0.5));
        w.clock.jump_to(earlier);
    }
    for next in waiting {
        guard.release().await?;
        guard = w.soon(next).await?;
    }
    Ok(())
}

#[tokio::test]
async fn one_who_releases_and_takes_again_does_not_get_ahead() -> Result<()> {
    let w = World::new();
    let (greedy, patient) = (w.process(1), w.process(2));
    for _ in 0..10 {
        let guard = greedy.locks.lock("a").acquire().await?;
        let waiting = patient.waits("a", "patient");
        w.settle().await;
        guard.release().await?;
        // At once, before the other has had a moment to run.
        assert_eq!(
            code(greedy.locks.lock("a").try_acquire().await),
            "lock_not_acquired"
        );
        let again = greedy.waits("a", "greedy");
        let guard = w.soon(waiting).await?;
        assert!(!again.is_finished());
        guard.release().await?;
        w.soon(again).await?.release().await?;
        // What is left of the line is gone before the next round.
        w.pass(seconds(31.0)).await;
        assert_eq!(w.records().await, []);
    }
    Ok(())
}

#[tokio::test]
async fn a_dead_first_in_line_costs_two_seconds() -> Result<()> {
    let w = World::new();
    let [a, dead, b] = [1, 2, 3].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").acquire().await?;
    let _dies = dead.waits("a", "dead");
    w.settle().await;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    dead.cut_off();
    guard.release().await?;
    w.settle().await;
    let state = a.locks.get("a").await?.unwrap();
    assert!(state.reserved);
    assert_eq!(state.owner, "dead");
    let refused = a.locks.lock("a").try_acquire().await;
    assert_eq!(code(refused), "lock_not_acquired");
    let (took, guard) = w.time(waiting).await;
    // As long as it is reserved, and until the next look.
    assert!(took >= seconds(2.0) && took <= seconds(3.0), "{took:?}");
    assert!(guard?.is_held());
    Ok(())
}

#[tokio::test]
async fn one_that_missed_its_turn_stands_in_line_again() -> Result<()> {
    let w = World::new();
    let [a, slow, b] = [1, 2, 3].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").acquire().await?;
    let missed = slow.waits("a", "slow");
    w.settle().await;
    slow.cut_off();
    guard.release().await?;
    w.pass(seconds(2.5)).await;
    let guard = b.locks.lock("a").acquire().await?;
    slow.plan.calm();
    w.pass(seconds(1.5)).await;
    assert!(!missed.is_finished());
    assert_eq!(a.locks.get("a").await?.unwrap().waiting, 1);
    guard.release().await?;
    assert!(w.soon(missed).await?.is_held());
    Ok(())
}

#[tokio::test]
async fn one_who_waits_for_long_keeps_its_place() -> Result<()> {
    let w = World::new();
    let [a, b, c] = [1, 2, 3].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").acquire().await?;
    let first = b.waits("a", "bob");
    w.pass(seconds(20.0)).await;
    let second = c.waits("a", "cy");
    // When the first has been waiting for longer than its place lives by itself, and the second
    // has not; and much later.
    w.pass(seconds(25.0)).await;
    // After the record of the line comes the first who stands there.
    assert_eq!(w.records().await[1].fields["owner"], "bob");
    w.pass(seconds(300.0)).await;
    assert_eq!(a.locks.get("a").await?.unwrap().waiting, 2);
    guard.release().await?;
    let guard = w.soon(first).await?;
    assert!(!second.is_finished());
    guard.release().await?;
    assert!(w.soon(second).await?.is_held());
    Ok(())
}

/// As after a pause of this process alone: its place is gone, or the record of the line, while the
/// lock is held.
#[tokio::test]
async fn one_whose_place_was_forgotten_stands_in_line_again() -> Result<()> {
    for forgotten in [&[1][..], &[0], &[0, 1]] {
        stands_in_line_again(forgotten).await?;
    }
    Ok(())
}

async fn stands_in_line_again(forgotten: &[usize]) -> Result<()> {
    let w = World::new();
    let [a, b] = [1, 2].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").acquire().await?;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    let before = w.records().await;
    assert_eq!(before[1].fields["owner"], "bob");
    for n in forgotten {
        let key = before[*n].key.clone();
        w.store().write(Write::Delete(key)).await?;
    }
    w.pass(seconds(15.0)).await;
    let after = w.records().await;
    assert_eq!((after.len(), &after[0].key), (3, &before[0].key));
    assert!(after[1].key > before[1].key, "a later ticket");
    guard.release().await?;
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

#[tokio::test]
async fn without_any_hint_a_look_each_second_is_enough() -> Result<()> {
    let w = World::new();
    let quiet = w.process_over(2, FaultPlan::none(), &Wire::quiet());
    let (a, b) = (w.process(1), quiet);
    let guard = a.locks.lock("a").acquire().await?;
    let waiting = b.waits("a", "bob");
    w.pass(seconds(0.5)).await;
    guard.release().await?;
    w.settle().await;
    assert!(!waiting.is_finished(), "nobody told it");
    let (took, guard) = w.time(waiting).await;
    assert_eq!(took, seconds(0.5));
    assert!(guard?.is_held());
    Ok(())
}

#[tokio::test]
async fn many_who_wait_in_one_process_ask_the_store_as_one() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    let crowd: Vec<_> = (0..50).map(|_| b.waits("a", "crowd")).collect();
    w.settle().await;
    assert_eq!(a.locks.get("a").await?.unwrap().waiting, 1);
    let before = b.spy.all_calls();
    w.pass(seconds(10.0)).await;
    assert_eq!(b.spy.all_calls() - before, 0, "nothing happens");
    let before = b.spy.calls(Method::Commit);
    guard.release().await?;
    for waiting in crowd {
        w.soon(waiting).await?.release().await?;
    }
    // To take, to stand in line with two, to hand over with two at most.
    let commits = b.spy.calls(Method::Commit) - before;
    assert!(commits <= 50 * 5, "{commits} commits for 50");
    Ok(())
}

/// Candidates of an election, each a process of its own, while one leads.
#[tokio::test]
async fn a_hundred_who_wait_ask_the_store_three_times_in_fifteen_seconds_each() -> Result<()> {
    let w = World::new();
    let leader = w.process(1_000);
    let guard = leader.locks.lock("a").acquire().await?;
    let crowd: Vec<_> = (0..100).map(|seed| w.process(seed)).collect();
    let _waiting: Vec<_> = crowd.iter().map(|one| one.waits("a", "one")).collect();
    w.settle().await;
    let calls = || crowd.iter().map(|one| one.spy.all_calls()).sum::<u64>();
    let before = calls();
    w.pass(seconds(150.0)).await;
    // To look, to keep the place, and to look at the history.
    let asked = calls() - before;
    assert!((2_000..=3_000).contains(&asked), "{asked} calls");
    assert!(guard.is_held());
    Ok(())
}

#[tokio::test]
async fn few_locks_are_asked_for_by_name_and_many_are_not() -> Result<()> {
    let (w, wire) = (World::new(), Wire::default());
    let (a, b) = (w.process(1), w.process_over(2, FaultPlan::none(), &wire));
    let asked = || {
        let interests = wire.interests().pop().unwrap().into_iter();
        let prefixes = interests.map(|interest| match interest {
            Interest::Records(prefix) => prefix.as_str().to_owned(),
            other => panic!("{other:?}"),
        });
        prefixes.collect::<Vec<_>>()
    };
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for n in 0..17 {
        held.push(a.locks.lock(format!("job.{n:02}")).acquire().await?);
        waiting.push(b.waits(&format!("job.{n:02}"), "bob"));
        w.settle().await;
        a.locks.with("other", async |_| {}).await?;
        w.settle().await;
        match n {
            0..16 => assert_eq!(asked().len(), n + 1),
            _ => assert_eq!(asked(), ["plimsoll.locks."]),
        }
    }
    for (guard, waiting) in held.into_iter().zip(waiting) {
        guard.release().await?;
        w.soon(waiting).await?.release().await?;
    }
    Ok(())
}

/// The history was asked for other locks when it came, and does not show what became of this one.
#[tokio::test]
async fn who_comes_while_the_history_is_read_is_told_to_look() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let (guard, _other) = (
        a.locks.lock("a").acquire().await?,
        a.locks.lock("other").acquire().await?,
    );
    let _waits = b.waits("other", "bob");
    w.settle().await;
    b.spy.hold_calls(Method::Changes);
    a.locks.with("third", async |_| {}).await?;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    guard.release().await?;
    b.spy.let_go();
    assert!(w.soon(waiting).await?.is_held());
    Ok(())
}

#[tokio::test]
async fn those_who_wait_do_not_stir_when_a_lock_goes_to_another() -> Result<()> {
    let w = World::new();
    let [a, b, c] = [1, 2, 3].map(|seed| w.process(seed));
    let guard = a.locks.lock("a").acquire().await?;
    let first = b.waits("a", "bob");
    w.settle().await;
    let _second = c.waits("a", "cy");
    w.settle().await;
    let before = (c.spy.calls(Method::Get), c.spy.calls(Method::Commit));
    guard.release().await?;
    let _guard = w.soon(first).await?;
    let after = (c.spy.calls(Method::Get), c.spy.calls(Method::Commit));
    assert_eq!(after, before);
    Ok(())
}

#[tokio::test]
async fn nobody_follows_the_history_when_nobody_waits() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    guard.release().await?;
    w.soon(waiting).await?.release().await?;
    w.pass(seconds(2.0)).await;
    let before = b.spy.all_calls();
    spawn({
        let lock = a.locks.lock("b");
        async move { lock.acquire().await?.release().await }
    })
    .await
    .unwrap()?;
    w.pass(seconds(10.0)).await;
    assert_eq!(b.spy.all_calls(), before);
    Ok(())
}
