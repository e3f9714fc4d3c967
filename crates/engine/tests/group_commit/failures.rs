//! Failing calls fail nobody else, and nothing is lost or doubled.

use std::time::Duration;

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::{Commit, Exchange, Guard, Pick, Renew, Renewal};
use plimsoll_core::{Error, Key, Limits, Result, StoreExt};
use plimsoll_engine::Bounds;

use crate::setup::{LEASE, begin, ids_of, is_unknown, renew, setup, setup_with};

#[tokio::test]
async fn a_call_that_is_refused_does_not_touch_its_neighbours() -> Result<()> {
    let s = setup()?;
    let held = s.hold().await?;
    let first = s.hold_up().await?;
    let absent = Guard::RecordPresent(Key::new("nobody")?);
    let mut bad_claim = s.claim()?;
    bad_claim.pick = Pick::Ids(Vec::new());
    let exchange = Exchange {
        commits: vec![s.increment()?.guard(absent.clone()), s.increment()?],
        renew: Some(renew(&[&held])),
        claim: Some(bad_claim),
    };
    let fine = begin(s.merged.commit_one(s.increment()?));
    let refused = begin(s.merged.commit_one(s.increment()?.guard(absent)));
    let exchanged = begin(s.merged.exchange(exchange));
    let empty = begin(s.merged.commit_one(Commit::new()));
    let last = begin(s.merged.commit_one(s.increment()?));
    s.gate.open();
    first.await?;
    fine.await?;
    assert!(matches!(refused.await, Err(Error::Conflict(_))));
    let exchanged = exchanged.await?;
    assert!(matches!(exchanged.commits[0], Err(Error::Conflict(_))));
    assert!(exchanged.commits[1].is_ok());
    assert!(matches!(exchanged.renewals, Some(Ok(_))));
    assert!(matches!(exchanged.claimed, Some(Err(Error::Invalid(_)))));
    assert!(matches!(empty.await, Err(Error::Invalid(_))));
    last.await?;
    assert_eq!(s.sum().await?, 3);
    assert_eq!(s.gate.made(), [Method::Commit, Method::Exchange]);
    Ok(())
}

#[tokio::test]
async fn renewals_that_are_refused_do_not_touch_their_neighbours() -> Result<()> {
    let limits = Limits {
        commits_max: 2,
        leases_max: 2,
        ..Limits::default()
    };
    let s = setup_with(limits, Bounds::default())?;
    let held = s.hold().await?;
    let first = s.hold_up().await?;
    let fine = begin(s.merged.renew(renew(&[&held])));
    let too_many = begin(s.merged.renew(renew(&[&held, &held, &held])));
    let commits = vec![s.increment()?, s.increment()?, s.increment()?];
    let too_many_commits = begin(s.merged.commit(commits));
    let bad = Renew {
        holders: vec![held.clone()],
        lease: Duration::ZERO,
    };
    let bad = begin(s.merged.renew(bad));
    let commit = begin(s.merged.commit_one(s.increment()?));
    s.gate.open();
    first.await?;
    assert!(matches!(fine.await?[..], [Renewal::Held { .. }]));
    assert!(matches!(too_many.await, Err(Error::Invalid(_))));
    for answer in too_many_commits.await {
        assert!(matches!(answer, Err(Error::Invalid(_))));
    }
    assert!(matches!(bad.await, Err(Error::Invalid(_))));
    commit.await?;
    assert_eq!(s.sum().await?, 1);
    Ok(())
}

#[tokio::test]
async fn what_has_a_place_happens_once_although_its_caller_went_away() -> Result<()> {
    let s = setup()?;
    let (a, b) = (s.hold().await?, s.hold().await?);
    let task = s.task()?;
    s.bare.submit(task.clone()).await?;
    s.clock.advance(Duration::from_secs(10));
    let first = s.hold_up().await?;
    let (commit, claim) = (s.increment()?, s.claim()?);
    let exchange = Exchange {
        commits: vec![s.increment()?],
        renew: Some(renew(&[&a])),
        claim: None,
    };
    drop(begin(s.merged.commit_one(commit.clone())));
    drop(begin(s.merged.exchange(exchange.clone())));
    drop(begin(s.merged.renew(renew(&[&b]))));
    drop(begin(s.merged.claim(claim.clone())));
    let last = begin(s.merged.commit_one(s.increment()?));
    s.gate.open();
    first.await?;
    last.await?;
    assert_eq!(s.gate.made(), [Method::Commit, Method::Exchange]);
    assert_eq!(s.sum().await?, 3);
    let until = s.bare.ping().await?.saturating_plus(LEASE);
    assert_eq!(s.lease_end(a.task).await?, until);
    assert_eq!(s.lease_end(b.task).await?, until);
    assert!(s.merged.commit_one(commit).await?.repeated);
    let again = s.merged.exchange(exchange).await?;
    assert!(again.commits.into_iter().all(|r| r.unwrap().repeated));
    // Without its caller, the claim took the one task there was; repeated, it takes no other.
    let taken = s.bare.task(task.id).await?.unwrap();
    assert_eq!(taken.holder().unwrap().worker, claim.worker);
    s.bare.submit(s.task()?).await?;
    assert_eq!(ids_of(&s.merged.claim(claim).await?), [task.id]);
    assert_eq!(s.sum().await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_lost_answer_is_lost_for_the_whole_group_and_each_can_be_repeated() -> Result<()> {
    let s = setup()?;
    let (a, b) = (s.hold().await?, s.hold().await?);
    let task = s.task()?;
    s.bare.submit(task.clone()).await?;
    let first = s.hold_up().await?;
    s.plan.next(Method::Exchange, Fault::ErrorAfter);
    let (commit, claim) = (s.increment()?, s.claim()?);
    let exchange = Exchange {
        commits: vec![s.increment()?, s.increment()?],
        renew: Some(renew(&[&a])),
        claim: None,
    };
    let committed = begin(s.merged.commit_one(commit.clone()));
    let exchanged = begin(s.merged.exchange(exchange.clone()));
    let renewed = begin(s.merged.renew(renew(&[&b])));
    let claimed = begin(s.merged.claim(claim.clone()));
    s.gate.open();
    first.await?;
    assert!(is_unknown(&committed.await));
    assert!(is_unknown(&exchanged.await));
    assert!(is_unknown(&renewed.await));
    assert!(is_unknown(&claimed.await));
    s.bare.submit(s.task()?).await?;
    assert!(s.merged.commit_one(commit).await?.repeated);
    let again = s.merged.exchange(exchange).await?;
    assert!(again.commits.into_iter().all(|r| r.unwrap().repeated));
    let renewals = s.merged.renew(renew(&[&b])).await?;
    assert!(matches!(renewals[..], [Renewal::Held { .. }]));
    assert_eq!(ids_of(&s.merged.claim(claim).await?), [task.id]);
    assert_eq!(s.sum().await?, 3);
    Ok(())
}

#[tokio::test]
async fn an_answer_to_commits_alone_that_is_lost_is_lost_for_all_of_them() -> Result<()> {
    let s = setup()?;
    let first = s.hold_up().await?;
    s.plan.next(Method::Commit, Fault::ErrorAfter);
    s.gate.pass(1);
    let commits = [s.increment()?, s.increment()?];
    assert!(
        is_unknown(&first.await),
        "the first call is the one planned"
    );
    s.plan.next(Method::Commit, Fault::ErrorAfter);
    let calls = commits.clone().map(|c| begin(s.merged.commit_one(c)));
    s.gate.open();
    for call in calls {
        assert!(is_unknown(&call.await));
    }
    for commit in commits {
        assert!(s.merged.commit_one(commit).await?.repeated);
    }
    assert_eq!(s.sum().await?, 2);
    Ok(())
}

#[tokio::test]
async fn when_the_store_panics_whoever_waits_hears_of_it_and_the_next_call_is_made() -> Result<()> {
    let s = setup()?;
    let first = s.hold_up().await?;
    let waiting = begin(s.merged.commit_one(s.increment()?));
    s.gate.break_down(true);
    s.gate.open();
    assert!(is_unknown(&first.await));
    assert!(is_unknown(&waiting.await));
    s.gate.break_down(false);
    s.merged.commit_one(s.increment()?).await?;
    assert_eq!(s.sum().await?, 1);
    Ok(())
}

#[test]
fn when_the_runtime_ends_callers_elsewhere_hear_of_it() -> Result<()> {
    let runtime = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap()
    };
    let (its_own, other) = (runtime(), runtime());
    let s = its_own.block_on(async { setup() })?;
    let (first, second) = (s.increment()?, s.increment()?);
    let first = begin(s.merged.commit_one(first));
    drop(its_own);
    assert!(is_unknown(&other.block_on(first)));
    assert!(is_unknown(&other.block_on(s.merged.commit_one(second))));
    Ok(())
}
