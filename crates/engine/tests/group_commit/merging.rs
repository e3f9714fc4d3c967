//! What shares a store call, and what goes by itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use plimsoll_core::decorate::{Decorated, Method, Observe};
use plimsoll_core::store::{Commit, Exchange, Guard, Renew, Renewal, Write};
use plimsoll_core::{Error, Key, Limits, Result, Store, StoreExt};
use plimsoll_engine::Bounds;

use crate::setup::{LEASE, begin, ids_of, put, put_value, renew, setup, setup_with};

#[tokio::test]
async fn commits_that_come_while_a_group_is_in_flight_share_the_next_call() -> Result<()> {
    let s = setup()?;
    let first = s.hold_up().await?;
    let commits: Result<Vec<_>> = (0..63).map(|_| s.increment()).collect();
    let calls = commits?.into_iter().map(|c| s.merged.commit_one(c));
    let mut callers = begin(join_all(calls));
    s.gate.pass(1);
    first.await?;
    s.gate.reached(2).await;
    assert!(futures::poll!(&mut callers).is_pending());
    assert_eq!(s.sum().await?, 0, "answered only after the commit");
    s.gate.open();
    for receipt in callers.await {
        assert!(!receipt?.repeated);
    }
    assert_eq!(s.sum().await?, 63);
    assert_eq!(s.gate.made(), [Method::Commit, Method::Commit]);
    Ok(())
}

#[tokio::test]
async fn as_many_groups_are_in_flight_as_may_be_and_the_next_one_fills() -> Result<()> {
    let bounds = Bounds {
        in_flight_max: 2,
        ..Bounds::default()
    };
    let s = setup_with(Limits::default(), bounds)?;
    let first = s.hold_up().await?;
    let second = begin(s.merged.commit_one(s.increment()?));
    s.gate.reached(2).await;
    let commits: Result<Vec<_>> = (0..10).map(|_| s.increment()).collect();
    let calls = commits?.into_iter().map(|c| s.merged.commit_one(c));
    let callers = begin(join_all(calls));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(s.gate.made().len(), 2, "the rest waits");
    s.gate.open();
    first.await?;
    second.await?;
    for receipt in callers.await {
        receipt?;
    }
    assert_eq!(s.sum().await?, 11);
    assert_eq!(s.gate.made().len(), 3, "the rest was one call");
    Ok(())
}

#[tokio::test]
async fn renewals_share_a_call_and_each_caller_gets_its_own_answers() -> Result<()> {
    let s = setup()?;
    let (a, b, c) = (s.hold().await?, s.hold().await?, s.hold().await?);
    let mut gone = b.clone();
    gone.fence = gone.fence.next();
    s.clock.advance(Duration::from_secs(10));
    let asked = [vec![&a, &gone], vec![], vec![&b], vec![&c, &a]];
    let calls = asked.clone().map(|holders| s.merged.renew(renew(&holders)));
    s.gate.open();
    let answers = try_join_all(calls).await?;
    let until = s.lease_end(a.task).await?;
    let held = Renewal::Held { until };
    for (holders, renewals) in asked.iter().zip(answers) {
        assert_eq!(holders.len(), renewals.len());
        for (holder, renewal) in holders.iter().zip(renewals) {
            assert_eq!(renewal == held, **holder != gone, "{renewal:?}");
        }
    }
    assert_eq!(s.gate.made(), [Method::Renew]);
    Ok(())
}

#[tokio::test]
async fn commits_renewals_exchanges_and_a_claim_share_one_exchange() -> Result<()> {
    let s = setup()?;
    let (mine, other) = (s.hold().await?, s.hold().await?);
    let first = s.hold_up().await?;
    let task = s.task()?;
    let exchange = Exchange {
        commits: vec![s.increment()?, s.increment()?],
        renew: Some(renew(&[&mine])),
        claim: None,
    };
    let submit = begin(s.merged.submit(task.clone()));
    let exchanged = begin(s.merged.exchange(exchange));
    let renewed = begin(s.merged.renew(renew(&[&other])));
    let claimed = begin(s.merged.claim(s.claim()?));
    s.gate.open();
    first.await?;
    submit.await?;
    let exchanged = exchanged.await?;
    assert!(exchanged.commits.len() == 2 && exchanged.commits.iter().all(Result::is_ok));
    assert!(matches!(
        exchanged.renewals.as_ref().map(|r| r.as_deref()),
        Some(Ok([Renewal::Held { .. }]))
    ));
    assert_eq!(exchanged.claimed, None);
    assert!(matches!(renewed.await?[..], [Renewal::Held { .. }]));
    let claimed = claimed.await?;
    assert_eq!(ids_of(&claimed), [task.id], "a claim sees its group");
    assert_eq!(s.sum().await?, 2);
    assert_eq!(s.gate.made(), [Method::Commit, Method::Exchange]);
    Ok(())
}

#[tokio::test]
async fn a_claim_that_finds_no_place_goes_at_once() -> Result<()> {
    let s = setup()?;
    let first = s.hold_up().await?;
    let alone = begin(s.merged.claim(s.claim()?));
    assert_eq!(
        s.gate.made(),
        [Method::Commit, Method::Claim],
        "no group waits"
    );
    let commit = begin(s.merged.commit_one(s.increment()?));
    let riding = begin(s.merged.claim(s.claim()?));
    assert_eq!(
        s.gate.made().len(),
        2,
        "it has taken the place in the next group"
    );
    let beside = begin(s.merged.claim(s.claim()?));
    assert_eq!(
        s.gate.made(),
        [Method::Commit, Method::Claim, Method::Claim]
    );
    s.gate.open();
    first.await?;
    commit.await?;
    for claim in [alone, riding, beside] {
        assert_eq!(claim.await?.tasks, []);
    }
    assert_eq!(
        s.gate.made(),
        [
            Method::Commit,
            Method::Claim,
            Method::Claim,
            Method::Exchange
        ]
    );
    Ok(())
}

#[tokio::test]
async fn workers_that_settle_and_claim_at_once_do_not_take_turns() -> Result<()> {
    let s = setup()?;
    let first = s.hold_up().await?;
    let mut calls = Vec::new();
    for _ in 0..8 {
        let exchange = Exchange {
            commits: vec![Commit::of(Write::Submit(Box::new(s.task()?)))],
            renew: None,
            claim: Some(s.claim()?),
        };
        calls.push(begin(s.merged.exchange(exchange)));
    }
    let at_once = s.gate.made();
    assert_eq!(at_once.len(), 8, "one waits for the group in flight");
    s.gate.open();
    first.await?;
    let mut taken = BTreeSet::new();
    for call in calls {
        taken.extend(ids_of(&call.await?.claimed.unwrap()?));
    }
    assert_eq!(taken.len(), 8);
    assert_eq!(s.gate.made().len(), 9, "one call for each claim");
    Ok(())
}

#[tokio::test]
async fn a_renewal_for_another_time_goes_at_once() -> Result<()> {
    let s = setup()?;
    let (a, b) = (s.hold().await?, s.hold().await?);
    let first = s.hold_up().await?;
    let short = begin(s.merged.renew(renew(&[&a])));
    assert_eq!(s.gate.made().len(), 1);
    let lease = 10 * LEASE;
    let holders = vec![b.clone()];
    let long = begin(s.merged.renew(Renew { holders, lease }));
    assert_eq!(s.gate.made(), [Method::Commit, Method::Renew]);
    s.gate.open();
    first.await?;
    short.await?;
    long.await?;
    let ends = s.lease_end(a.task).await?;
    assert_eq!(s.lease_end(b.task).await?, ends.saturating_plus(9 * LEASE));
    Ok(())
}

#[tokio::test]
async fn groups_keep_the_limits_of_the_store() -> Result<()> {
    let limits = Limits {
        commits_max: 4,
        leases_max: 3,
        ..Limits::default()
    };
    let s = setup_with(limits, Bounds::default())?;
    let (a, b) = (s.hold().await?, s.hold().await?);
    let first = s.hold_up().await?;
    let commits: Result<Vec<_>> = (0..10).map(|_| s.increment()).collect();
    let calls = (commits?.into_iter()).map(|c| s.merged.commit_one(c));
    let commits = begin(join_all(calls));
    let two = begin(s.merged.renew(renew(&[&a, &b])));
    assert_eq!(s.gate.made().len(), 1, "it joins the commits");
    let two_more = begin(s.merged.renew(renew(&[&a, &b])));
    assert_eq!(s.gate.made(), [Method::Commit, Method::Renew]);
    s.gate.open();
    first.await?;
    for receipt in commits.await {
        receipt?;
    }
    assert_eq!(two.await?.len(), 2);
    assert_eq!(two_more.await?.len(), 2);
    let calls = s.gate.made();
    assert_eq!(calls.len(), 2 + 3, "ten commits by four: {calls:?}");
    Ok(())
}

#[tokio::test]
async fn a_group_carries_sixteen_mebibytes_at_most() -> Result<()> {
    const MIB: usize = 1024 * 1024;
    let limits = Limits {
        value_bytes_max: 8 * MIB,
        record_bytes_max: 8 * MIB,
        commit_bytes_max: 8 * MIB,
        ..Limits::default()
    };
    let s = setup_with(limits, Bounds::default())?;
    let first = s.hold_up().await?;
    let value = "x".repeat(6 * MIB);
    let mut calls = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        calls.push(begin(s.merged.commit_one(put_value(key, &value)?)));
    }
    s.gate.open();
    first.await?;
    for call in calls {
        call.await?;
    }
    assert_eq!(s.gate.made().len(), 1 + 3, "two, two and one");
    Ok(())
}

#[tokio::test]
async fn many_callers_cost_about_one_call_for_all() -> Result<()> {
    const ROUNDS: usize = 20;
    let s = setup()?;
    let mut holders = Vec::new();
    for _ in 0..64 {
        holders.push(s.hold().await?);
    }
    let caller = async |holder| {
        for _ in 0..ROUNDS {
            s.merged.commit_one(s.increment()?).await?;
            s.merged.renew(renew(&[holder])).await?;
            let exchange = Exchange {
                commits: vec![s.increment()?],
                renew: Some(renew(&[holder])),
                claim: None,
            };
            s.merged.exchange(exchange).await?.commits.remove(0)?;
        }
        Ok::<(), Error>(())
    };
    let callers = try_join_all(holders.iter().map(caller));
    let slow_store = async {
        loop {
            // Everybody has had a turn before the store goes on.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            s.gate.pass(1);
        }
    };
    tokio::select! {
        done = callers => drop(done?),
        () = slow_store => {}
    }
    assert_eq!(s.sum().await?, 64 * 2 * ROUNDS as i64);
    // Without merging, 64 times as many. A caller waits for the group in flight and for its own
    // at most, hence twice.
    assert!(s.gate.made().len() <= 2 * 3 * ROUNDS);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_caller_waited_for_is_there_before_what_it_sends_next() -> Result<()> {
    let s = setup()?;
    s.gate.open();
    let caller = async |n: usize| {
        for round in 0..50 {
            let key = format!("{n}.{round}");
            s.merged.commit_one(put(&key)?).await?;
            let seen = Guard::RecordPresent(Key::new(&key)?);
            let exchange = Exchange {
                commits: vec![s.increment()?.guard(seen)],
                renew: None,
                claim: Some(s.claim()?),
            };
            s.merged.exchange(exchange).await?.commits.remove(0)?;
        }
        Ok::<(), Error>(())
    };
    try_join_all((0..16).map(caller)).await?;
    assert_eq!(s.sum().await?, 16 * 50);
    Ok(())
}

#[tokio::test]
async fn a_lone_caller_is_served_at_once() -> Result<()> {
    let s = setup()?;
    s.gate.open();
    for _ in 0..10 {
        s.merged.commit_one(s.increment()?).await?;
    }
    assert_eq!(s.sum().await?, 10);
    assert_eq!(s.gate.made().len(), 10);
    Ok(())
}

#[tokio::test]
async fn it_stands_in_front_of_any_store() -> Result<()> {
    let s = setup()?;
    s.gate.open();
    let observe = Observe::new(s.merged.as_ref(), Arc::new(s.clock.clone()));
    let around_it = Decorated::new(s.merged.clone(), observe);
    around_it.commit_one(s.increment()?).await?;
    assert_eq!(around_it.capabilities().store, "memory");
    Ok(())
}

#[test]
fn how_many_share_a_call_is_measured() -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    metrics::with_local_recorder(&recorder, || {
        runtime.unwrap().block_on(async {
            let s = setup()?;
            s.gate.open();
            s.merged.claim(s.claim()?).await?;
            let calls = [s.increment()?, s.increment()?].map(|c| s.merged.commit_one(c));
            try_join_all(calls).await
        })
    })?;
    let mut measured: Vec<_> = (snapshotter.snapshot().into_vec().into_iter())
        .filter(|(key, ..)| key.key().name() == "plimsoll_engine_group_calls")
        .map(|(key, _, _, value)| {
            let labels: Vec<_> = key.key().labels().map(|l| l.value().to_owned()).collect();
            let DebugValue::Histogram(samples) = value else {
                panic!("{value:?}")
            };
            let samples: Vec<_> = samples.into_iter().map(|s| s.into_inner()).collect();
            (labels, samples)
        })
        .collect();
    measured.sort_by(|(a, _), (b, _)| a.cmp(b));
    let expected = [("claim", 1.0), ("commit", 2.0)];
    assert_eq!(
        measured,
        expected.map(|(method, calls)| (vec![method.to_owned()], vec![calls]))
    );
    Ok(())
}
