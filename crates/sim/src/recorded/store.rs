//! A store that writes down what it is asked and answers.

use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::{
    Capabilities, ChangePage, Changes, Claim, Claimed, Commit, Compact, Compacted, Counts,
    DeclareIndex, Declared, DropIndex, Dropped, Due, DueNow, Exchange, Exchanged, Get, Groups,
    LaneCounts, List, LogPage, Logs, Page, Peek, Receipt, Renew, Renewal, Scan, TaskByKey, Tasks,
};
use plimsoll_core::task::Task;
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Limits, Namespace, Result, Store, Timestamp};

use super::log::{Event, Recorder};
use super::spoil::Spoiler;

/// A store, and somebody who writes down what passes.
#[derive(Debug)]
pub(super) struct RecordedStore {
    inner: Arc<dyn Store>,
    recorder: Arc<Recorder>,
    spoiler: Option<Arc<Spoiler>>,
    who: String,
}

impl RecordedStore {
    pub(super) fn new(
        inner: Arc<dyn Store>,
        recorder: Arc<Recorder>,
        spoiler: Option<Arc<Spoiler>>,
        who: String,
    ) -> Self {
        Self {
            inner,
            recorder,
            spoiler,
            who,
        }
    }

    fn saw<'a>(&self, records: impl Iterator<Item = &'a Record>) {
        let seen = records.map(|record| (record.key.clone(), record.revision));
        self.recorder.note(Event::Saw(seen.collect()));
    }

    fn asks(&self, exchange: &Exchange) -> usize {
        self.recorder.note(Event::Asks {
            who: self.who.clone(),
            exchange: exchange.clone(),
        })
    }

    fn answers(&self, asks: usize, answer: Result<Exchanged>) {
        self.recorder.note(Event::Answers { asks, answer });
    }
}

#[async_trait]
impl Store for RecordedStore {
    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, get: Get) -> Result<Vec<Option<Record>>> {
        let mut found = self.inner.get(get.clone()).await?;
        if let Some(spoiler) = &self.spoiler {
            spoiler.records(&get, &mut found);
        }
        self.saw(found.iter().flatten());
        Ok(found)
    }

    async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        let page = self.inner.scan(scan).await?;
        self.saw(page.rows.iter());
        Ok(page)
    }

    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared> {
        self.inner.declare_index(declare).await
    }

    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped> {
        self.inner.drop_index(drop).await
    }

    async fn indexes(&self) -> Result<Vec<Declared>> {
        self.inner.indexes().await
    }

    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>> {
        self.inner.tasks(tasks).await
    }

    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>> {
        self.inner.task_by_key(by).await
    }

    async fn list(&self, list: List) -> Result<Page<Task>> {
        self.inner.list(list).await
    }

    async fn peek(&self, peek: Peek) -> Result<Vec<Task>> {
        self.inner.peek(peek).await
    }

    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        self.inner.counts(counts).await
    }

    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>> {
        self.inner.groups(groups).await
    }

    async fn logs(&self, logs: Logs) -> Result<LogPage> {
        self.inner.logs(logs).await
    }

    async fn changes(&self, changes: Changes) -> Result<ChangePage> {
        let mut answer = self.inner.changes(changes.clone()).await;
        if let (Some(spoiler), Ok(page)) = (&self.spoiler, &mut answer) {
            spoiler.page(page);
        }
        (self.recorder).note(Event::Shown(changes.clone(), answer.clone()));
        if let (Some(spoiler), Ok(page)) = (&self.spoiler, &mut answer) {
            spoiler.unheard(&changes, page);
        }
        answer
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
        let exchange = Exchange {
            commits,
            ..Exchange::default()
        };
        let asks = self.asks(&exchange);
        let mut commits = exchange.commits;
        if let Some(spoiler) = &self.spoiler {
            spoiler.commits(&mut commits);
        }
        let commits = self.inner.commit(commits).await;
        let answer = Exchanged {
            commits: commits.clone(),
            renewals: None,
            claimed: None,
        };
        self.answers(asks, Ok(answer));
        commits
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let exchange = Exchange {
            claim: Some(claim),
            ..Exchange::default()
        };
        let claimed = self.exchange(exchange).await?.claimed;
        claimed.unwrap_or_else(unanswered)
    }

    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>> {
        let exchange = Exchange {
            renew: Some(renew),
            ..Exchange::default()
        };
        let renewals = self.exchange(exchange).await?.renewals;
        renewals.unwrap_or_else(unanswered)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
        let asks = self.asks(&exchange);
        let mut answer = self.inner.exchange(exchange.clone()).await;
        if let (Some(spoiler), Ok(exchanged)) = (&self.spoiler, &mut answer) {
            spoiler.exchanged(&exchange, exchanged);
        }
        self.answers(asks, answer.clone());
        answer
    }

    async fn due(&self, due: Due) -> Result<DueNow> {
        self.inner.due(due).await
    }

    async fn compact(&self, compact: Compact) -> Result<Compacted> {
        self.inner.compact(compact).await
    }

    async fn ping(&self) -> Result<Timestamp> {
        self.inner.ping().await
    }

    fn wakeups(&self) -> Listener {
        self.inner.wakeups()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

fn unanswered<T>() -> Result<T> {
    Err(Error::Corrupt(
        "the store did not answer what was asked".into(),
    ))
}
