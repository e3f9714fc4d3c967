//! One acquisition: from the first try to the guard, or until it is given up.
//!
//! It takes a lock that is free, or that is reserved for it. Otherwise it stands in line: it writes
//! the line's record, whose revision is its ticket, and then a record of its own, which it keeps
//! alive. Whoever releases the lock, or finds that its holder has died, reserves it for the lowest
//! ticket. Between these two writes, and before it waits, it looks again, so that no release goes
//! unseen.

use std::future::Future;
use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::record::Fields;
use plimsoll_core::store::{Commit, Get, Guard, Outcome, Put, Receipt, Write};
use plimsoll_core::{Error, Key, Result, Revision, StoreExt, Token};
use tokio::sync::oneshot;

use super::decide::{LOOK_MAX, POLL, Step, step};
use super::guard::LockGuard;
use super::release::What;
use super::stored::{self, Holder, Keys, Stored};
use super::watch::Watching;
use super::{Lock, Locks, not_acquired};
use crate::answer::refused_by;
use crate::spawn::Spawner;

/// How long one who waits is remembered without a sign of life.
const WAITER_TTL: Duration = LOOK_MAX.saturating_mul(2);
/// How long the store may take for the last look of one whose time is over, and to hear that it
/// leaves.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// One acquisition. Dropped before its end, it gives up in the background what it has.
pub(super) struct Attempt {
    lock: Lock,
    keys: Keys,
    holder: Holder,
    spawner: Spawner,
    /// When it began.
    since: Duration,
    place: Option<InLine>,
    /// Who had the lock when this one looked last.
    seen: Option<Stored>,
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

impl InLine {
    /// When it is to be prolonged.
    fn due(&self) -> Duration {
        self.kept + WAITER_TTL / 2
    }
}

/// The lock, or which guard of the commit did not hold.
type Taken = Result<LockGuard, usize>;

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
            seen: None,
            unsure: false,
        })
    }

    /// Takes it if it is free.
    pub(super) async fn at_once(&mut self) -> Result<LockGuard> {
        match self.take_free().await? {
            Some(guard) => Ok(guard),
            None => self.look_again().await,
        }
    }

    /// Takes it if it is free, or for this one; otherwise says who has it.
    async fn look_again(&mut self) -> Result<LockGuard> {
        loop {
            match self.next(false).await? {
                Next::Have(guard) => return Ok(guard),
                Next::Look => {}
                Next::Wait(stored) => return Err(not_acquired(&self.keys, stored)),
            }
        }
    }

    /// Takes it when its turn has come.
    pub(super) async fn in_turn(&mut self) -> Result<LockGuard> {
        let engine = self.lock.locks.engine.clone();
        if !engine.room().is_waited_for(&self.keys.name) {
            match self.take_free().await {
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
                Ok(Next::Wait(stored)) => {
                    let kept = self.place.as_ref().map_or(Duration::MAX, InLine::due);
                    watching.changed(Some(stored.until), kept).await;
                }
                Err(Error::Unavailable(_)) => engine.clock().sleep(POLL).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes it when its turn has come, if that is within this time; otherwise leaves the line and
    /// says who has it. A store that does not answer delays that by [`LAST_LOOK`] twice at most.
    pub(super) async fn within(&mut self, limit: Duration) -> Result<LockGuard> {
        let clock = self.locks().engine.clock().clone();
        if let Some(answer) = in_time(clock.as_ref(), limit, self.in_turn()).await {
            return answer;
        }
        let answer = match in_time(clock.as_ref(), LAST_LOOK, self.look_again()).await {
            Some(Err(Error::Unavailable(error))) => Err(self.last_seen(error)),
            Some(answer) => answer,
            None => Err(self.last_seen(Unavailable {
                applied: Applied::Unknown,
                cause: format!("lock {}: no answer in {LAST_LOOK:?}", self.keys.name),
            })),
        };
        if let Some(left) = self.leave() {
            in_time(clock.as_ref(), LAST_LOOK, left).await;
        }
        answer
    }

    /// That another has it, as far as was seen; otherwise why nothing is seen.
    fn last_seen(&mut self, error: Unavailable) -> Error {
        let now = self.locks().engine.clock().now();
        let me = self.holder;
        let other = |stored: &Stored| stored.holder != me && stored.until > now;
        match self.seen.take().filter(other) {
            Some(stored) => not_acquired(&self.keys, stored),
            None => error.into(),
        }
    }

    /// Looks at the lock and does the next thing.
    async fn next(&mut self, stand_in_line: bool) -> Result<Next> {
        let (stored, in_line) = self.look().await?;
        self.seen.clone_from(&stored);
        let taken = match step(stored, self.holder, in_line) {
            Step::Take => self.take_in_order().await?,
            Step::TakeReserved(at) => {
                let as_seen = Guard::RecordAt(self.keys.lock.clone(), at);
                self.take([as_seen]).await?.ok()
            }
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

    /// Takes a lock that nobody has; `None`: somebody has it, or comes first.
    async fn take_free(&mut self) -> Result<Option<LockGuard>> {
        let free = [&self.keys.lock, &self.keys.line].map(|key| Guard::RecordAbsent(key.clone()));
        match self.take(free).await? {
            Ok(guard) => Ok(Some(guard)),
            // Nobody has it, but there is a line.
            Err(1) => self.take_in_order().await,
            Err(_) => Ok(None),
        }
    }

    /// Takes a lock that nobody has if nobody stands before this one; otherwise reserves it for the
    /// first in line.
    async fn take_in_order(&mut self) -> Result<Option<LockGuard>> {
        match self.locks().first_in_line(&self.keys).await? {
            Some(first) if first.holder != self.holder => {
                self.locks().reserve(&self.keys, &first).await?;
                Ok(None)
            }
            Some(_) | None => {
                let free = Guard::RecordAbsent(self.keys.lock.clone());
                Ok(self.take([free]).await?.ok())
            }
        }
    }

    /// Takes the lock as it was seen, or tells what is not so any more.
    ///
    /// The commit has an id: otherwise a copy of it that was held up on its way, and arrives when
    /// the lock was released again, would take it for nobody.
    async fn take<const N: usize>(&mut self, as_seen: [Guard; N]) -> Result<Taken> {
        let (clock, locks) = (self.locks().engine.clock().clone(), self.locks().clone());
        let (owner, metadata) = (&self.lock.owner, self.lock.metadata.as_ref());
        let now = clock.now();
        let put = stored::held(&self.keys, self.holder, owner, metadata, now, self.lock.ttl)?;
        let mut commit = Commit::of(Write::Put(put)).id(locks.engine.ids().commit());
        commit.guards.extend(as_seen);
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
                let at = written(&receipt)?;
                let token = Token::new(at.get());
                match receipt.repeated {
                    // An earlier try took it, and nobody knows how long that is ago.
                    true => Ok(self.keep(token, at).await?.ok_or(0)),
                    false => Ok(Ok(self.have(token, sent, false))),
                }
            }
            Err(error) => refused_by(&error).map_or(Err(error), |guard| Ok(Err(guard))),
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
        let mark = Put::new(self.keys.line.clone(), Fields::new()).ttl(WAITER_TTL);
        let receipt = locks.commit(Commit::of(Write::Put(mark))).await?;
        let place = InLine {
            key: self.keys.waiter(written(&receipt)?, &self.holder)?,
            kept: locks.engine.clock().monotonic(),
        };
        let about = stored::about(self.holder, &self.lock.owner)?;
        let waiter = Put::new(place.key.clone(), about).ttl(WAITER_TTL);
        // With an id: a late copy would leave the place of somebody who is gone.
        let mut commit = Commit::of(Write::Put(waiter)).id(locks.engine.ids().commit());
        if let Some(before) = self.place.replace(place) {
            commit = commit.write(Write::Delete(before.key));
        }
        locks.commit(commit).await.map(drop)
    }

    /// Prolongs the place in the line when that is due. One that is gone is taken anew at the next
    /// look.
    async fn keep_place(&mut self) -> Result<()> {
        let now = self.locks().engine.clock().monotonic();
        let due = |place: &&InLine| place.due() <= now;
        let Some(key) = self.place.as_ref().filter(due).map(|place| &place.key) else {
            return Ok(());
        };
        let commit = Commit::new()
            .write(Write::Touch(key.clone(), Some(WAITER_TTL)))
            .write(Write::Touch(self.keys.line.clone(), Some(WAITER_TTL)));
        match self.locks().commit(commit).await {
            Ok(_) => {
                self.place.iter_mut().for_each(|place| place.kept = now);
                Ok(())
            }
            Err(Error::NotFound(_)) => self.enrol().await,
            Err(error) => Err(error),
        }
    }

    /// Gives up what it has, in the background; `None`: there is nothing to give up.
    fn leave(&mut self) -> Option<oneshot::Receiver<()>> {
        let place = self.place.take();
        if place.is_none() && !self.unsure {
            return None;
        }
        self.unsure = false;
        let (done, left) = oneshot::channel();
        let (locks, keys, holder) = (self.locks().clone(), self.keys.clone(), self.holder);
        self.spawner.spawn(async move {
            if let Some(place) = place {
                let leave = Commit::of(Write::Delete(place.key));
                if let Err(error) = locks.commit(leave).await {
                    tracing::debug!(%error, lock = %keys.name, "a place in the line is left to expire");
                }
            }
            // It may have been reserved for this one meanwhile.
            if let Err(error) = locks.give_up(&keys, What::All(holder), true).await {
                tracing::debug!(%error, lock = %keys.name, "nothing to give up");
            }
            // Whoever does not wait for this does not want to know.
            done.send(()).ok();
        });
        Some(left)
    }

    fn locks(&self) -> &Locks {
        &self.lock.locks
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The answer, if it comes in this time.
async fn in_time<T>(
    clock: &dyn Clock,
    limit: Duration,
    call: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        answer = call => Some(answer),
        () = clock.sleep(limit) => None,
    }
}

/// The revision that the first write of a commit has left.
pub(crate) fn written(receipt: &Receipt) -> Result<Revision> {
    match receipt.outcomes.first() {
        Some(Outcome::Written { revision, .. }) => Ok(*revision),
        _ => Err(Error::Corrupt(
            "the store did not answer what was asked".into(),
        )),
    }
}
