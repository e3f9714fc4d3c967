//! The client of records, over any store: what is true now, by key and field.
//!
//! | to | use |
//! |---|---|
//! | read | [`Records::get`], [`Records::get_many`], [`Records::get_field`], [`Records::ttl`] |
//! | write | [`Records::put`], [`Records::set_field`], [`Records::set_fields`], [`Records::merge`], [`Records::delete`] |
//! | count without reading first | [`Records::increment`], [`Records::raise`] |
//! | let time end it, or not | [`Records::touch`], [`Records::persist`] |
//! | write only if nothing has changed | [`Records::compare_and_swap`], [`Records::swap`], [`Records::commit`] |
//! | find | [`Records::scan`], by range with [`Records::declare_index`] |
//! | hear of changes | [`Records::watch`], [`Records::watch_key`] |
//! | keep a struct | [`Records::typed`] |
//!
//! # When answers are lost
//! A call that the store does not answer is repeated: see [`Retries`]. Every write carries an id that
//! the store remembers, so a repeat answers what the first one did, and nothing happens twice: a
//! compare-and-swap that took effect says so although its first answer was lost. What is still
//! unanswered then says whether it may have taken effect. To be able to ask again after that, also
//! from another process, choose the id: [`Records::commit_as`].
//!
//! # Keys
//! Dots delimit the parts of a key: `gbe.state.tasks.{task_type}.{task_id}`. Keys that begin with
//! `plimsoll.` belong to the engine: they can be read, and are not written here.

mod index;
mod read;
mod scan;
mod swap;
mod typed;
mod watch;
mod write;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::record::{Fields, Value};
use plimsoll_core::store::{Commit, Outcome, Receipt, Write};
use plimsoll_core::{Name, Result, Store};

pub use scan::Scan;
pub use swap::{Swap, Swapped};
pub use typed::{Typed, from_fields, from_record, to_fields};
pub use watch::{Watch, WatchEvent};

use crate::answer::first;
use crate::{Engine, Retries};

/// What the keys of the engine's own records begin with.
pub const OF_THE_ENGINE: &str = "plimsoll.";

/// The client of records. Cloning it is cheap.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_core::{Memory, Namespace};
/// use plimsoll_engine::Engine;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let store = Arc::new(Memory::new().open(Namespace::new("gbe")?));
/// let records = Engine::new(store).records();
/// let key = "gbe.state.tasks.email-send.job_123";
/// records.put(key, [("state", "pending"), ("task_type", "email-send")], None).await?;
///
/// assert!(records.compare_and_swap(key, "state", "pending", "claimed").await?);
/// assert!(!records.compare_and_swap(key, "state", "pending", "claimed").await?);
/// assert_eq!(records.get_field(key, "state").await?.unwrap(), "claimed");
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Records {
    engine: Engine,
    retries: Retries,
}

impl Records {
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

    fn store(&self) -> &Arc<dyn Store> {
        self.engine.store()
    }

    async fn patiently<T, F>(&self, call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.retries.patiently(&self.engine, call).await
    }

    /// Makes a commit, which must have an id: a repeat answers what the first one did.
    async fn send(&self, mut commit: Commit) -> Result<Receipt> {
        self.engine.admit(&mut commit.writes)?;
        let tasks = self.engine.tasks().with_retries(self.retries);
        tasks.commit(commit).await
    }

    /// Makes one write.
    async fn write(&self, write: Write) -> Result<Outcome> {
        let commit = Commit::of(write).id(self.engine.ids().commit());
        first(self.send(commit).await?)
    }
}

/// Whether a key or prefix is not one of the engine's: those are written by it alone, and all the time. Whoever changes
/// them by hand ruins a job or a lock, and an index on them costs each of its writes.
pub(crate) fn of_users(what: &'static str, text: &str) -> Result<(), Invalid> {
    match text.starts_with(OF_THE_ENGINE) {
        true => {
            let why = format!("{text}: what begins with {OF_THE_ENGINE} belongs to the engine");
            Err(Invalid::new(what, Problem::Contradiction(why.into())))
        }
        false => Ok(()),
    }
}

fn field(name: impl AsRef<str>) -> Result<Name, Invalid> {
    Name::for_field("field", name)
}

/// Fields from pairs of names and values.
fn collect<N: AsRef<str>, V: Into<Value>>(
    pairs: impl IntoIterator<Item = (N, V)>,
) -> Result<Fields, Invalid> {
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| Ok((field(name)?, Bytes::from(value.into()))))
        .collect()
}
