//! Looking at locks, and taking them away.

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use plimsoll_core::record::Record;
use plimsoll_core::store::{Cursor, Get, Page, Scan};
use plimsoll_core::{Error, Name, Prefix, Result, StoreExt, Timestamp, Token};
use serde::Serialize;

use super::release::What;
use super::stored::{Keys, LOCKS, Stored};
use super::{Locks, not_acquired};

/// How many locks a page has that nobody asked for.
const PAGE: usize = 200;

/// A lock, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockState {
    /// Its name.
    pub name: Name,
    /// Who has it, in the words of whoever took it.
    pub owner: String,
    /// What its holder says about it.
    pub metadata: Option<Bytes>,
    /// The fencing token of its holder.
    pub token: Token,
    /// When its holder took it, by that one's clock.
    pub since: Timestamp,
    /// When it ends unless it is renewed, by the store's clock. [`Timestamp::MAX`] if somebody has
    /// taken its time to live away.
    pub until: Timestamp,
    /// Its last holder has released it to `owner`, who has yet to take it.
    pub reserved: bool,
    /// How many stand in line for it: one of each process.
    pub waiting: u64,
}

impl Locks {
    /// The lock of this name, if somebody has it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let locks = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).locks();
    /// let guard = locks.lock("report").owner("ada").acquire().await?;
    /// let state = locks.get("report").await?.unwrap();
    /// assert_eq!((state.owner.as_str(), state.token), ("ada", guard.token()));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn get(&self, name: impl AsRef<str>) -> Result<Option<LockState>> {
        let keys = Keys::of(Name::for_field("lock", name)?)?;
        match self.stored(&keys).await? {
            Some(stored) => self.state(keys, stored).await.map(Some),
            None => Ok(None),
        }
    }

    /// A page of the locks that somebody has and whose names begin with `prefix`, in name order.
    /// What cannot be read is an error in its place.
    pub async fn list(
        &self,
        prefix: impl AsRef<str>,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Result<LockState>>> {
        let prefix = Prefix::new(format!("{LOCKS}{}", prefix.as_ref()))?;
        let store = &self.engine.room().store;
        let scan = Scan {
            cursor,
            ..Scan::new(prefix, limit)
        };
        let page = self.patiently(|| store.scan(scan.clone())).await?;
        let rows: Vec<_> = page.rows.iter().map(read).collect();
        let readable = rows.iter().flatten();
        let get = Get {
            keys: readable.map(|(keys, _)| keys.line.clone()).collect(),
        };
        let lines = match get.keys.is_empty() {
            true => Vec::new(),
            false => self.patiently(|| store.get(get.clone())).await?,
        };
        let mut lines = lines.into_iter();
        let mut states = Vec::with_capacity(rows.len());
        for row in rows {
            states.push(match row {
                Ok((keys, stored)) => Ok(match lines.next().flatten() {
                    Some(_) => self.state(keys, stored).await?,
                    None => state(keys, stored, 0),
                }),
                Err(error) => Err(error),
            });
        }
        let next = page.next;
        Ok(Page { rows: states, next })
    }

    /// All locks that somebody has, in name order. What cannot be read is an error in its place, and
    /// the others follow; an error of the store is the last.
    pub fn list_all(&self) -> BoxStream<'static, Result<LockState>> {
        let locks = self.clone();
        let limit = PAGE.min(self.engine.room().store.limits().page_max);
        let pages = stream::try_unfold(Some(None), move |cursor| {
            let locks = locks.clone();
            async move {
                let Some(cursor) = cursor else {
                    return Ok::<_, Error>(None);
                };
                let page = locks.list("", cursor, limit).await?;
                let next = page.next.map(Some);
                Ok(Some((stream::iter(page.rows), next)))
            }
        });
        pages.try_flatten().boxed()
    }

    /// Takes the lock away from whoever has it, and answers what it was; `None` if nobody had it.
    /// The first in line gets it. Its holder hears of it when it renews next, at half its time to
    /// live; until then only the token keeps it from doing harm.
    ///
    /// If the lock has passed to another in the meantime, that one keeps it: `lock_not_acquired`. A
    /// record that cannot be read is removed, and was nobody's.
    pub async fn break_lock(&self, name: impl AsRef<str>) -> Result<Option<LockState>> {
        let keys = Keys::of(Name::for_field("lock", name)?)?;
        let Some(record) = self.record(&keys).await? else {
            return Ok(None);
        };
        let stored = match Stored::read(&record) {
            Ok(stored) => stored,
            Err(error) => {
                let as_seen = self.remove(&keys, &record, &error).await?;
                return if as_seen { Ok(None) } else { Err(error) };
            }
        };
        let broken = self.state(keys.clone(), stored.clone()).await?;
        match self.give_up(&keys, What::All(stored.holder), true).await {
            Ok(()) => Ok(Some(broken)),
            Err(error) if error.code() == "lock_not_held" => match self.stored(&keys).await? {
                Some(other) => Err(not_acquired(&keys, other)),
                None => Ok(None),
            },
            Err(error) => Err(error),
        }
    }

    pub(super) async fn stored(&self, keys: &Keys) -> Result<Option<Stored>> {
        let record = self.record(keys).await?;
        record.as_ref().map(Stored::read).transpose()
    }

    async fn record(&self, keys: &Keys) -> Result<Option<Record>> {
        let store = &self.engine.room().store;
        self.patiently(|| store.record(&keys.lock)).await
    }

    async fn state(&self, keys: Keys, stored: Stored) -> Result<LockState> {
        let store = &self.engine.room().store;
        let mut scan = Scan::new(keys.waiters()?, store.limits().page_max);
        let mut waiting = 0;
        loop {
            let page = self.patiently(|| store.scan(scan.clone())).await?;
            waiting += page.rows.len() as u64;
            scan.cursor = page.next;
            if scan.cursor.is_none() {
                return Ok(state(keys, stored, waiting));
            }
        }
    }
}

fn read(record: &Record) -> Result<(Keys, Stored)> {
    let name = record.key.as_str().strip_prefix(LOCKS).unwrap_or_default();
    let keys = Keys::of(Name::for_field("lock", name)?)?;
    Ok((keys, Stored::read(record)?))
}

fn state(keys: Keys, stored: Stored, waiting: u64) -> LockState {
    LockState {
        name: keys.name,
        owner: stored.owner,
        metadata: stored.metadata,
        token: stored.token,
        since: stored.since,
        until: stored.until,
        reserved: stored.reserved,
        waiting,
    }
}
