//! Many at once on one record: nothing is lost, and nothing is won twice.

use std::future::Future;

use futures::FutureExt;
use futures::future::join_all;
use plimsoll_core::Result;
use plimsoll_core::decorate::Method;
use plimsoll_engine::Records;
use plimsoll_engine::records::{Swap, Swapped};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::world::{World, code};

#[allow(clippy::disallowed_methods)]
fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// What each of so many says, all at once, half of them from another process.
async fn crowd<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
    w: &World,
    count: usize,
    act: impl Fn(Records, usize) -> F,
) -> Result<Vec<T>> {
    let clients = [&w.records, &w.others];
    let acting = (0..count).map(|n| spawn(act(clients[n % 2].clone(), n)));
    let answers = join_all(acting).await;
    answers.into_iter().map(|answer| answer.unwrap()).collect()
}

async fn a_hundred_incrementers_lose_nothing(w: World) -> Result<()> {
    let mut sums = crowd(&w, 100, async |records: Records, _| {
        let mut sums = Vec::new();
        for _ in 0..10 {
            sums.push(records.increment("visits", "n", 1).await?);
        }
        Ok(sums)
    })
    .await?
    .concat();
    sums.sort_unstable();
    assert_eq!(
        sums,
        (1..=1_000).collect::<Vec<_>>(),
        "each sum is answered once"
    );
    Ok(())
}

/// One field is moved up by whoever has read it last.
async fn contended_swaps_each_count_once(w: World) -> Result<()> {
    w.records.put("n", [("n", 0)], None).await?;
    let wins = crowd(&w, 20, async |records: Records, _| {
        let mut wins = 0;
        while wins < 10 {
            let found = records.get_field("n", "n").await?.unwrap();
            let next = plimsoll_core::record::integer(&found).unwrap() + 1;
            wins += u32::from(records.compare_and_swap("n", "n", found, next).await?);
        }
        Ok(wins)
    })
    .await?;
    assert_eq!(wins.iter().sum::<u32>(), 200);
    assert_eq!(w.text("n", "n").await?.unwrap(), "200");
    Ok(())
}

async fn one_of_a_hundred_creates_a_record(w: World) -> Result<()> {
    let answers = crowd(&w, 100, async |records: Records, n| {
        let swap = Swap::new("leader")
            .when_absent()
            .set("worker", n.to_string());
        Ok((n, records.swap(swap).await?))
    })
    .await?;
    let done = |(n, answer)| matches!(answer, Swapped::Done(_)).then_some(n);
    let won: Vec<usize> = answers.into_iter().filter_map(done).collect();
    assert_eq!(won.len(), 1);
    assert_eq!(w.text("leader", "worker").await?, Some(won[0].to_string()));
    Ok(())
}

macro_rules! crowded {
    ($($test:ident),+) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() -> plimsoll_core::Result<()> {
                super::$test(crate::world::World::memory()).await
            })+
        }
        mod stored {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() -> plimsoll_core::Result<()> {
                super::$test(crate::world::World::stored().await).await
            })+
        }
    };
}
crowded!(
    a_hundred_incrementers_lose_nothing,
    contended_swaps_each_count_once,
    one_of_a_hundred_creates_a_record
);

#[derive(Serialize, Deserialize)]
struct Counter {
    n: u32,
}

fn next(before: Option<Counter>) -> Option<Counter> {
    let n = before.map_or(0, |counter| counter.n) + 1;
    Some(Counter { n })
}

#[tokio::test]
async fn a_hundred_updates_lose_nothing() -> Result<()> {
    let w = World::memory();
    let counters = w.records.typed::<Counter>();
    let updates = (0..100).map(|_| counters.update("n", next));
    for answer in w.drive(join_all(updates)).await {
        answer?;
    }
    assert_eq!(w.text("n", "n").await?.unwrap(), "100");
    let commits = w.spy.calls(Method::Commit);
    assert!(
        commits > 200,
        "only {commits}: they were not in each other's way"
    );
    Ok(())
}

#[tokio::test]
async fn an_update_gives_up_when_others_are_always_faster() -> Result<()> {
    let w = World::memory();
    let counters = w.records.typed::<Counter>();
    let (others, spy) = (w.others.clone(), w.spy.clone());
    always_faster(others, &spy);
    let answer = w.drive(counters.update("n", next)).await;
    assert_eq!(code(answer.map(drop)), "contended");
    assert_eq!(w.spy.calls(Method::Commit), 50);
    Ok(())
}

/// Somebody writes before each commit, and plans to do so again.
fn always_faster(others: Records, spy: &crate::world::Spy) {
    let again = spy.clone();
    spy.before(Method::Commit, move || {
        let (others, again) = (others.clone(), again.clone());
        async move {
            others.increment("n", "n", 1).await.unwrap();
            always_faster(others, &again);
        }
        .boxed()
    });
}
