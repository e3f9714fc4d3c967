//! A store whose history does not keep its promises, or keeps its readers waiting.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use plimsoll_core::change::Change;
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::*;
use plimsoll_core::task::Task;
use plimsoll_core::wake::Listener;
use plimsoll_core::{Limits, Namespace, Result, Store, Timestamp};
use tokio::sync::Semaphore;

/// What happens to answers. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    twice: bool,
    omitted: Option<String>,
    scans: u64,
    held: Option<Arc<Semaphore>>,
    untold: Option<Arc<Semaphore>>,
    gets: Option<Arc<Semaphore>>,
}

impl History {
    /// Every entry of the history and every row of a scan is answered twice from now on.
    pub(crate) fn repeats(&self) {
        self.0.lock().unwrap().twice = true;
    }

    /// Changes of keys that end like this are left out.
    pub(crate) fn omits(&self, key: &str) {
        self.0.lock().unwrap().omitted = Some(key.to_owned());
    }

    /// Nothing is left out any more.
    pub(crate) fn tells_all(&self) {
        self.0.lock().unwrap().omitted = None;
    }

    /// How many pages were scanned.
    pub(crate) fn scans(&self) -> u64 {
        self.0.lock().unwrap().scans
    }

    /// Pages of scans are read, but not answered until they may go.
    pub(crate) fn hold_scans(&self) {
        self.0.lock().unwrap().held = Some(Arc::new(Semaphore::new(0)));
    }

    /// So many pages may go.
    pub(crate) fn let_go(&self, pages: usize) {
        let held = self.0.lock().unwrap().held.clone();
        held.unwrap().add_permits(pages);
    }

    /// Records are read by key, but not answered until they may go.
    pub(crate) fn hold_gets(&self) {
        self.0.lock().unwrap().gets = Some(Arc::new(Semaphore::new(0)));
    }

    /// Those that are held stay so until this is dropped; others are answered.
    pub(crate) fn hold_no_more_gets(&self) -> HeldGets {
        HeldGets(self.0.lock().unwrap().gets.take().unwrap())
    }

    pub(crate) fn let_gets_go(&self) {
        let gets = self.0.lock().unwrap().gets.take();
        gets.unwrap().close();
    }

    /// Nothing of the history is told until it is told again.
    pub(crate) fn hold_changes(&self) {
        self.0.lock().unwrap().untold = Some(Arc::new(Semaphore::new(0)));
    }

    pub(crate) fn tell_changes(&self) {
        let untold = self.0.lock().unwrap().untold.take();
        untold.unwrap().close();
    }

    pub(crate) fn around(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Odd {
            store,
            history: self.clone(),
        })
    }

    fn tamper(&self, page: &mut ChangePage) {
        let state = self.0.lock().unwrap();
        if let Some(end) = &state.omitted {
            let omitted = |change: &Change| match change {
                Change::Put(record) => record.key.as_str().ends_with(end),
                Change::Removed { key, .. } => key.as_str().ends_with(end),
                Change::Task(_) | Change::Group { .. } => false,
            };
            for entry in &mut page.entries {
                entry.changes.retain(|change| !omitted(change));
            }
        }
        if state.twice {
            let entries = std::mem::take(&mut page.entries);
            page.entries = twice(entries);
        }
    }

    fn tamper_with_rows(&self, page: &mut Page<Record>) {
        if self.0.lock().unwrap().twice {
            page.rows = twice(std::mem::take(&mut page.rows));
        }
    }
}

/// Each of them, and once more.
fn twice<T: Clone>(all: Vec<T>) -> Vec<T> {
    let all = all.into_iter();
    all.flat_map(|one| [one.clone(), one]).collect()
}

/// Answers that may go when this is dropped.
pub(crate) struct HeldGets(Arc<Semaphore>);

impl Drop for HeldGets {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Debug)]
struct Odd {
    store: Arc<dyn Store>,
    history: History,
}

macro_rules! forward {
    ($($method:ident: $parameter:ty => $answer:ty;)*) => {
        #[async_trait]
        impl Store for Odd {
            fn namespace(&self) -> &Namespace {
                self.store.namespace()
            }
            fn limits(&self) -> &Limits {
                self.store.limits()
            }
            fn capabilities(&self) -> Capabilities {
                self.store.capabilities()
            }
            fn wakeups(&self) -> Listener {
                self.store.wakeups()
            }
            async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
                self.store.commit(commits).await
            }
            async fn changes(&self, changes: Changes) -> Result<ChangePage> {
                let untold = self.history.0.lock().unwrap().untold.clone();
                if let Some(untold) = untold.filter(|_| changes.start != Start::Newest) {
                    // Closed when changes are told again.
                    untold.acquire().await.map(drop).ok();
                }
                let mut page = self.store.changes(changes).await?;
                self.history.tamper(&mut page);
                Ok(page)
            }
            async fn get(&self, get: Get) -> Result<Vec<Option<Record>>> {
                let records = self.store.get(get).await;
                let held = self.history.0.lock().unwrap().gets.clone();
                if let Some(held) = held {
                    // Closed when answers may go.
                    held.acquire().await.map(drop).ok();
                }
                records
            }
            async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
                let mut page = self.store.scan(scan).await;
                if let Ok(page) = &mut page {
                    self.history.tamper_with_rows(page);
                }
                let held = {
                    let mut state = self.history.0.lock().unwrap();
                    state.scans += 1;
                    state.held.clone()
                };
                if let Some(held) = held {
                    held.acquire().await.unwrap().forget();
                }
                page
            }
            async fn indexes(&self) -> Result<Vec<Declared>> {
                self.store.indexes().await
            }
            async fn ping(&self) -> Result<Timestamp> {
                self.store.ping().await
            }
            async fn close(&self) -> Result<()> {
                self.store.close().await
            }
            $(async fn $method(&self, parameter: $parameter) -> $answer {
                self.store.$method(parameter).await
            })*
        }
    };
}

forward! {
    tasks: Tasks => Result<Vec<Option<Task>>>;
    task_by_key: TaskByKey => Result<Option<Task>>;
    declare_index: DeclareIndex => Result<Declared>;
    drop_index: DropIndex => Result<Dropped>;
    list: List => Result<Page<Task>>;
    peek: Peek => Result<Vec<Task>>;
    counts: Counts => Result<Vec<LaneCounts>>;
    groups: Groups => Result<Vec<Option<Group>>>;
    logs: Logs => Result<LogPage>;
    claim: Claim => Result<Claimed>;
    renew: Renew => Result<Vec<Renewal>>;
    exchange: Exchange => Result<Exchanged>;
    due: Due => Result<DueNow>;
    compact: Compact => Result<Compacted>;
}
