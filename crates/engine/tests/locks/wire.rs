//! A store at the end of a wire: hints get lost, calls hang, and commits arrive late.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use plimsoll_core::change::Interest;
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::*;
use plimsoll_core::task::Task;
use plimsoll_core::wake::{Hub, Listener};
use plimsoll_core::{Limits, Namespace, Result, Store, Timestamp};

/// What happens on the wire. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    quiet: bool,
    hangs: bool,
    commits_until_held_up: u64,
    held_up: Vec<Vec<Commit>>,
    interests: Vec<Vec<Interest>>,
}

impl Wire {
    pub(crate) fn quiet() -> Self {
        let wire = Self::default();
        wire.0.lock().unwrap().quiet = true;
        wire
    }

    /// No call is answered any more.
    pub(crate) fn hang(&self) {
        self.0.lock().unwrap().hangs = true;
    }

    /// The commit of this number from here on is held up: its caller gives up waiting for it.
    pub(crate) fn hold_up(&self, nth: u64) {
        self.0.lock().unwrap().commits_until_held_up = nth;
    }

    /// What was held up arrives; how many commits.
    pub(crate) async fn arrive(&self, store: &dyn Store) -> usize {
        let late = std::mem::take(&mut self.0.lock().unwrap().held_up);
        let count = late.len();
        for commits in late {
            store.commit(commits).await;
        }
        count
    }

    /// What was asked for of the history, each time.
    pub(crate) fn interests(&self) -> Vec<Vec<Interest>> {
        self.0.lock().unwrap().interests.clone()
    }

    pub(crate) fn around(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Far {
            store,
            wire: self.clone(),
        })
    }

    fn is_held_up(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        let before = state.commits_until_held_up;
        state.commits_until_held_up = before.saturating_sub(1);
        before == 1
    }

    async fn pass(&self) {
        let hangs = self.0.lock().unwrap().hangs;
        if hangs {
            std::future::pending::<()>().await;
        }
    }
}

#[derive(Debug)]
struct Far {
    store: Arc<dyn Store>,
    wire: Wire,
}

macro_rules! forward {
    ($($method:ident: $parameter:ty => $answer:ty;)*) => {
        #[async_trait]
        impl Store for Far {
            fn namespace(&self) -> &Namespace {
                self.store.namespace()
            }
            fn limits(&self) -> &Limits {
                self.store.limits()
            }
            fn capabilities(&self) -> Capabilities {
                Capabilities {
                    remote_wakeups: !self.wire.0.lock().unwrap().quiet,
                    ..self.store.capabilities()
                }
            }
            fn wakeups(&self) -> Listener {
                match self.wire.0.lock().unwrap().quiet {
                    true => Hub::default().listen(),
                    false => self.store.wakeups(),
                }
            }
            async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
                self.wire.pass().await;
                if self.wire.is_held_up() {
                    let lost = Unavailable {
                        applied: Applied::Unknown,
                        cause: "held up".into(),
                    };
                    let answers = commits.iter().map(|_| Err(lost.clone().into())).collect();
                    self.wire.0.lock().unwrap().held_up.push(commits);
                    return answers;
                }
                self.store.commit(commits).await
            }
            async fn changes(&self, changes: Changes) -> Result<ChangePage> {
                self.wire.pass().await;
                let asked = changes.interests.clone();
                self.wire.0.lock().unwrap().interests.push(asked);
                self.store.changes(changes).await
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
                self.wire.pass().await;
                self.store.$method(parameter).await
            })*
        }
    };
}

forward! {
    get: Get => Result<Vec<Option<Record>>>;
    scan: Scan => Result<Page<Record>>;
    declare_index: DeclareIndex => Result<Declared>;
    drop_index: DropIndex => Result<Dropped>;
    tasks: Tasks => Result<Vec<Option<Task>>>;
    task_by_key: TaskByKey => Result<Option<Task>>;
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
