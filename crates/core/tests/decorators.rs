//! What the decorators do when they are on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, FaultRates, Faults, Method, Observe};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::record::integer;
use plimsoll_core::store::{Commit, Merge, Write};
use plimsoll_core::{Error, Ids, Key, Limits, Memory, Name, Namespace, Result, Store, StoreExt};

struct Setup {
    clock: ManualClock,
    ids: Ids,
    plan: FaultPlan,
    bare: Arc<dyn Store>,
    faulty: Decorated<Faults>,
}

fn setup(plan: FaultPlan) -> Result<Setup> {
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let memory = Memory::with(shared.clone(), Limits::default());
    let bare: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("test")?));
    Ok(Setup {
        ids: Ids::seeded(1, shared.clone()),
        faulty: Decorated::new(bare.clone(), Faults::new(plan.clone(), shared)),
        clock,
        plan,
        bare,
    })
}

fn increment(ids: &Ids) -> Result<Commit> {
    let merge = Merge::new(Key::new("counter")?).add(Name::new("n")?, 1);
    Ok(Commit::of(Write::Merge(merge)).id(ids.commit()))
}

async fn counter(store: &dyn Store) -> Result<i64> {
    let record = store.record(&Key::new("counter")?).await?;
    Ok(record
        .and_then(|record| integer(record.field("n")?))
        .unwrap_or(0))
}

fn applied<T>(answer: Result<T>) -> Option<Applied> {
    match answer {
        Err(Error::Unavailable(Unavailable { applied, .. })) => Some(applied),
        _ => None,
    }
}

#[tokio::test]
async fn an_error_before_leaves_nothing() -> Result<()> {
    let s = setup(FaultPlan::none())?;
    s.plan.next(Method::Commit, Fault::ErrorBefore);
    let answer = s.faulty.commit_one(increment(&s.ids)?).await;
    assert_eq!(applied(answer), Some(Applied::No));
    assert_eq!(counter(s.bare.as_ref()).await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_error_after_has_happened_and_can_be_repeated() -> Result<()> {
    let s = setup(FaultPlan::none())?;
    let commit = increment(&s.ids)?;
    s.plan.next(Method::Commit, Fault::ErrorAfter);
    let answer = s.faulty.commit_one(commit.clone()).await;
    assert_eq!(applied(answer), Some(Applied::Unknown));
    assert_eq!(counter(s.bare.as_ref()).await?, 1);
    let receipt = s.faulty.commit_one(commit).await?;
    assert!(receipt.repeated);
    assert_eq!(counter(s.bare.as_ref()).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_duplicate_reaches_the_store_twice() -> Result<()> {
    let s = setup(FaultPlan::none())?;
    s.plan.next(Method::Commit, Fault::Duplicate);
    let receipt = s.faulty.commit_one(increment(&s.ids)?).await?;
    assert!(receipt.repeated, "the second answer is seen");
    assert_eq!(counter(s.bare.as_ref()).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_delay_lasts_as_long_as_planned() -> Result<()> {
    let s = setup(FaultPlan::none())?;
    s.plan
        .next(Method::Ping, Fault::Delay(Duration::from_secs(5)));
    let mut ping = Box::pin(s.faulty.ping());
    assert!(futures::poll!(&mut ping).is_pending());
    s.clock.advance(Duration::from_millis(4_999));
    assert!(futures::poll!(&mut ping).is_pending());
    s.clock.advance(Duration::from_millis(1));
    assert_eq!(futures::poll!(&mut ping), Poll::Ready(Ok(s.clock.now())));
    Ok(())
}

#[tokio::test]
async fn planned_faults_hit_their_method_once_and_in_order() -> Result<()> {
    let s = setup(FaultPlan::none())?;
    s.plan.next(Method::Ping, Fault::ErrorBefore);
    s.plan.next(Method::Ping, Fault::ErrorAfter);
    assert_eq!(counter(&s.faulty).await?, 0);
    assert_eq!(applied(s.faulty.ping().await), Some(Applied::No));
    assert_eq!(applied(s.faulty.ping().await), Some(Applied::Unknown));
    assert!(s.faulty.ping().await.is_ok());
    assert_eq!(s.plan.injected(), BTreeMap::from([(Method::Ping, 2)]));
    Ok(())
}

/// How each of 2,000 calls ended, by the seed of the plan.
async fn fates(seed: u64) -> Result<Vec<Option<Applied>>> {
    let rates = FaultRates {
        before_permille: 200,
        after_permille: 100,
        duplicate_permille: 50,
        ..FaultRates::default()
    };
    let ids = Ids::seeded(seed, Arc::new(ManualClock::new()));
    let s = setup(FaultPlan::by_chance(rates, ids))?;
    let mut fates = Vec::new();
    for _ in 0..2_000 {
        fates.push(applied(s.faulty.ping().await));
    }
    s.plan.calm();
    assert!(s.faulty.ping().await.is_ok());
    Ok(fates)
}

#[tokio::test]
async fn chance_follows_the_seed_and_the_rates() -> Result<()> {
    let fates_of_7 = fates(7).await?;
    assert_eq!(fates_of_7, fates(7).await?);
    assert_ne!(fates_of_7, fates(8).await?);
    let count = |fate| fates_of_7.iter().filter(|found| **found == fate).count();
    assert!((300..500).contains(&count(Some(Applied::No))));
    assert!((120..280).contains(&count(Some(Applied::Unknown))));
    Ok(())
}

#[test]
fn observed_calls_are_counted_by_method_and_outcome() -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime
            .map_err(|error| Error::Corrupt(error.to_string().into()))?
            .block_on(async {
                let s = setup(FaultPlan::none())?;
                s.plan.next(Method::Ping, Fault::ErrorBefore);
                let clock = Arc::new(s.clock.clone());
                let observe = Observe::new(s.bare.as_ref(), clock);
                let store = Decorated::new(Arc::new(s.faulty), observe);
                assert!(store.ping().await.is_err());
                store.ping().await?;
                let refused = Commit::new();
                let results = store.commit(vec![increment(&s.ids)?, refused]).await;
                assert!(results[0].is_ok() && results[1].is_err());
                Ok::<(), Error>(())
            })
    })?;
    let mut counted = BTreeMap::new();
    let mut timed = 0;
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = (key.key().labels())
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let name = format!("{}{{{}}}", key.key().name(), labels.join(","));
        match value {
            DebugValue::Counter(count) => drop(counted.insert(name, count)),
            DebugValue::Histogram(samples) => timed += samples.len(),
            DebugValue::Gauge(_) => {}
        }
    }
    let expected = [
        (
            "plimsoll_store_calls_total{store=memory,method=commit,outcome=ok}",
            1,
        ),
        (
            "plimsoll_store_calls_total{store=memory,method=ping,outcome=ok}",
            1,
        ),
        (
            "plimsoll_store_calls_total{store=memory,method=ping,outcome=unavailable}",
            1,
        ),
        (
            "plimsoll_store_commits_total{store=memory,outcome=invalid}",
            1,
        ),
        ("plimsoll_store_commits_total{store=memory,outcome=ok}", 1),
    ];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counted, BTreeMap::from(expected));
    assert_eq!(timed, 3);
    Ok(())
}
