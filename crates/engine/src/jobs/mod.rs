//! Partitioned jobs: each partition says how far it is, the lowest status wins.
//!
//! | to | use |
//! |---|---|
//! | take part in a job, as one of its partitions | [`Jobs::join`], which answers a [`Manager`]; [`Jobs::join_existing`] creates none |
//! | say how far it is | [`Manager::set_state`], [`Manager::set_started`], [`Manager::set_finished`], [`Manager::set_error`], [`Manager::set_warning`] |
//! | say something of the job as a whole | [`Manager::describe`] |
//! | delete it | [`Manager::delete_job`], [`Manager::mark_job_deleted`], [`Jobs::delete`], [`Jobs::mark_deleted`] |
//! | look at jobs | [`Jobs::get`], [`Jobs::list`], [`Jobs::list_all`] |
//! | look on without taking part | [`Jobs::monitor`], [`Jobs::monitor_when_created`], which answer a [`Monitor`] |
//! | read how far it is | [`Manager::get_state`], [`Manager::states`], [`Manager::progress`]; after [`Manager::refresh`], everything that was acknowledged before. Those of a [`Monitor`] are the same |
//! | hear of every change | [`Manager::subscribe`], which answers a [`Subscription`]: also a `Stream` |
//! | wait until all are there | [`Manager::barrier`], which answers a [`Barrier`] |
//!
//! # What writing promises
//! - Calls of one manager and its clones are applied in the order in which they were called.
//! - Each state has a version that grows by one with every write, whoever writes it.
//! - A write that is repeated with the same event id is the same write, also after a lost answer, from
//!   another process, or after a restart.
//! - A write to a job that was deleted is refused, also when a job of that name was created since:
//!   nothing comes back by itself.
//!
//! # What reading promises
//! - Reads come from memory: one load for all readers of a job in a process, kept warm by the history. They never go
//!   back, and show what this process has written at once.
//! - A subscription tells what is there, in the order of time and of states that exist alone, then one marker, then each
//!   change: no version twice, none that falls, none left out, however slow the reader and whatever happens to the store.
//! - Whoever goes on after a cursor is told what followed it; or `Restarted`, and then everything there is.
//! - A barrier opens if all partitions were there at one moment since it began, and fails as soon as one has failed.
//!
//! # Statuses
//! They are compared as numbers, exactly as written. So a warning, [`WARNING`], is lower than an error,
//! [`ERROR`], and wins over it.

mod coded;
mod delete;
mod describe;
mod info;
mod join;
mod look;
mod manager;
mod monitor;
mod over;
mod read;
mod retire;
mod state;
mod stored;
mod write;

use std::future::Future;

use plimsoll_core::store::{Commit, Receipt};
use plimsoll_core::{Result, StoreExt};

pub use coded::Coded;
pub use info::JobInfo;
pub use join::{Join, PARTITIONS_MAX};
pub use manager::{Manager, Written};
pub use monitor::Monitor;
pub use read::aggregate::Progress;
pub use read::barrier::Barrier;
pub use read::batch::{StateBatch, States};
pub use read::event::{Cursor, StateEvent, SubscribeOptions};
pub use read::portion::{LentState, ToldState};
pub use read::subscribe::{Batches, Next, Subscription};
pub use state::{ERROR, FINISHED, NOT_STARTED, NewState, Payload, STARTED, Scope, State, WARNING};

pub(crate) use read::view::Views;
pub(crate) use retire::{Ages, Retired, Rounds};

use crate::Engine;
use crate::tasks::Retries;

/// The client of jobs. Cloning it is cheap.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_core::{Memory, Namespace};
/// use plimsoll_engine::{Engine, jobs::NewState};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let store = Arc::new(Memory::new().open(Namespace::new("imports")?));
/// let jobs = Engine::new(store).jobs();
/// let manager = jobs.join("import-7", 0, 4).await?;
///
/// manager.set_started(NewState::of("ingest")?).await?;
/// let wrote = manager.set_state(NewState::new("ingest", 40)?.message("40 of 100 files")).await?;
/// assert_eq!(wrote.version, 2);
///
/// // Whoever else joins is told how many partitions there are.
/// assert_eq!(jobs.join("import-7", 3, 8).await?.partitions(), 4);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Jobs {
    engine: Engine,
    retries: Retries,
}

impl Jobs {
    /// A client with the default [`Retries`].
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            retries: Retries::default(),
        }
    }

    /// The same client with other patience.
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Makes one commit, which must be safe to repeat.
    async fn commit(&self, commit: Commit) -> Result<Receipt> {
        let store = self.engine.store();
        self.patiently(|| store.commit_one(commit.clone())).await
    }

    async fn patiently<T, F>(&self, call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.retries.patiently(&self.engine, call).await
    }
}
