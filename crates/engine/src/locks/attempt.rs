//! One acquisition: from the first try to the guard, or until it is given up.
//!
//! It takes a lock that is free, or that is reserved for it. Otherwise it stands in line: it writes
//! the queue's record, whose revision is its ticket, and then a record of its own, which it keeps
//! alive. Whoever releases the lock reserves it for the lowest ticket. Between these two writes,
//! and before it waits, it looks again, so that no release goes unseen.

use std::time::Duration;

use plimsoll_core::error::Conflict;
use plimsoll_core::record::Fields;
use plimsoll_core::store::{Commit, Get, Guard, Outcome, Put, Receipt, Write};
use plimsoll_core::{Error, Key, Result, Revision, StoreExt, Token};

use super::decide::{Step, step};
use super::guard::LockGuard;
use super::release::What;
use super::stored::{self, Holder, Keys, Stored};
use super::watch::{POLL, Watching};
use super::{Lock, Locks, refused_by};
use crate::spawn::Spawner;

/// How long one who waits is remembered without a sign of life.
const WAITER_TTL: Duration = Duration::from_secs(30);

/// One acquisition. Dropped before its end, it gives up in the background what it has.
pub(super) struct Attempt {
    lock: Lock,
    keys: Keys,
    holder: Holder,
    spawner: Spawner,
    /// When it began.
    since: Duration,
    place: Option<InLine>,
    /// It may have the lock, for all it knows.
    unsure: bool,
}

/// A place in the line.
#[derive(Clone)]
struct InLine {
    key: Key,
    /// When its record was last prolonged.
    kept: Duration,
}

enum Next {
    Have(LockGuard),
    Look,
    Wait(Stored),
}

impl Attempt {
    pub(super) fn new(lock: &Lock) -> Result<Self> {
        Ok(Self {
            keys: lock.check()?,
            holder: Holder(lock.locks.engine.ids().request()),
            lock: lock.clone(),
            spawner: Spawner::current(),
            since: lock.locks.engine.clock().monotonic(),
            place: None,
            unsure: false,
        })
    }

    /// Takes it if it is free.
    pub(super) async fn at_once(&mut self) -> Result<LockGuard> {
        match self
            .take(Guard::RecordAbsent(self.keys.lock.clone()))
            .await?
        {
            Some(guard) => Ok(guard),
            None => self.look_again().await,
        }
    }

    /// Takes it if it is free, or for this one; otherwise says who has it.
    pub(super) async fn look_again(&mut self) -> Result<LockGuard> {
        loop {
            match self.next(false).await? {
                Next::Have(guard) => return Ok(guard),
                Next::Look => {}
                Next::Wait(stored) => {
                    return Err(Conflict::LockNotAcquired {
                        lock: self.keys.name.clone(),
                        owner: stored.owner,
                        until: stored.until,
                    }
                    .into());
                }
            }
        }
    }

    /// Takes it when its turn has come.
    pub(super) async fn in_turn(&mut self) -> Result<LockGuard> {
        let engine = self.lock.locks.engine.clone();
        if !engine.room().is_waited_for(&self.keys.name) {
            let free = Guard::RecordAbsent(self.keys.lock.clone());
            match self.take(free).await {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) | Err(Error::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let _turn = engine.room().turn(&self.keys.name).await;
        let lock = self.keys.lock.clone();
        let watching = Watching::register(&engine, lock, Some(self.holder));
        loop {
            match self.next(true).await {
                Ok(Next::Have(guard)) => return Ok(guard),
                Ok(Next::Look) => {}
                Ok(Next::Wait(_)) => watching.changed(&engine).await,
                Err(Error::Unavailable(_)) => engine.clock().sleep(POLL).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Looks at the lock and does the next thing.
    async fn next(&mut self, stand_in_line: bool) -> Result<Next> {
        let (stored, in_line) = self.look().await?;
        let lock = self.keys.lock.clone();
        let taken = match step(stored, self.holder, in_line) {
            Step::Take => self.take(Guard::RecordAbsent(lock)).await?,
            Step::TakeReserved(at) => self.take(Guard::RecordAt(lock, at)).await?,
            Step::Keep(token, at) => self.keep(token, at).await?,
            Step::Enrol(_) if stand_in_line => {
                self.unsure = false;
                self.enrol().await?;
                None
            }
            Step::Enrol(stored) | Step::Wait(stored) => {
                self.unsure = false;
                self.keep_place().await?;
                return Ok(Next::Wait(stored));
            }
        };
        Ok(taken.map_or(Next::Look, Next::Have))
    }

    async fn look(&self) -> Result<(Option<Stored>, bool)> {
        let mut keys = vec![self.keys.lock.clone()];
        keys.extend(self.place.as_ref().map(|place| place.key.clone()));
        let store = &self.locks().engine.room().store;
        let get = || store.get(Get { keys: keys.clone() });
        let mut records = self.locks().patiently(get).await?.into_iter();
        let stored = match records.next().flatten() {
            Some(record) => Some(Stored::read(&record)?),
            None => None,
        };
        Ok((stored, records.next().flatten().is_some()))
    }

    /// Takes the lock as it was seen; `None`: it is not so any more.
    async fn take(&mut self, as_seen: Guard) -> Result<Option<LockGuard>> {
        let (clock, locks) = (self.locks().engine.clock().clone(), self.locks().clone());
        let (owner, metadata) = (&self.lock.owner, self.lock.metadata.as_ref());
        let now = clock.now();
        let put = stored::held(&self.keys, self.holder, owner, metadata, now, self.lock.ttl)?;
        let mut commit = Commit::new().guard(as_seen).write(Write::Put(put));
        if let Some(place) = &self.place {
            commit = commit.write(Write::Delete(place.key.clone()));
        }
        self.unsure = true;
        let mut sent = Duration::ZERO;
        let store = &locks.engine.room().store;
        let answer = locks.patiently(|| {
            sent = clock.monotonic();
            store.commit_one(commit.clone())
        });
        match answer.await {
            Ok(receipt) => {
                let token = Token::new(written(&receipt)?.get());
                Ok(Some(self.have(token, sent, false)))
            }
            Err(error) if refused_by(&error).is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes sure of a lock that it found itself to have, and of when that ends; `None`: it has
    /// not any more.
    async fn keep(&mut self, token: Token, at: Revision) -> Result<Option<LockGuard>> {
        let sent = self.locks().engine.clock().monotonic();
        // As it was seen: if its time is over and an earlier call takes it once more, late, the
        // token is another.
        let as_seen = Guard::RecordAt(self.keys.lock.clone(), at);
        let renewal = self.keys.renewal(self.holder, self.lock.ttl, Some(token))?;
        let renewal = renewal.guard(as_seen);
        match self.locks().commit(renewal).await {
            Ok(_) => Ok(Some(self.have(token, sent, true))),
            Err(error) if refused_by(&error).is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn have(&mut self, token: Token, sent: Duration, told: bool) -> LockGuard {
        self.unsure = false;
        let engine = &self.locks().engine;
        let took = engine.clock().monotonic().saturating_sub(self.since);
        engine.telemetry().locks.acquired(took);
        let waited = self.place.take().is_some();
        let (lock, keys) = (&self.lock, self.keys.clone());
        LockGuard::new(lock, keys, self.holder, token, sent)
            .renewed_by(&self.spawner, told)
            .likely_waited_for(waited)
    }

    /// Takes a ticket, and stands in line with it.
    async fn enrol(&mut self) -> Result<()> {
        let locks = self.locks().clone();
        let mark = Put::new(self.keys.queue.clone(), Fields::new()).ttl(WAITER_TTL);
        let receipt = locks.commit(Commit::of(Write::Put(mark))).await?;
        let place = InLine {
            key: self.keys.waiter(written(&receipt)?, &self.holder)?,
            kept: locks.engine.clock().monotonic(),
        };
        let about = stored::about(self.holder, &self.lock.owner)?;
        let waiter = Put::new(place.key.clone(), about).ttl(WAITER_TTL);
        let mut commit = Commit::of(Write::Put(waiter));
        if let Some(before) = self.place.replace(place) {
            commit = commit.write(Write::Delete(before.key));
        }
        locks.commit(commit).await.map(drop)
    }

    /// Prolongs the place in the line when that is due. One that is gone is taken anew at the next
    /// look.
    async fn keep_place(&mut self) -> Result<()> {
        let now = self.locks().engine.clock().monotonic();
        let due = |place: &&InLine| now.saturating_sub(place.kept) >= WAITER_TTL / 2;
        let Some(key) = self.place.as_ref().filter(due).map(|place| &place.key) else {
            return Ok(());
        };
        let commit = Commit::new()
            .write(Write::Touch(key.clone(), Some(WAITER_TTL)))
            .write(Write::Touch(self.keys.queue.clone(), Some(WAITER_TTL)));
        match self.locks().commit(commit).await {
            Ok(_) => {
                self.place.iter_mut().for_each(|place| place.kept = now);
                Ok(())
            }
            Err(Error::NotFound(_)) => self.enrol().await,
            Err(error) => Err(error),
        }
    }

    fn locks(&self) -> &Locks {
        &self.lock.locks
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let place = self.place.take();
        if place.is_none() && !self.unsure {
            return;
        }
        let (locks, keys, holder) = (self.locks().clone(), self.keys.clone(), self.holder);
        self.spawner.spawn(async move {
            if let Some(place) = place {
                let leave = Commit::of(Write::Delete(place.key));
                if let Err(error) = locks.commit(leave).await {
                    tracing::debug!(%error, "a place in the line for a lock is left to expire");
                }
            }
            // It may have been reserved for this one meanwhile.
            if let Err(error) = locks.give_up(&keys, What::All(holder), true).await {
                tracing::debug!(%error, "nothing to give up");
            }
        });
    }
}

/// The revision that the first write of a commit has left.
fn written(receipt: &Receipt) -> Result<Revision> {
    match receipt.outcomes.first() {
        Some(Outcome::Written { revision, .. }) => Ok(*revision),
        _ => Err(Error::Corrupt(
            "the store did not answer what was asked".into(),
        )),
    }
}
