//! The memory store: the simplest reading of every promise.
//!
//! It is what users test with and what the other stores are measured against. Each namespace is
//! one lock around a few maps; a commit reads its rows, lets the deciders decide, and applies the
//! outcome under that lock, so it happens as a whole.

mod indexes;
mod read;
mod remembered;
mod select;
mod state;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::limits::Limits;
use crate::memory::state::State;
use crate::names::Namespace;
use crate::record::Record;
use crate::store::check::Check;
use crate::store::{
    Capabilities, ChangePage, Changes, Claim, Claimed, Commit, Compact, Compacted, Counts,
    DeclareIndex, Declared, DropIndex, Dropped, Due, DueNow, Durability, Exchange, Exchanged, Get,
    Groups, LaneCounts, List, LogPage, Logs, Page, Peek, Receipt, Renew, Renewal, Scan, Store,
    TaskByKey, Tasks,
};
use crate::task::Task;
use crate::time::Timestamp;
use crate::wake::{Hub, Listener, Wake};

/// Memory that holds any number of namespaces.
///
/// ```
/// use plimsoll_core::{Memory, Namespace, Store};
/// let memory = Memory::new();
/// let store = memory.open(Namespace::new("orders")?);
/// assert_eq!(store.namespace().as_str(), "orders");
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    limits: Limits,
    namespaces: Arc<Mutex<BTreeMap<Namespace, Arc<Shared>>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    hub: Hub,
}

impl Memory {
    /// Memory with the system's clock and default limits.
    pub fn new() -> Self {
        Self::with(Arc::new(SystemClock::new()), Limits::default())
    }

    /// Memory with this clock and these limits.
    pub fn with(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self {
            clock,
            limits,
            namespaces: Arc::default(),
        }
    }

    /// A handle to a namespace. All handles to the same namespace see the same.
    pub fn open(&self, namespace: Namespace) -> MemoryStore {
        let mut namespaces = (self.namespaces.lock()).unwrap_or_else(PoisonError::into_inner);
        MemoryStore {
            shared: namespaces.entry(namespace.clone()).or_default().clone(),
            namespace,
            clock: self.clock.clone(),
            limits: self.limits.clone(),
            closed: AtomicBool::new(false),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// A handle to a namespace in memory.
#[derive(Debug)]
pub struct MemoryStore {
    namespace: Namespace,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    closed: AtomicBool,
}

impl MemoryStore {
    /// The state, unless this handle was closed or the input is bad.
    fn checked(&self, input: &(impl Check + ?Sized)) -> Result<MutexGuard<'_, State>> {
        self.state_if_open().and_then(|state| {
            input.check(&self.limits)?;
            Ok(state)
        })
    }

    fn state_if_open(&self) -> Result<MutexGuard<'_, State>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        // A panic while the lock was held is a programming error that tests find; the state is
        // only ever changed by whole rows, so going on is better than failing for ever.
        Ok((self.shared.state.lock()).unwrap_or_else(PoisonError::into_inner))
    }

    fn commit_one(&self, commit: &Commit) -> Result<Receipt> {
        let mut state = self.checked(commit)?;
        let (receipt, wake) = state.commit(commit, self.clock.now(), &self.limits)?;
        drop(state);
        self.shared.hub.notify(&wake);
        Ok(receipt)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: "memory".into(),
            durability: Durability::Process,
            total_order: true,
            joins_in_commit: true,
            first_in_first_out: true,
            remote_wakeups: true,
            integer_indexes: true,
            concurrent_writes: false,
        }
    }

    async fn get(&self, get: Get) -> Result<Vec<Option<Record>>> {
        Ok(self.checked(&get)?.get(&get, self.clock.now()))
    }

    async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        self.checked(&scan)?.scan(&scan, self.clock.now())
    }

    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared> {
        self.checked(&declare)?.declare_index(declare)
    }

    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped> {
        let existed = self.state_if_open()?.indexes.remove(&drop.index).is_some();
        Ok(Dropped { existed })
    }

    async fn indexes(&self) -> Result<Vec<Declared>> {
        Ok(self.state_if_open()?.declared())
    }

    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>> {
        let state = self.checked(&tasks)?;
        Ok((tasks.ids.iter())
            .map(|id| state.tasks.get(id).cloned())
            .collect())
    }

    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>> {
        let state = self.state_if_open()?;
        let id = state.keys.get(&by.key);
        Ok(id.and_then(|id| state.tasks.get(id)).cloned())
    }

    async fn list(&self, list: List) -> Result<Page<Task>> {
        self.checked(&list)?.list(&list, self.clock.now())
    }

    async fn peek(&self, peek: Peek) -> Result<Vec<Task>> {
        let state = self.checked(&peek)?;
        let ids = state.next_pending(&peek.lanes, peek.limit);
        Ok((ids.iter())
            .filter_map(|id| state.tasks.get(id).cloned())
            .collect())
    }

    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        Ok(self.state_if_open()?.counts(&counts))
    }

    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>> {
        let state = self.checked(&groups)?;
        Ok((groups.ids.iter())
            .map(|id| state.groups.get(id).cloned())
            .collect())
    }

    async fn logs(&self, logs: Logs) -> Result<LogPage> {
        self.checked(&logs)?.logs(&logs)
    }

    async fn changes(&self, changes: Changes) -> Result<ChangePage> {
        self.checked(&changes)?.changes(&changes)
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
        if let Err(error) = self.checked(commits.as_slice()).map(drop) {
            return vec![Err(error); commits.len()];
        }
        commits
            .iter()
            .map(|commit| self.commit_one(commit))
            .collect()
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let mut state = self.checked(&claim)?;
        let (claimed, changes) = state.claim(&claim, self.clock.now(), &self.limits);
        drop(state);
        self.shared.hub.notify(&Wake::of(&changes));
        Ok(claimed)
    }

    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>> {
        Ok(self.checked(&renew)?.renew(&renew, self.clock.now()))
    }

    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
        drop(self.state_if_open()?);
        let commits = self.commit(exchange.commits).await;
        let renewals = match exchange.renew {
            Some(renew) => Some(self.renew(renew).await),
            None => None,
        };
        let claimed = match exchange.claim {
            Some(claim) => Some(self.claim(claim).await),
            None => None,
        };
        Ok(Exchanged {
            commits,
            renewals,
            claimed,
        })
    }

    async fn due(&self, due: Due) -> Result<DueNow> {
        Ok(self.checked(&due)?.due(due.limit, self.clock.now()))
    }

    async fn compact(&self, compact: Compact) -> Result<Compacted> {
        Ok(self.checked(&compact)?.compact(&compact, self.clock.now()))
    }

    async fn ping(&self) -> Result<Timestamp> {
        self.state_if_open().map(|_| self.clock.now())
    }

    fn wakeups(&self) -> Listener {
        self.shared.hub.listen()
    }

    async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}
