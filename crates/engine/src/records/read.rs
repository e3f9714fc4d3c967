//! Reading records by key.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::error::{Invalid, NotFound};
use plimsoll_core::record::Record;
use plimsoll_core::store::Get;
use plimsoll_core::{Key, Result, StoreExt, Timestamp};

use super::{Records, field};

impl Records {
    /// The record with this key, if there is one. One that has expired is not there.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// assert!(records.get("app.config").await?.is_none());
    /// let revision = records.put("app.config", [("theme", "dark")], None).await?;
    /// let record = records.get("app.config").await?.unwrap();
    /// assert_eq!(record.field("theme").unwrap(), "dark");
    /// assert_eq!(record.revision, revision);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn get(&self, key: impl AsRef<str>) -> Result<Option<Record>> {
        self.find(&Key::new(key)?).await
    }

    pub(super) async fn find(&self, key: &Key) -> Result<Option<Record>> {
        let store = self.store();
        self.patiently(|| store.record(key)).await
    }

    /// The records with these keys, in the order asked, all as they were at one moment. More keys
    /// than one read of the store takes (1,000 by default) are refused: they could not be.
    pub async fn get_many<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Record>>> {
        let keys = keys.into_iter().map(Key::new);
        let get = Get {
            keys: keys.collect::<Result<_, Invalid>>()?,
        };
        let store = self.store();
        self.patiently(|| store.get(get.clone())).await
    }

    /// The value of a field; `None` if the record has no such field, or there is no record.
    pub async fn get_field(
        &self,
        key: impl AsRef<str>,
        name: impl AsRef<str>,
    ) -> Result<Option<Bytes>> {
        let name = field(name)?;
        let record = self.get(key).await?;
        Ok(record.and_then(|mut record| record.fields.remove(&name)))
    }

    /// How long the record has to live, by the store's clock; `None`: for ever. `record_not_found`
    /// if it is not there.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// let minute = Duration::from_secs(60);
    /// records.put("session.7", [("user", "ada")], Some(minute)).await?;
    /// assert!(records.ttl("session.7").await?.unwrap() <= minute);
    /// records.persist("session.7").await?;
    /// assert_eq!(records.ttl("session.7").await?, None);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn ttl(&self, key: impl AsRef<str>) -> Result<Option<Duration>> {
        let key = Key::new(key)?;
        let record = self.find(&key).await?;
        let gone = || NotFound::Record(key.clone());
        let Some(expires_at) = record.ok_or_else(gone)?.expires_at else {
            return Ok(None);
        };
        let left = expires_at.since(self.ping().await?);
        // It may have expired between the two calls.
        if left.is_zero() {
            return Err(gone().into());
        }
        Ok(Some(left))
    }

    /// Asks the store that holds the records for its time.
    pub async fn ping(&self) -> Result<Timestamp> {
        let store = self.store();
        self.patiently(|| store.ping()).await
    }

    /// Closes this handle to the store. Whatever is asked of it afterwards is answered `closed`. What
    /// is stored stays.
    pub async fn close(&self) -> Result<()> {
        self.engine.tasks().with_retries(self.retries).close().await
    }
}
