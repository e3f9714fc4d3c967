//! Memory is bounded: callers without room wait.

use plimsoll_core::decorate::Method;
use plimsoll_core::{Key, Limits, Result, StoreExt};
use plimsoll_engine::Bounds;

use crate::setup::{Setup, begin, put_value, renew, setup_with};

fn bounded(calls_max: u32, bytes_max: u32) -> Result<Setup> {
    let bounds = Bounds {
        calls_max,
        bytes_max,
        ..Bounds::default()
    };
    setup_with(Limits::default(), bounds)
}

#[tokio::test]
async fn without_room_for_calls_callers_wait_and_those_that_leave_leave_nothing() -> Result<()> {
    let s = bounded(3, u32::MAX)?;
    let first = s.hold_up().await?;
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(begin(s.merged.commit_one(s.increment()?)));
    }
    // Two are queued, and stay so without their callers; three wait for room, and one leaves.
    drop(calls.pop());
    drop(calls.drain(..2));
    s.gate.open();
    first.await?;
    for call in calls {
        call.await?;
    }
    assert_eq!(s.sum().await?, 4);
    Ok(())
}

#[tokio::test]
async fn claims_and_renewals_do_not_wait_for_room() -> Result<()> {
    let s = bounded(1, 1)?;
    let held = s.hold().await?;
    let first = s.hold_up().await?;
    let commit = begin(s.merged.commit_one(s.increment()?));
    let claim = begin(s.merged.claim(s.claim()?));
    assert_eq!(s.gate.made(), [Method::Commit, Method::Claim]);
    let renewal = begin(s.merged.renew(renew(&[&held])));
    s.gate.open();
    s.gate.reached(3).await;
    assert_eq!(s.gate.made()[2], Method::Renew, "before the commit");
    claim.await?;
    renewal.await?;
    first.await?;
    commit.await?;
    Ok(())
}

#[tokio::test]
async fn without_room_for_bytes_callers_wait_and_those_that_leave_leave_nothing() -> Result<()> {
    let s = bounded(1_000, 64 * 1024)?;
    let first = s.hold_up().await?;
    let value = "x".repeat(25_000);
    let mut calls = Vec::new();
    for key in ["a", "b", "c", "d"] {
        calls.push(begin(s.merged.commit_one(put_value(key, &value)?)));
    }
    // Two are queued, two wait for room: one of each leaves.
    drop(calls.pop());
    drop(calls.remove(0));
    s.gate.open();
    first.await?;
    for call in calls {
        call.await?;
    }
    let mut found = Vec::new();
    for key in ["a", "b", "c", "d"] {
        found.push(s.bare.record(&Key::new(key)?).await?.is_some());
    }
    assert_eq!(found, [true, true, true, false]);
    assert_eq!(s.gate.made().len(), 3, "the third went after the first two");
    Ok(())
}

#[tokio::test]
async fn a_call_larger_than_the_bound_goes_when_there_is_no_other() -> Result<()> {
    let s = bounded(1_000, 1_024)?;
    let first = s.hold_up().await?;
    let large = put_value("large", &"x".repeat(100_000))?;
    let large = begin(s.merged.commit_one(large));
    let small = begin(s.merged.commit_one(s.increment()?));
    s.gate.open();
    first.await?;
    large.await?;
    small.await?;
    assert_eq!(s.gate.made().len(), 3, "each alone");
    assert_eq!(s.sum().await?, 1);
    Ok(())
}
