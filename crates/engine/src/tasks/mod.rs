//! The client of tasks, over any store.
//!
//! | to | use |
//! |---|---|
//! | make and submit tasks | [`Tasks::task`], [`Tasks::json`], [`Tasks::submit`], [`Tasks::submit_all`] |
//! | take and settle them | [`Tasks::claim`], [`Tasks::claim_next`], [`Held`], [`Hold`] |
//! | look at them | [`Tasks::get`], [`Tasks::get_by_key`], [`Tasks::list`], [`Tasks::list_all`], [`Tasks::list_everywhere`], [`Tasks::peek`], [`Tasks::counts`] |
//! | read what they said | [`Tasks::logs`], [`Tasks::follow_logs`], [`Tasks::steps`] |
//! | wait for them | [`Tasks::wait`], [`Tasks::submit_and_wait`] |
//! | operate on them | [`Tasks::retry`], [`Tasks::cancel`], [`Tasks::prioritise`], [`Tasks::delete`], [`Tasks::bulk`] |
//!
//! # When answers are lost
//! A call that the store does not answer is repeated with the same ids: see [`Retries`]. A repeat
//! answers what the first one did, and nothing happens twice. What is still unanswered then says
//! whether it may have taken effect; to ask again, make the same call with the same task or hold.
//!
//! # Errors
//! People who know other task managers may look for these names:
//!
//! | there | here | [`code`](plimsoll_core::Error::code) | for instance |
//! |---|---|---|---|
//! | `TaskNotFound` | `NotFound::Task`, `NotFound::TaskByKey`, `Lost::Gone` | `task_not_found` | [`Tasks::get`] |
//! | `AlreadyClaimed` | `Conflict::AlreadyClaimed` | `already_claimed` | [`Tasks::claim`] |
//! | `NotClaimed` | `Lost::NotClaimed` | `not_claimed` | [`Hold::complete`] |
//! | `TaskCompleted` | `Conflict::Finished`, `Lost::Finished` | `task_completed` | [`Tasks::claim`], [`Tasks::retry`] |
//! | `TaskFailed` | `Conflict::Finished`, `Lost::Finished` | `task_failed` | [`Tasks::claim`] |
//! | `MaxAttemptsReached` | `Conflict::MaxAttemptsReached` | `max_attempts_reached` | [`Tasks::retry`] |
//! | `InvalidStateTransition` | `Conflict::MoveNotAllowed` | `move_not_allowed` | [`Hold::stage`], [`Hold::complete`] |
//! | `InvalidTask` | `Invalid` of a field of `task` | `invalid_task` | [`Tasks::submit`] |
//! | `InvalidWorkerId` | `Invalid` of the field `worker` | `invalid_worker_id` | [`Tasks::worker`] |
//! | `WrongWorker` | `Lost::WrongWorker` | `wrong_worker` | [`Hold::complete`] |
//! | `StoreClosed` | `Closed` | `closed` | everything after [`Tasks::close`] |

mod bulk;
mod claim;
mod follow;
mod hold;
mod job_log;
mod json;
mod operate;
mod read;
mod say;
mod send;
mod steps;
mod submit;
mod wait;
mod waiting;

use std::sync::Arc;

use plimsoll_core::task::WorkerId;
use plimsoll_core::{Name, Result, Store};

pub use crate::retries::Retries;
pub use bulk::{Bulk, DryRun, Report, Verb};
pub use claim::Held;
pub use hold::{Hold, Renewed, Settlement, attribute};
pub use job_log::JobLog;
pub use json::{payload, result};
pub use operate::Effect;
pub use steps::{NewStep, Step, StepEnd};

use crate::Engine;
pub(crate) use waiting::Waiting;

/// The client of tasks. Cloning it is cheap, and all clients of an engine share what they wait with.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use plimsoll_core::{Memory, Namespace};
/// use plimsoll_engine::{Engine, Tasks};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let store = Arc::new(Memory::new().open(Namespace::new("orders")?));
/// let tasks = Tasks::new(Engine::new(store));
/// let id = tasks.submit(tasks.task("orders", "process", "123")?).await?.id;
///
/// let worker = tasks.worker("worker-1")?;
/// let held = tasks.claim(id, &worker, Duration::from_secs(30)).await?;
/// held.complete("done").await?;
/// assert_eq!(tasks.get(id).await?.result.as_deref(), Some(&b"done"[..]));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Tasks {
    engine: Engine,
    retries: Retries,
}

impl Tasks {
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

    /// A worker of this name, in a new life: it holds nothing that an earlier one of the name held.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// assert_ne!(tasks.worker("w1")?, tasks.worker("w1")?);
    /// let nameless = tasks.worker("").unwrap_err();
    /// assert_eq!(nameless.to_string(), "invalid input: worker: must not be empty");
    /// # Ok::<(), plimsoll_core::Error>(())
    /// ```
    pub fn worker(&self, name: impl AsRef<str>) -> Result<WorkerId> {
        Ok(WorkerId {
            name: Name::for_field("worker", name)?,
            incarnation: self.engine.ids().incarnation(),
        })
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.engine.store()
    }
}
