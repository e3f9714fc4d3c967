//! Giving a lock up, to whoever waits for it.

use std::time::Duration;

use plimsoll_core::record::Record;
use plimsoll_core::store::{Commit, Guard, Scan, Write};
use plimsoll_core::{Error, Result};

use super::stored::{self, Holder, Keys, Waiter};
use super::{Locks, not_held};
use crate::answer::refused_by;

/// How long a lock is reserved for the first in line. Twice as long as anybody waits for a hint
/// where stores have to be polled.
const RESERVATION: Duration = Duration::from_secs(2);

/// What to give up.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// The lock, which this one had.
    Held(Holder),
    /// Whatever this one has, or what is reserved for it.
    All(Holder),
}

impl Locks {
    /// Gives this up: to the first in line, or to nobody. `lock_not_held` if there is nothing.
    ///
    /// Each commit has an id: its repeat could not be told from one that comes too late otherwise.
    pub(super) async fn give_up(
        &self,
        keys: &Keys,
        what: What,
        mut waited_for: bool,
    ) -> Result<()> {
        let guards = match what {
            What::Held(holder) => keys.held_by(holder)?.to_vec(),
            What::All(holder) => vec![keys.is_for(holder)?],
        };
        loop {
            let first = match waited_for {
                true => self.first_in_line(keys).await?,
                false => None,
            };
            let mut commit = Commit::new();
            commit.guards = guards.clone();
            let commit = match &first {
                Some(waiter) => self.reserving(commit, keys, waiter)?,
                // One who enrols now looks at the lock again afterwards.
                None if waited_for => commit.write(Write::Delete(keys.lock.clone())),
                None => commit
                    .guard(Guard::RecordAbsent(keys.line.clone()))
                    .write(Write::Delete(keys.lock.clone())),
            };
            let commit = commit.id(self.engine.ids().commit());
            let error = match self.commit(commit).await {
                Ok(_) => {
                    if first.is_some() {
                        self.engine.telemetry().locks.handed_over();
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            match refused_by(&error) {
                Some(index) if index < guards.len() => return Err(not_held(keys)),
                // Somebody waits, or the first in line has gone.
                Some(_) => waited_for = true,
                None => return Err(error),
            }
        }
    }

    /// Reserves a lock that nobody has for this one, who is the first in line: its holder has died.
    /// If anything has changed meanwhile, does nothing.
    pub(super) async fn reserve(&self, keys: &Keys, first: &Waiter) -> Result<()> {
        let free = Commit::new().guard(Guard::RecordAbsent(keys.lock.clone()));
        let commit = self.reserving(free, keys, first)?;
        self.unless_refused(commit).await.map(drop)
    }

    fn reserving(&self, commit: Commit, keys: &Keys, first: &Waiter) -> Result<Commit> {
        let now = self.engine.clock().now();
        let reserved = stored::reserved(keys, first, now, RESERVATION)?;
        Ok(commit
            .guard(Guard::RecordPresent(first.place.clone()))
            .write(Write::Put(reserved))
            .write(Write::Delete(first.place.clone())))
    }

    /// The first in line. Places that cannot be read are nobody's, and are removed.
    pub(super) async fn first_in_line(&self, keys: &Keys) -> Result<Option<Waiter>> {
        let store = &self.engine.room().store;
        let mut scan = Scan::new(keys.waiters()?, 1);
        loop {
            let page = self.patiently(|| store.scan(scan.clone())).await?;
            for record in &page.rows {
                match Waiter::read(record) {
                    Ok(first) => return Ok(Some(first)),
                    Err(error) => drop(self.remove(keys, record, &error).await?),
                }
            }
            scan.cursor = page.next;
            if scan.cursor.is_none() {
                return Ok(None);
            }
        }
    }

    /// Removes a record that cannot be read, if it is as it was seen; says whether it was.
    pub(super) async fn remove(&self, keys: &Keys, record: &Record, why: &Error) -> Result<bool> {
        tracing::warn!(error = %why, lock = %keys.name, "removing what cannot be read of a lock");
        let as_seen = Guard::RecordAt(record.key.clone(), record.revision);
        let commit = Commit::of(Write::Delete(record.key.clone())).guard(as_seen);
        self.unless_refused(commit).await
    }

    async fn unless_refused(&self, commit: Commit) -> Result<bool> {
        match self.commit(commit).await {
            Ok(_) => Ok(true),
            Err(error) if refused_by(&error).is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
