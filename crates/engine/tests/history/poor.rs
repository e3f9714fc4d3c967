//! A store that can less than others: it hints at nothing, and may have no order of all changes.

use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::*;
use plimsoll_core::task::Task;
use plimsoll_core::wake::{Hub, Listener};
use plimsoll_core::{Limits, Namespace, Result, Store, Timestamp};

#[derive(Debug)]
pub(crate) struct Poor {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) total_order: bool,
}

macro_rules! forward {
    ($($method:ident: $parameter:ty => $answer:ty;)*) => {
        #[async_trait]
        impl Store for Poor {
            fn namespace(&self) -> &Namespace {
                self.store.namespace()
            }
            fn limits(&self) -> &Limits {
                self.store.limits()
            }
            fn capabilities(&self) -> Capabilities {
                Capabilities {
                    remote_wakeups: false,
                    total_order: self.total_order,
                    ..self.store.capabilities()
                }
            }
            fn wakeups(&self) -> Listener {
                Hub::default().listen()
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
