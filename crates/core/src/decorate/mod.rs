//! Stores around stores: [`Faults`] makes a store fail on purpose, [`Observe`] measures and traces
//! it. Both are an [`Around`]; [`Decorated`] forwards every method of the port through it, so that
//! none can be forgotten.

mod fault;
mod observe;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

pub use fault::{Fault, FaultPlan, FaultRates, Faults};
pub use observe::Observe;

use crate::error::Result;
use crate::group::Group;
use crate::limits::Limits;
use crate::names::Namespace;
use crate::record::Record;
use crate::store::{
    Capabilities, ChangePage, Changes, Claim, Claimed, Commit, Compact, Compacted, Counts,
    DeclareIndex, Declared, DropIndex, Dropped, Due, DueNow, Exchange, Exchanged, Get, Groups,
    LaneCounts, List, LogPage, Logs, Page, Peek, Receipt, Renew, Renewal, Scan, Store, TaskByKey,
    Tasks,
};
use crate::task::Task;
use crate::time::Timestamp;
use crate::wake::Listener;

/// A method of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Scan,
    DeclareIndex,
    DropIndex,
    Indexes,
    Tasks,
    TaskByKey,
    List,
    Peek,
    Counts,
    Groups,
    Logs,
    Changes,
    Commit,
    Claim,
    Renew,
    Exchange,
    Due,
    Compact,
    Ping,
    Close,
}

impl Method {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scan",
            Self::DeclareIndex => "declare_index",
            Self::DropIndex => "drop_index",
            Self::Indexes => "indexes",
            Self::Tasks => "tasks",
            Self::TaskByKey => "task_by_key",
            Self::List => "list",
            Self::Peek => "peek",
            Self::Counts => "counts",
            Self::Groups => "groups",
            Self::Logs => "logs",
            Self::Changes => "changes",
            Self::Commit => "commit",
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Exchange => "exchange",
            Self::Due => "due",
            Self::Compact => "compact",
            Self::Ping => "ping",
            Self::Close => "close",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happens around every call of a store.
pub trait Around: fmt::Debug + Send + Sync + 'static {
    /// Makes the call: once, twice, or not at all.
    fn around<T, C, F>(&self, method: Method, call: C) -> impl Future<Output = Result<T>> + Send
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send;

    /// Sees what became of each commit.
    fn committed(&self, results: &[Result<Receipt>]);
}

/// A store with something around it.
#[derive(Clone, Debug)]
pub struct Decorated<A> {
    inner: Arc<dyn Store>,
    around: A,
}

impl<A: Around> Decorated<A> {
    /// Puts `around` around `inner`.
    pub fn new(inner: Arc<dyn Store>, around: A) -> Self {
        Self { inner, around }
    }
}

/// Forwards methods that take one parameter and answer a result.
macro_rules! forward {
    ($self:ident, $method:ident, $inner:ident, $parameter:ident) => {
        ($self.around)
            .around(Method::$method, || $self.inner.$inner($parameter.clone()))
            .await
    };
}

#[async_trait]
impl<A: Around> Store for Decorated<A> {
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
        forward!(self, Get, get, get)
    }

    async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        forward!(self, Scan, scan, scan)
    }

    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared> {
        forward!(self, DeclareIndex, declare_index, declare)
    }

    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped> {
        forward!(self, DropIndex, drop_index, drop)
    }

    async fn indexes(&self) -> Result<Vec<Declared>> {
        (self.around)
            .around(Method::Indexes, || self.inner.indexes())
            .await
    }

    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>> {
        forward!(self, Tasks, tasks, tasks)
    }

    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>> {
        forward!(self, TaskByKey, task_by_key, by)
    }

    async fn list(&self, list: List) -> Result<Page<Task>> {
        forward!(self, List, list, list)
    }

    async fn peek(&self, peek: Peek) -> Result<Vec<Task>> {
        forward!(self, Peek, peek, peek)
    }

    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        forward!(self, Counts, counts, counts)
    }

    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>> {
        forward!(self, Groups, groups, groups)
    }

    async fn logs(&self, logs: Logs) -> Result<LogPage> {
        forward!(self, Logs, logs, logs)
    }

    async fn changes(&self, changes: Changes) -> Result<ChangePage> {
        forward!(self, Changes, changes, changes)
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
        let call = || async { Ok(self.inner.commit(commits.clone()).await) };
        let results = match self.around.around(Method::Commit, call).await {
            Ok(results) => results,
            Err(error) => vec![Err(error); commits.len()],
        };
        self.around.committed(&results);
        results
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        forward!(self, Claim, claim, claim)
    }

    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>> {
        forward!(self, Renew, renew, renew)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
        let exchanged: Result<Exchanged> = forward!(self, Exchange, exchange, exchange);
        if let Ok(exchanged) = &exchanged {
            self.around.committed(&exchanged.commits);
        }
        exchanged
    }

    async fn due(&self, due: Due) -> Result<DueNow> {
        (self.around)
            .around(Method::Due, || self.inner.due(due))
            .await
    }

    async fn compact(&self, compact: Compact) -> Result<Compacted> {
        forward!(self, Compact, compact, compact)
    }

    async fn ping(&self) -> Result<Timestamp> {
        (self.around)
            .around(Method::Ping, || self.inner.ping())
            .await
    }

    fn wakeups(&self) -> Listener {
        self.inner.wakeups()
    }

    async fn close(&self) -> Result<()> {
        (self.around)
            .around(Method::Close, || self.inner.close())
            .await
    }
}
