//! The store of a test: counts calls, so that one can tell when nothing happens any more, and can
//! restrict a worker to one task.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use plimsoll_core::group::Group;
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::record::Record;
use plimsoll_core::store::{
    Capabilities, ChangePage, Changes, Claim, Claimed, Commit, Compact, Compacted, Counts,
    DeclareIndex, Declared, DropIndex, Dropped, Due, DueNow, Exchange, Exchanged, Get, Groups,
    LaneCounts, List, LogPage, Logs, Page, Peek, Pick, Receipt, Renew, Renewal, Scan, Store,
    TaskByKey, Tasks,
};
use plimsoll_core::task::{Task, WorkerId};
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Limits, Namespace, Result, TaskId, Timestamp};

/// Memory that is watched.
#[derive(Debug)]
pub(super) struct TestStore {
    inner: MemoryStore,
    calls: AtomicU64,
    restricted: Mutex<BTreeMap<WorkerId, Only>>,
}

/// That a worker gets one task, once, and nothing else.
#[derive(Debug)]
struct Only {
    task: Task,
    left: bool,
    /// Why the task could not be claimed.
    refused: Option<Error>,
}

impl TestStore {
    pub(super) fn new(inner: MemoryStore) -> Self {
        Self {
            inner,
            calls: AtomicU64::new(0),
            restricted: Mutex::default(),
        }
    }

    /// How often it was called: as long as this grows, something happens.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Restricts a worker to one attempt at one task.
    pub(super) fn restrict(&self, worker: &WorkerId, task: Task) {
        let only = Only {
            task,
            left: true,
            refused: None,
        };
        self.restricted().insert(worker.clone(), only);
    }

    /// Ends the restriction. Answers why the task could not be claimed.
    pub(super) fn release(&self, worker: &WorkerId) -> Option<Error> {
        self.restricted().remove(worker)?.refused
    }

    fn restricted(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Only>> {
        (self.restricted.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    fn called(&self) -> &MemoryStore {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }

    /// Which task to claim instead, if the worker is restricted; `None` inside: nothing.
    fn instead(&self, claim: &Claim) -> Option<Option<TaskId>> {
        let restricted = self.restricted();
        let only = restricted.get(&claim.worker)?;
        let asked_for = match &claim.pick {
            Pick::Next { lanes, .. } => lanes.contains(&only.task.spec.lane),
            Pick::Ids(ids) => ids.contains(&only.task.id()),
        };
        Some((asked_for && only.left).then(|| only.task.id()))
    }

    async fn claim_only(&self, id: TaskId, claim: Claim) -> Result<Claimed> {
        let worker = claim.worker.clone();
        let pick = Pick::Ids(vec![id]);
        let mut claimed = self.called().claim(Claim { pick, ..claim }).await?;
        if let Some(only) = self.restricted().get_mut(&worker) {
            only.left = false;
            // The worker asked for any task: it is not told that this one was refused.
            only.refused = claimed.refused.pop().map(|(_, why)| why);
        }
        Ok(claimed)
    }
}

fn nothing() -> Claimed {
    Claimed {
        tasks: Vec::new(),
        refused: Vec::new(),
        next_due: None,
    }
}

/// Forwards methods that take one parameter.
macro_rules! forward {
    ($($method:ident($parameter:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for TestStore {
            fn namespace(&self) -> &Namespace {
                self.inner.namespace()
            }

            fn limits(&self) -> &Limits {
                self.inner.limits()
            }

            fn capabilities(&self) -> Capabilities {
                self.inner.capabilities()
            }

            $(async fn $method(&self, parameter: $parameter) -> $answer {
                self.called().$method(parameter).await
            })*

            async fn claim(&self, claim: Claim) -> Result<Claimed> {
                match self.instead(&claim) {
                    None => self.called().claim(claim).await,
                    Some(Some(id)) => self.claim_only(id, claim).await,
                    Some(None) => Ok(nothing()),
                }
            }

            async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
                let Exchange { commits, renew, claim } = exchange;
                let without = Exchange { commits, renew, claim: None };
                let mut exchanged = self.called().exchange(without).await?;
                if let Some(claim) = claim {
                    exchanged.claimed = Some(self.claim(claim).await);
                }
                Ok(exchanged)
            }

            async fn indexes(&self) -> Result<Vec<Declared>> {
                self.called().indexes().await
            }

            async fn ping(&self) -> Result<Timestamp> {
                self.called().ping().await
            }

            fn wakeups(&self) -> Listener {
                self.inner.wakeups()
            }

            async fn close(&self) -> Result<()> {
                self.called().close().await
            }
        }
    };
}

forward! {
    get(Get) -> Result<Vec<Option<Record>>>;
    scan(Scan) -> Result<Page<Record>>;
    declare_index(DeclareIndex) -> Result<Declared>;
    drop_index(DropIndex) -> Result<Dropped>;
    tasks(Tasks) -> Result<Vec<Option<Task>>>;
    task_by_key(TaskByKey) -> Result<Option<Task>>;
    list(List) -> Result<Page<Task>>;
    peek(Peek) -> Result<Vec<Task>>;
    counts(Counts) -> Result<Vec<LaneCounts>>;
    groups(Groups) -> Result<Vec<Option<Group>>>;
    logs(Logs) -> Result<LogPage>;
    changes(Changes) -> Result<ChangePage>;
    commit(Vec<Commit>) -> Vec<Result<Receipt>>;
    renew(Renew) -> Result<Vec<Renewal>>;
    due(Due) -> Result<DueNow>;
    compact(Compact) -> Result<Compacted>;
}
