//! A store that hints at nothing, so that whoever works on it has to poll, or that says that it writes
//! several things at once.

use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::*;
use plimsoll_core::task::Task;
use plimsoll_core::wake::{Hub, Listener};
use plimsoll_core::{Limits, Namespace, Result, Store, Timestamp};

#[derive(Debug)]
pub(crate) struct Unlike {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) quiet: bool,
    pub(crate) concurrent: bool,
}

macro_rules! forward {
    ($($method:ident: $parameter:ty => $answer:ty;)*) => {
        #[async_trait]
        impl Store for Unlike {
            fn namespace(&self) -> &Namespace {
                self.store.namespace()
            }
            fn limits(&self) -> &Limits {
                self.store.limits()
            }
            fn capabilities(&self) -> Capabilities {
                let usual = self.store.capabilities();
                Capabilities {
                    remote_wakeups: usual.remote_wakeups && !self.quiet,
                    concurrent_writes: self.concurrent,
                    ..usual
                }
            }
            fn wakeups(&self) -> Listener {
                match self.quiet {
                    true => Hub::default().listen(),
                    false => self.store.wakeups(),
                }
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
    changes: Changes => Result<ChangePage>;
    commit: Vec<Commit> => Vec<Result<Receipt>>;
    claim: Claim => Result<Claimed>;
    renew: Renew => Result<Vec<Renewal>>;
    exchange: Exchange => Result<Exchanged>;
    due: Due => Result<DueNow>;
    compact: Compact => Result<Compacted>;
}
