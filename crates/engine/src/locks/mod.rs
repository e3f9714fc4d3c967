//! The client of locks, over any store: one holder at a time, by name.
//!
//! | to | use |
//! |---|---|
//! | take a lock | [`Locks::lock`], then [`Lock::try_acquire`], [`Lock::acquire`], [`Lock::acquire_within`] |
//! | run something under it | [`Locks::with`], [`Lock::with`], [`LockGuard::run`] |
//! | hold it | [`LockGuard`]: renewed in the background, released when dropped |
//! | know whether it is still yours | [`Tenure::is_held`], [`Tenure::lost`] |
//! | keep a late holder out elsewhere | [`Tenure::token`] |
//! | look and operate | [`Locks::get`], [`Locks::list`], [`Locks::list_all`], [`Locks::break_lock`] |
//! | let one of many lead | [`Locks::election`] |
//!
//! # What a lock promises
//! - The token of each holder is greater than those of all before it, however the lock was lost.
//! - A holder renews at half the time to live, and is told before its end when it could not. That
//!   is measured by the holder's own monotonic clock; when the record ends, by the store's.
//! - Only the holder releases. A release that comes too late changes nothing and says so.
//! - Those who wait are served in the order in which they came to the store, one of each process
//!   at a time, also when the holder dies. One that dies while it is the first costs two seconds at
//!   most.
//!
//! # What no lock can promise
//! A holder that is paused, or whose store's clock jumps ahead, may go on for a moment after another
//! has taken over. What must never be touched by two has to check the token: see `docs/locks.md`.

mod attempt;
mod decide;
mod election;
mod guard;
mod read;
mod release;
mod room;
mod stored;
mod watch;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::error::{Conflict, Invalid, Problem};
use plimsoll_core::limits::LEASE_MAX;
use plimsoll_core::store::{Commit, Receipt};
use plimsoll_core::{Error, Name, Result, StoreExt};

pub(crate) use attempt::written;
pub use election::{Election, Leader, Leadership};
pub use guard::{LockGuard, Tenure};
pub use read::LockState;
pub(crate) use room::Room;

use self::attempt::Attempt;
use self::stored::{Keys, Stored};
use crate::Engine;
use crate::process;
use crate::tasks::Retries;

/// How long a lock lives without renewal, unless asked otherwise.
pub const TTL: Duration = Duration::from_secs(30);
/// The shortest time to live. With less, a moment without a turn for the one who renews, or a slow
/// answer of the store, would cost the lock.
pub const TTL_MIN: Duration = Duration::from_secs(1);

/// The client of locks. Cloning it is cheap, and all clients of an engine wait together.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_core::{Memory, Namespace};
/// use plimsoll_engine::Engine;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let store = Arc::new(Memory::new().open(Namespace::new("orders")?));
/// let locks = Engine::new(store).locks();
/// let guard = locks.lock("job:42").owner("worker-1").try_acquire().await?;
///
/// let refused = locks.lock("job:42").try_acquire().await.unwrap_err();
/// assert_eq!(refused.code(), "lock_not_acquired");
///
/// guard.release().await?;
/// assert!(locks.lock("job:42").try_acquire().await.is_ok());
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    engine: Engine,
    retries: Retries,
}

impl Locks {
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

    /// The lock of this name, to be taken. Names are free text of up to 128 bytes.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock {
            locks: self.clone(),
            name: name.into(),
            ttl: TTL,
            owner: process::name(),
            metadata: None,
        }
    }

    /// Waits for the lock of this name and runs `work` under it: see [`Lock::with`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let locks = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).locks();
    /// let token = locks.with("report", async |tenure| tenure.token()).await?;
    /// assert!(locks.get("report").await?.is_none());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn with<T>(
        &self,
        name: impl Into<String>,
        work: impl AsyncFnOnce(Tenure) -> T,
    ) -> Result<T> {
        self.lock(name).with(work).await
    }

    /// An election by this name, in which `candidate` may run. It is the lock of this name.
    pub fn election(&self, name: impl Into<String>, candidate: impl Into<String>) -> Election {
        Election::new(self.lock(name).owner(candidate))
    }

    async fn commit(&self, commit: Commit) -> Result<Receipt> {
        let store = &self.engine.room().store;
        self.patiently(|| store.commit_one(commit.clone())).await
    }

    async fn patiently<T, F>(&self, call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.retries.patiently(&self.engine, call).await
    }
}

/// A lock that is to be taken: by whom, and for how long without renewal.
#[derive(Clone, Debug)]
pub struct Lock {
    locks: Locks,
    name: String,
    ttl: Duration,
    owner: String,
    metadata: Option<Bytes>,
}

impl Lock {
    /// How long it lives without renewal: when its holder dies, others wait for that long. It is
    /// renewed at half of it. Thirty seconds if not said otherwise, and [`TTL_MIN`] at least.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Who takes it, for people. The host and the process if not said otherwise.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// More about why it is taken, for whoever looks at it.
    pub fn metadata(mut self, metadata: impl Into<Bytes>) -> Self {
        self.metadata = Some(metadata.into());
        self
    }

    /// Takes it if nobody has it; `lock_not_acquired` says who has.
    pub async fn try_acquire(&self) -> Result<LockGuard> {
        Attempt::new(self)?.at_once().await
    }

    /// Waits until it is free, however long, also while the store is away. To stop waiting, drop
    /// the future: then the place in the line is given up in the background.
    pub async fn acquire(&self) -> Result<LockGuard> {
        Attempt::new(self)?.in_turn().await
    }

    /// Waits until it is free, but not for longer than this; `lock_not_acquired` says who has it
    /// then. A store that does not answer may delay that by two seconds.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let locks = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).locks();
    /// let _guard = locks.lock("report").owner("ada").acquire().await?;
    /// let late = locks.lock("report").acquire_within(Duration::from_millis(1)).await;
    /// assert!(late.unwrap_err().to_string().starts_with("lock report is held by ada until"));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn acquire_within(&self, timeout: Duration) -> Result<LockGuard> {
        Attempt::new(self)?.within(timeout).await
    }

    /// Waits until it is free and runs `work` under it, as [`LockGuard::run`] does.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(Tenure) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let work = work(guard.tenure());
        guard.run(work).await
    }

    fn check(&self) -> Result<Keys, Invalid> {
        let name = Name::for_field("lock", &self.name)?;
        if !(TTL_MIN..=LEASE_MAX).contains(&self.ttl) {
            let problem = Problem::OutOfRange {
                value: format!("{:?}", self.ttl),
                min: format!("{TTL_MIN:?}"),
                max: format!("{LEASE_MAX:?}"),
            };
            return Err(Invalid::new("ttl", problem));
        }
        let max = self.locks.engine.room().store.limits().text_bytes_max;
        let sized = [
            ("owner", self.owner.len()),
            ("metadata", self.metadata.as_ref().map_or(0, Bytes::len)),
        ];
        for (field, bytes) in sized {
            if bytes > max {
                return Err(Invalid::new(field, Problem::TooLong { bytes, max }));
            }
        }
        Keys::of(name)
    }
}

fn not_held(keys: &Keys) -> Error {
    let lock = keys.name.clone();
    Conflict::LockNotHeld { lock }.into()
}

fn not_acquired(keys: &Keys, stored: Stored) -> Error {
    let conflict = Conflict::LockNotAcquired {
        lock: keys.name.clone(),
        owner: stored.owner,
        until: stored.until,
    };
    conflict.into()
}
