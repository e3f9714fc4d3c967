//! Giving a lock up, to whoever waits for it.

use std::time::Duration;

use plimsoll_core::record::Record;
use plimsoll_core::store::{Commit, Guard, Merge, Scan, Write};
use plimsoll_core::{Invalid, Name, Result, Token};

use super::stored::{self, HOLDER, Holder, Keys};
use super::{Locks, not_held, refused_by};

/// How long a lock is reserved for the first in line. Twice as long as anybody waits for a hint.
const RESERVED: Duration = Duration::from_secs(2);

/// What to give up.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// The lock, which this one had.
    Held(Holder),
    /// Whatever this one has, or what is reserved for it.
    All(Holder),
}

impl Keys {
    /// Only if there is this to give up.
    fn guards(&self, what: What) -> Result<Vec<Guard>, Invalid> {
        Ok(match what {
            What::Held(holder) => vec![self.held_by(holder)?, self.not_reserved()?],
            What::All(holder) => vec![self.held_by(holder)?],
        })
    }

    /// Not if it is only reserved: a place in the line that is written late may be that of one who
    /// has had its turn.
    fn not_reserved(&self) -> Result<Guard, Invalid> {
        let reserved = Name::new(stored::RESERVED)?;
        Ok(Guard::Field(self.lock.clone(), reserved, None))
    }

    /// Only if this one has the lock.
    pub(super) fn held_by(&self, holder: Holder) -> Result<Guard, Invalid> {
        let field = Name::new(HOLDER)?;
        let holder = Some(holder.bytes());
        Ok(Guard::Field(self.lock.clone(), field, holder))
    }

    /// Prolongs the lock. The first renewal carries the token: the revision does not tell it any
    /// more afterwards.
    pub(super) fn renewal(
        &self,
        holder: Holder,
        ttl: Duration,
        token: Option<Token>,
    ) -> Result<Commit, Invalid> {
        let mut commit = Commit::new();
        commit.guards = self.guards(What::Held(holder))?;
        if let Some(token) = token {
            let merge = Merge::new(self.lock.clone()).set(stored::token(token)?);
            commit = commit.write(Write::Merge(merge));
        }
        Ok(commit.write(Write::Touch(self.lock.clone(), Some(ttl))))
    }
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
        let guards = keys.guards(what)?;
        loop {
            let first = match waited_for {
                true => self.first_in_line(keys).await?,
                false => None,
            };
            let mut commit = Commit::new();
            commit.guards = guards.clone();
            let commit = match &first {
                Some(waiter) => {
                    let now = self.engine.clock().now();
                    let reserved = stored::reserved(keys, waiter, now, RESERVED)?;
                    commit
                        .guard(Guard::RecordPresent(waiter.key.clone()))
                        .write(Write::Put(reserved))
                        .write(Write::Delete(waiter.key.clone()))
                }
                // One who enrols now looks at the lock again afterwards.
                None if waited_for => commit.write(Write::Delete(keys.lock.clone())),
                None => commit
                    .guard(Guard::RecordAbsent(keys.queue.clone()))
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

    async fn first_in_line(&self, keys: &Keys) -> Result<Option<Record>> {
        let store = &self.engine.room().store;
        let mut scan = Scan::new(keys.waiters()?, 1);
        loop {
            let page = self.patiently(|| store.scan(scan.clone())).await?;
            let first = page.rows.into_iter().next();
            if first.is_some() || page.next.is_none() {
                return Ok(first);
            }
            scan.cursor = page.next;
        }
    }
}
