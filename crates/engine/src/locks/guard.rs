//! A lock that is held: renewed in the background, released when dropped.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::{Error, Result, Token};
use tokio::sync::watch;

use super::decide::{self, Renewal};
use super::release::What;
use super::stored::{Holder, Keys};
use super::{Lock, Locks, not_held};
use crate::answer::refused_by;
use crate::spawn::Spawner;

/// How far a lock can be relied upon. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Tenure {
    keys: Arc<Keys>,
    token: Token,
    clock: Arc<dyn Clock>,
    trust: Arc<watch::Sender<Trust>>,
}

#[derive(Clone, Copy, Debug)]
struct Trust {
    until: Duration,
    over: bool,
}

impl Tenure {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.keys.name.as_str()
    }

    /// The fencing token: greater than those of all who had the lock before. Show it to what the
    /// lock protects, and let that refuse a lower one than it has seen.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the lock can still be relied upon: it was renewed in time, as far as this process
    /// knows. Cheap, and right also when the process was paused, or on Linux the machine: it asks
    /// the monotonic clock, and says no a tenth of the time to live before the end.
    pub fn is_held(&self) -> bool {
        let trust = *self.trust.borrow();
        !trust.over && self.clock.monotonic() < trust.until
    }

    /// Resolves when the lock can no longer be relied upon: a renewal was refused or was not
    /// answered in time, or the lock was released.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (mut trust, clock) = (self.trust.subscribe(), self.clock.clone());
        async move {
            loop {
                let Trust { until, over } = *trust.borrow_and_update();
                let left = until.saturating_sub(clock.monotonic());
                if over || left.is_zero() {
                    return;
                }
                // By the clock too: the one who renews may have died, as with its runtime.
                let told = tokio::select! {
                    biased;
                    told = trust.changed() => told.is_ok(),
                    () = clock.sleep(left) => true,
                };
                if !told {
                    return;
                }
            }
        }
    }

    /// Ends it. Answers whether it could be relied upon until now; `None`: it had ended before.
    fn end(&self) -> Option<bool> {
        let held = self.is_held();
        let ends = |trust: &mut Trust| !std::mem::replace(&mut trust.over, true);
        self.trust.send_if_modified(ends).then_some(held)
    }

    fn renewed(&self, sent: Duration, ttl: Duration) {
        let until = decide::trusted_until(sent, ttl);
        self.trust.send_modify(|trust| trust.until = until);
    }
}

/// A lock that is held. It is renewed at half its time to live until it is dropped, and then
/// released in the background. [`release`](Self::release) says what came of it.
///
/// It tells what a [`Tenure`] tells.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct LockGuard {
    locks: Locks,
    tenure: Tenure,
    holder: Holder,
    ttl: Duration,
    sent: Duration,
    waited_for: bool,
    spawner: Option<Spawner>,
}

impl LockGuard {
    /// Holds a lock whose time to live began when `sent` was sent, at the earliest.
    pub(super) fn new(
        lock: &Lock,
        keys: Keys,
        holder: Holder,
        token: Token,
        sent: Duration,
    ) -> Self {
        let until = decide::trusted_until(sent, lock.ttl);
        let over = false;
        Self {
            tenure: Tenure {
                keys: Arc::new(keys),
                token,
                clock: lock.locks.engine.clock().clone(),
                trust: Arc::new(watch::Sender::new(Trust { until, over })),
            },
            locks: lock.locks.clone(),
            holder,
            ttl: lock.ttl,
            sent,
            waited_for: false,
            spawner: None,
        }
    }

    /// Renews it from now on; `told`: its record shows the token already.
    pub(super) fn renewed_by(mut self, spawner: &Spawner, told: bool) -> Self {
        let renewer = Renewer {
            locks: self.locks.clone(),
            tenure: self.tenure.clone(),
            holder: self.holder,
            ttl: self.ttl,
            renewed: self.sent,
            tried: self.sent,
            told,
        };
        spawner.spawn(renewer.run());
        self.spawner = Some(spawner.clone());
        self
    }

    /// Whether to look for those who wait at once when it is released: that saves a call if there
    /// are any.
    pub(super) fn likely_waited_for(mut self, likely: bool) -> Self {
        self.waited_for = likely;
        self
    }

    /// How far the lock can be relied upon, for others than the one who releases it.
    pub fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    /// Releases the lock, to the first in line if somebody waits; `lock_not_held` if it was not
    /// held any more: then another may have had it meanwhile.
    pub async fn release(mut self) -> Result<()> {
        let had = self.tenure.end();
        let (keys, holder) = (self.tenure.keys.clone(), self.holder);
        let held = What::Held(holder);
        let answer = self.locks.give_up(&keys, held, self.waited_for).await;
        // From here on, there is nothing left to do when it is dropped.
        self.spawner = None;
        self.locks.released(had, &answer);
        answer
    }

    /// Runs something until it ends or the lock is lost, and releases the lock. When the lock is
    /// lost, `work` is dropped where it stands. The answer is `lock_not_held` if the lock was lost
    /// before `work` had ended, as far as anybody can tell.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let locks = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).locks();
    /// let guard = locks.lock("report").acquire_within(Duration::from_secs(5)).await?;
    /// let pages = guard.run(async { 12 }).await?;
    /// assert_eq!(pages, 12);
    /// assert!(locks.get("report").await?.is_none());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        let value = tokio::select! {
            biased;
            () = self.tenure.lost() => None,
            value = work => Some(value),
        };
        let keys = self.tenure.keys.clone();
        let Some(value) = value else {
            return Err(not_held(&keys));
        };
        let held = self.tenure.is_held();
        match self.release().await {
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, lock = %keys.name, "a lock is left to expire");
                // That nobody can be told does not change what was so until the work had ended.
                held.then_some(value).ok_or_else(|| not_held(&keys))
            }
            // The store knows better than the clock: what is released was held.
            answer => answer.map(|()| value),
        }
    }
}

impl Deref for LockGuard {
    type Target = Tenure;

    fn deref(&self) -> &Tenure {
        &self.tenure
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let had = self.tenure.end();
        let Some(spawner) = self.spawner.take() else {
            return;
        };
        let (locks, keys) = (self.locks.clone(), self.tenure.keys.clone());
        let (held, waited_for) = (What::Held(self.holder), self.waited_for);
        spawner.spawn(async move {
            let answer = locks.give_up(&keys, held, waited_for).await;
            locks.released(had, &answer);
            if let Err(error) = answer {
                let lock = keys.name.as_str();
                tracing::warn!(%error, lock, "a lock was dropped and could not be released");
            }
        });
    }
}

impl Locks {
    /// Notes that a lock was lost before its holder released it, unless that was noted already.
    fn released(&self, had: Option<bool>, answer: &Result<()>) {
        let lost = match had {
            Some(true) => matches!(answer, Err(error) if error.code() == "lock_not_held"),
            // Its time was over, and the one who renews has not noticed.
            Some(false) => true,
            None => false,
        };
        if lost {
            self.engine.telemetry().locks.lost();
        }
    }
}

/// Renews a lock until it is released or lost.
struct Renewer {
    locks: Locks,
    tenure: Tenure,
    holder: Holder,
    ttl: Duration,
    /// When the last renewal with an answer was sent.
    renewed: Duration,
    /// When the last renewal was sent.
    tried: Duration,
    told: bool,
}

impl Renewer {
    async fn run(mut self) {
        let mut trust = self.tenure.trust.subscribe();
        tokio::select! {
            biased;
            _ = trust.wait_for(|trust| trust.over) => {}
            () = self.keep() => {
                if self.tenure.end().is_some() {
                    self.locks.engine.telemetry().locks.lost();
                }
            }
        }
    }

    /// Renews as long as that can be relied upon.
    async fn keep(&mut self) {
        let (clock, keys) = (self.tenure.clock.clone(), self.tenure.keys.clone());
        let lock = keys.name.as_str();
        loop {
            let now = clock.monotonic();
            match decide::renewal(now, self.renewed, self.tried, self.ttl) {
                Renewal::Over => {
                    tracing::warn!(lock, "a lock was not renewed in time");
                    return;
                }
                Renewal::Wait(time) => clock.sleep(time).await,
                Renewal::Now(patience) => {
                    self.tried = now;
                    let answer = tokio::select! {
                        biased;
                        answer = self.renew() => Some(answer),
                        () = clock.sleep(patience) => None,
                    };
                    match answer {
                        Some(Ok(())) => {
                            self.renewed = now;
                            self.told = true;
                            self.tenure.renewed(now, self.ttl);
                        }
                        Some(Err(error)) if refused_by(&error).is_some() => {
                            tracing::warn!(lock, "a lock was lost");
                            return;
                        }
                        Some(Err(error)) => {
                            tracing::warn!(%error, lock, "a lock cannot be renewed: trying again");
                        }
                        None => tracing::warn!(lock, "a renewal is not answered: trying again"),
                    }
                }
            }
        }
    }

    async fn renew(&self) -> Result<(), Error> {
        let token = (!self.told).then_some(self.tenure.token);
        let renewal = self.tenure.keys.renewal(self.holder, self.ttl, token)?;
        // Once: how often, and until when, is decided above.
        let once = self
            .locks
            .clone()
            .with_retries(crate::tasks::Retries::none());
        once.commit(renewal).await.map(drop)
    }
}
