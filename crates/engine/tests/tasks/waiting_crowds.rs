//! Many who wait, what they cost, and waiting without hints.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::Method;
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::*;
use plimsoll_core::task::Task;
use plimsoll_core::wake::{Hub, Listener};
use plimsoll_core::{Ids, Limits, Namespace, Result, TaskId, Timestamp};
use plimsoll_engine::Engine;

use crate::world::{LEASE, World, lane, seed};

async fn submit(w: &World, count: usize) -> Vec<TaskId> {
    let tasks = (0..count).map(|n| w.task(&n.to_string()));
    let answers = w.other_client().submit_all(tasks.collect::<Vec<_>>()).await;
    answers
        .into_iter()
        .map(|answer| answer.unwrap().id)
        .collect()
}

/// Completes every task that can be claimed, through another handle.
async fn complete_all(w: &World) -> Result<usize> {
    let other = w.other_client();
    let worker = other.worker("w")?;
    let mut done = 0;
    loop {
        let held = other.claim_next([lane()], 1_000, &worker, LEASE).await?;
        if held.is_empty() {
            return Ok(done);
        }
        done += held.len();
        for held in held {
            held.complete("r").await?;
        }
    }
}

#[tokio::test]
async fn ten_thousand_waiters_cost_one_tail() -> Result<()> {
    let w = World::new();
    let ids = submit(&w, 10_000).await;
    let mut waiters: FuturesUnordered<_> = ids.iter().map(|id| w.tasks.wait(*id)).collect();
    assert!(futures::poll!(waiters.next()).is_pending());
    w.settle().await;
    let reads = w.spy.calls(Method::Tasks);
    assert_eq!(reads, 100, "a hundred tasks a read");
    let looks = w.spy.calls(Method::Changes);
    assert!(looks <= 3, "{looks} looks while nothing happens");
    assert_eq!(complete_all(&w).await?, 10_000);
    let mut ended = BTreeSet::new();
    while let Some(task) = w.soon(waiters.next()).await {
        ended.insert(task?.id());
    }
    assert_eq!(ended.len(), 10_000);
    let (reads, looks) = (w.spy.calls(Method::Tasks), w.spy.calls(Method::Changes));
    assert!(reads <= 220, "{reads} reads");
    assert!(looks <= 40, "{looks} looks");
    assert_eq!(w.spy.all_calls(), reads + looks);
    Ok(())
}

#[tokio::test]
async fn many_who_wait_for_one_task_cost_no_more_than_one() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let before = w.spy.all_calls();
    let id = held.task().id();
    let clients: Vec<_> = (0..1_000).map(|_| w.tasks.clone()).collect();
    let mut waiters = Box::pin(join_all(clients.iter().map(|tasks| tasks.wait(id))));
    assert!(futures::poll!(&mut waiters).is_pending());
    w.settle().await;
    w.other_client()
        .hold(held.holder().clone())
        .complete("r")
        .await?;
    for task in w.soon(waiters).await {
        assert_eq!(task?.result, Some("r".into()));
    }
    let calls = w.spy.all_calls() - before;
    assert!(calls <= 6, "{calls} calls");
    Ok(())
}

#[tokio::test]
async fn when_nobody_waits_nothing_is_asked() -> Result<()> {
    let w = World::new();
    let ids = submit(&w, 3).await;
    let handles = Arc::strong_count(&w.store);
    let mut waiters: Vec<_> = ids.iter().map(|id| Box::pin(w.tasks.wait(*id))).collect();
    for waiter in &mut waiters {
        assert!(futures::poll!(waiter).is_pending());
    }
    w.settle().await;
    // One poll a second, as long as somebody waits.
    let before = w.spy.all_calls();
    for _ in 0..10 {
        w.clock.advance(Duration::from_secs(1));
        w.settle().await;
    }
    assert_eq!(w.spy.all_calls() - before, 10);
    assert_eq!(w.spy.calls(Method::Tasks), 1, "nothing is read again");
    drop(waiters);
    w.settle().await;
    assert_eq!(Arc::strong_count(&w.store), handles, "the tail has ended");
    let before = w.spy.all_calls();
    complete_all(&w).await?;
    for _ in 0..10 {
        w.clock.advance(Duration::from_secs(1));
        w.settle().await;
    }
    assert_eq!(w.spy.all_calls(), before, "they are forgotten");
    // And the next one begins anew.
    assert_eq!(w.soon(w.tasks.wait(ids[0])).await?.result, Some("r".into()));
    Ok(())
}

#[tokio::test]
async fn one_who_goes_away_does_not_take_the_others_along() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let id = held.task().id();
    let mut gone = Box::pin(w.tasks.wait(id));
    let mut stays = Box::pin(w.tasks.wait(id));
    assert!(futures::poll!(&mut gone).is_pending());
    assert!(futures::poll!(&mut stays).is_pending());
    w.settle().await;
    drop(gone);
    held.complete("r").await?;
    assert_eq!(w.soon(stays).await?.result, Some("r".into()));
    Ok(())
}

#[tokio::test]
async fn waiters_that_come_and_go_at_random_are_all_answered() -> Result<()> {
    let seed = seed();
    let w = World::with(seed, Limits::default());
    let dice = Ids::seeded(seed ^ 1, Arc::new(w.clock.clone()));
    let ids = submit(&w, 200).await;
    let mut waiters: Vec<_> = Vec::new();
    let other = w.other_client();
    let worker = other.worker("w")?;
    for _ in 0..2_000 {
        let id = ids[dice.below(200) as usize];
        match dice.below(4) {
            0 => {
                let mut waiter = Box::pin(w.tasks.wait(id));
                if futures::poll!(&mut waiter).is_pending() {
                    waiters.push(waiter);
                }
            }
            1 if !waiters.is_empty() => {
                let gone = dice.below(waiters.len() as u64) as usize;
                drop(waiters.swap_remove(gone));
            }
            2 => {
                if let Ok(held) = other.claim(id, &worker, LEASE).await {
                    held.complete("r").await?;
                }
            }
            _ => w.settle().await,
        }
    }
    complete_all(&w).await?;
    for task in w.soon(join_all(waiters)).await {
        assert!(task?.status.is_terminal());
    }
    Ok(())
}

#[tokio::test]
async fn without_hints_the_end_is_seen_within_a_second() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let clock: Arc<dyn Clock> = Arc::new(w.clock.clone());
    let engine = Engine::with(Arc::new(Deaf(w.store.clone())), clock, w.ids.clone());
    let tasks = plimsoll_engine::Tasks::new(engine);
    let mut waiter = Box::pin(tasks.wait(held.task().id()));
    assert!(futures::poll!(&mut waiter).is_pending());
    w.settle().await;
    held.complete("r").await?;
    w.settle().await;
    assert!(futures::poll!(&mut waiter).is_pending(), "nobody told it");
    w.clock.advance(Duration::from_secs(1));
    assert_eq!(w.soon(waiter).await?.result, Some("r".into()));
    Ok(())
}

/// A store that never hints at anything.
#[derive(Debug)]
struct Deaf(Arc<dyn Store>);

#[async_trait]
impl Store for Deaf {
    fn namespace(&self) -> &Namespace {
        self.0.namespace()
    }
    fn limits(&self) -> &Limits {
        self.0.limits()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    async fn get(&self, get: Get) -> Result<Vec<Option<Record>>> {
        self.0.get(get).await
    }
    async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        self.0.scan(scan).await
    }
    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared> {
        self.0.declare_index(declare).await
    }
    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped> {
        self.0.drop_index(drop).await
    }
    async fn indexes(&self) -> Result<Vec<Declared>> {
        self.0.indexes().await
    }
    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>> {
        self.0.tasks(tasks).await
    }
    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>> {
        self.0.task_by_key(by).await
    }
    async fn list(&self, list: List) -> Result<Page<Task>> {
        self.0.list(list).await
    }
    async fn peek(&self, peek: Peek) -> Result<Vec<Task>> {
        self.0.peek(peek).await
    }
    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        self.0.counts(counts).await
    }
    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>> {
        self.0.groups(groups).await
    }
    async fn logs(&self, logs: Logs) -> Result<LogPage> {
        self.0.logs(logs).await
    }
    async fn changes(&self, changes: Changes) -> Result<ChangePage> {
        self.0.changes(changes).await
    }
    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
        self.0.commit(commits).await
    }
    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.0.claim(claim).await
    }
    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>> {
        self.0.renew(renew).await
    }
    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
        self.0.exchange(exchange).await
    }
    async fn due(&self, due: Due) -> Result<DueNow> {
        self.0.due(due).await
    }
    async fn compact(&self, compact: Compact) -> Result<Compacted> {
        self.0.compact(compact).await
    }
    async fn ping(&self) -> Result<Timestamp> {
        self.0.ping().await
    }
    fn wakeups(&self) -> Listener {
        Hub::default().listen()
    }
    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}
