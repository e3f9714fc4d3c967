//! Elections: of all who run, one leads, as long as it holds a lock.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use plimsoll_core::{Error, Result, Timestamp, Token};

use super::Lock;
use super::decide::POLL;
use super::guard::{LockGuard, Tenure};
use super::stored::Stored;
use super::watch::Watching;

/// An election, for one candidate. See [`Locks::election`](super::Locks::election).
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::Engine;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let locks = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).locks();
/// let election = locks.election("scheduler", "host-1");
/// let leadership = election.campaign().await?;
/// assert_eq!(election.leader().await?.unwrap().candidate, "host-1");
/// leadership.resign().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its name as a candidate.
    pub candidate: String,
    /// Its fencing token: greater than those of all leaders before.
    pub token: Token,
    /// Since when, by its own clock.
    pub since: Timestamp,
}

/// Being the leader. Dropped, it resigns in the background. It tells what a [`Tenure`] tells.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership(LockGuard);

impl Leadership {
    /// How far it can be relied upon, for others than the one who resigns.
    pub fn tenure(&self) -> Tenure {
        self.0.tenure()
    }

    /// Hands over to the first who waits, at once; `lock_not_held` if it did not lead any more.
    pub async fn resign(self) -> Result<()> {
        self.0.release().await
    }
}

impl Deref for Leadership {
    type Target = Tenure;

    fn deref(&self) -> &Tenure {
        &self.0
    }
}

impl Election {
    pub(super) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// How long a leader that died is waited for: see [`Lock::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Waits until this candidate leads, however long.
    pub async fn campaign(&self) -> Result<Leadership> {
        self.lock.acquire().await.map(Leadership)
    }

    /// Campaigns, and runs `work` while this candidate leads. When it leads no longer, `work` is
    /// dropped where it stands, and runs anew when it leads again. Once `work` has ended while
    /// leading, resigns and answers what it came to.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let locks = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).locks();
    /// let election = locks.election("scheduler", "host-1");
    /// let led = election.lead(async |tenure| tenure.token()).await?;
    /// assert!(led < election.lead(async |tenure| tenure.token()).await?);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn lead<T, F>(&self, mut work: impl FnMut(Tenure) -> F) -> Result<T>
    where
        // Not an `AsyncFnMut`: what that answers cannot be told to be `Send`.
        F: Future<Output = T>,
    {
        loop {
            let leadership = self.campaign().await?;
            let work = work(leadership.tenure());
            match leadership.0.run(work).await {
                Err(error) if error.code() == "lock_not_held" => {}
                answer => return answer,
            }
        }
    }

    /// Who leads now.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let keys = self.lock.check()?;
        Ok(self.lock.locks.stored(&keys).await?.and_then(leader))
    }

    /// Who leads now, and then each time that changes; `None`: nobody. A leader that comes and goes
    /// while nobody looks may be left out. While the store is away, waits.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use futures::TryStreamExt;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let locks = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).locks();
    /// let election = locks.election("scheduler", "host-1");
    /// let mut leaders = election.observe()?;
    /// assert_eq!(leaders.try_next().await?, Some(None));
    /// let leadership = election.campaign().await?;
    /// let leader = leaders.try_next().await?.flatten().unwrap();
    /// assert_eq!((leader.candidate.as_str(), leader.token), ("host-1", leadership.token()));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn observe(&self) -> Result<BoxStream<'static, Result<Option<Leader>>>> {
        let engine = self.lock.locks.engine.clone();
        let keys = self.lock.check()?;
        let watching = Watching::register(&engine, keys.lock.clone(), None);
        let seen: Option<Option<Leader>> = None;
        let locks = self.lock.locks.clone();
        let leaders = stream::unfold(Some((watching, seen)), move |state| {
            let (engine, locks, keys) = (engine.clone(), locks.clone(), keys.clone());
            async move {
                let (watching, mut seen) = state?;
                loop {
                    let stored = match locks.stored(&keys).await {
                        Ok(stored) => stored,
                        Err(Error::Unavailable(_)) => {
                            engine.clock().sleep(POLL).await;
                            continue;
                        }
                        Err(error) => return Some((Err(error), None)),
                    };
                    let until = stored.as_ref().map(|stored| stored.until);
                    let leader = stored.and_then(leader);
                    if seen.as_ref() != Some(&leader) {
                        seen = Some(leader.clone());
                        return Some((Ok(leader), Some((watching, seen))));
                    }
                    watching.changed(until, Duration::MAX).await;
                }
            }
        });
        Ok(leaders.boxed())
    }
}

/// One who has yet to take what was reserved for it does not lead.
fn leader(stored: Stored) -> Option<Leader> {
    (!stored.reserved).then_some(Leader {
        candidate: stored.owner,
        token: stored.token,
        since: stored.since,
    })
}
