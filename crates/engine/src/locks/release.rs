//! Giving a lock up, to whoever waits for it.

use std::time::Duration;

use plimsoll_core::record::Record;
use plimsoll_core::store::{Commit, Guard, Merge, Scan, Write};
use plimsoll_core::{Invalid, Name, Result, Token};

use super::stored::{self, HOLDER, Holder, Keys};
use super::{Locks, not_held, refused_by};

/// How long a lock is reserved for the first in line. Twice as long as anybody waits for a hint.
const RESERVED: Duration = Duration::from_secs(2);

impl Keys {
    /// Only if this one has the lock.
    pub(super) fn held_by(&self, holder: Holder) -> Result<Guard, Invalid> {
        let field = Name::new(HOLDER)?;
        let holder = Some(holder.bytes());
        Ok(Guard::Field(self.lock.clone(), field, holder))
    }

    /// Prolongs the lock, but not what is only reserved: a place in the line that is written late may
    /// be that of one who has had its turn. The first renewal carries the token: the revision does
    /// not tell it any more afterwards.
    pub(super) fn renewal(
        &self,
        holder: Holder,
        ttl: Duration,
        token: Option<Token>,
    ) -> Result<Commit, Invalid> {
        let reserved = Name::new(stored::RESERVED)?;
        let mut commit = Commit::new()
            .guard(self.held_by(holder)?)
            .guard(Guard::Field(self.lock.clone(), reserved, None));
        if let Some(token) = token {
            let merge = Merge::new(self.lock.clone()).set(stored::token(token)?);
            commit = commit.write(Write::Merge(merge));
        }
        Ok(commit.write(Write::Touch(self.lock.clone(), Some(ttl))))
    }
}

impl Locks {
    /// Gives up what this holder has, or what is reserved for it: to the first in line, or to
    /// nobody. `lock_not_held` if it has nothing.
    ///
    /// Each commit has an id: its repeat could not be told from one that comes too late otherwise.
    pub(super) async fn give_up(
        &self,
        keys: &Keys,
        holder: Holder,
        mut waited_for: bool,
    ) -> Result<()> {
        loop {
            let first = match waited_for {
                true => self.first_in_line(keys).await?,
                false => None,
            };
            let commit = Commit::new().guard(keys.held_by(holder)?);
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
                Some(0) => return Err(not_held(keys)),
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
