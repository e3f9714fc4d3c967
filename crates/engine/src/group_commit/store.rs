//! The port: what can be merged is, the rest is passed on.

use async_trait::async_trait;
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::{
    Capabilities, ChangePage, Changes, Claim, Claimed, Commit, Compact, Compacted, Counts,
    DeclareIndex, Declared, DropIndex, Dropped, Due, DueNow, Exchange, Exchanged, Get, Groups,
    LaneCounts, List, LogPage, Logs, Page, Peek, Receipt, Renew, Renewal, Scan, TaskByKey, Tasks,
};
use plimsoll_core::task::Task;
use plimsoll_core::time::Timestamp;
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Limits, Namespace, Result, Store};

use super::GroupCommit;
use super::group::Verb;

#[async_trait]
impl Store for GroupCommit {
    fn namespace(&self) -> &Namespace {
        self.shared.store.namespace()
    }

    fn limits(&self) -> &Limits {
        self.shared.store.limits()
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.store.capabilities()
    }

    async fn get(&self, get: Get) -> Result<Vec<Option<Record>>> {
        self.shared.store.get(get).await
    }

    async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        self.shared.store.scan(scan).await
    }

    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared> {
        self.shared.store.declare_index(declare).await
    }

    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped> {
        self.shared.store.drop_index(drop).await
    }

    async fn indexes(&self) -> Result<Vec<Declared>> {
        self.shared.store.indexes().await
    }

    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>> {
        self.shared.store.tasks(tasks).await
    }

    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>> {
        self.shared.store.task_by_key(by).await
    }

    async fn list(&self, list: List) -> Result<Page<Task>> {
        self.shared.store.list(list).await
    }

    async fn peek(&self, peek: Peek) -> Result<Vec<Task>> {
        self.shared.store.peek(peek).await
    }

    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        self.shared.store.counts(counts).await
    }

    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>> {
        self.shared.store.groups(groups).await
    }

    async fn logs(&self, logs: Logs) -> Result<LogPage> {
        self.shared.store.logs(logs).await
    }

    async fn changes(&self, changes: Changes) -> Result<ChangePage> {
        self.shared.store.changes(changes).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
        let count = commits.len();
        let exchange = Exchange {
            commits,
            ..Exchange::default()
        };
        match self.call(Verb::Commit, exchange).await {
            Ok(exchanged) => exchanged.commits,
            Err(error) => vec![Err(error); count],
        }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let exchange = Exchange {
            claim: Some(claim),
            ..Exchange::default()
        };
        let exchanged = self.call(Verb::Claim, exchange).await?;
        exchanged.claimed.unwrap_or_else(unanswered)
    }

    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>> {
        let exchange = Exchange {
            renew: Some(renew),
            ..Exchange::default()
        };
        let exchanged = self.call(Verb::Renew, exchange).await?;
        exchanged.renewals.unwrap_or_else(unanswered)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
        self.call(Verb::Exchange, exchange).await
    }

    async fn due(&self, due: Due) -> Result<DueNow> {
        self.shared.store.due(due).await
    }

    async fn compact(&self, compact: Compact) -> Result<Compacted> {
        self.shared.store.compact(compact).await
    }

    async fn ping(&self) -> Result<Timestamp> {
        self.shared.store.ping().await
    }

    fn wakeups(&self) -> Listener {
        self.shared.store.wakeups()
    }

    async fn close(&self) -> Result<()> {
        self.shared.store.close().await
    }
}

fn unanswered<T>() -> Result<T> {
    Err(Error::Corrupt(
        "the store did not answer what was asked".into(),
    ))
}
