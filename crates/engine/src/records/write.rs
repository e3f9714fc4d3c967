//! Writing one record.

use std::time::Duration;

use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::record::{Record, Value, integer};
use plimsoll_core::store::{Merge, Outcome, Put, Write};
use plimsoll_core::{Error, Key, Name, Result, Revision};

use super::{Records, Swap, collect, field};
use crate::answer::unanswered;

impl Records {
    /// Replaces the record, or creates it: it has these fields and no others, and lives for `ttl`, or
    /// for ever.
    pub async fn put<N: AsRef<str>, V: Into<Value>>(
        &self,
        key: impl AsRef<str>,
        fields: impl IntoIterator<Item = (N, V)>,
        ttl: Option<Duration>,
    ) -> Result<Revision> {
        let put = Put {
            key: Key::new(key)?,
            fields: collect(fields)?,
            ttl,
        };
        revision(self.write(Write::Put(put)).await?)
    }

    /// Removes the record, and says whether it was there.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// records.put("a", [("n", 1)], None).await?;
    /// assert!(records.delete("a").await?);
    /// assert!(!records.delete("a").await?);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn delete(&self, key: impl AsRef<str>) -> Result<bool> {
        match self.write(Write::Delete(Key::new(key)?)).await? {
            Outcome::Removed { existed } => Ok(existed),
            _ => Err(unanswered()),
        }
    }

    /// Sets one field, and leaves the others and the time to live as they are. A record that is not
    /// there is created.
    pub async fn set_field(
        &self,
        key: impl AsRef<str>,
        name: impl AsRef<str>,
        value: impl Into<Value>,
    ) -> Result<Revision> {
        self.set_fields(key, [(name, value)], &[]).await
    }

    /// Sets some fields and removes others, all at once, and leaves the rest and the time to live as
    /// they are. A record that is not there is created, and lives for ever: without fields, if there are only some to remove.
    /// To remove fields of what is there alone, expect it: [`Swap::when_present`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// records.put("job", [("state", "running"), ("timeout_at", "1700000000000")], None).await?;
    /// records.set_fields("job", [("state", "completed")], &["timeout_at"]).await?;
    /// assert_eq!(records.get("job").await?.unwrap().fields.len(), 1);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn set_fields<N: AsRef<str>, V: Into<Value>>(
        &self,
        key: impl AsRef<str>,
        set: impl IntoIterator<Item = (N, V)>,
        unset: &[&str],
    ) -> Result<Revision> {
        let unset: Result<_, Invalid> = unset.iter().map(field).collect();
        let merge = Merge {
            set: collect(set)?,
            unset: unset?,
            ..Merge::new(Key::new(key)?)
        };
        revision(self.merged(merge).await?)
    }

    /// Sets, removes, adds to and raises fields, all at once, and answers the record as it is
    /// afterwards.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Key, Memory, Name, Namespace, record::fields, store::Merge};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// let merge = Merge::new(Key::new("import.7")?)
    ///     .set(fields([("file", "b.csv")])?)
    ///     .add(Name::new("rows")?, 500)
    ///     .raise(Name::new("offset")?, 8_192);
    /// assert_eq!(records.merge(merge).await?.field("rows").unwrap(), "500");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn merge(&self, merge: Merge) -> Result<Record> {
        match self.merged(merge.returning()).await? {
            Outcome::Written { record, .. } => record.ok_or_else(unanswered),
            _ => Err(unanswered()),
        }
    }

    /// A merge that changes nothing would still make a record of nothing.
    async fn merged(&self, merge: Merge) -> Result<Outcome> {
        let names = merge.set.len() + merge.unset.len() + merge.add.len() + merge.raise.len();
        if names == 0 {
            return Err(Invalid::new("fields", Problem::Empty).into());
        }
        self.write(Write::Merge(merge)).await
    }

    /// Adds to an integer in a field, and answers the sum. A field or record that is not there counts
    /// as zero. Nobody's addition is lost, and none is made twice.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// assert_eq!(records.increment("visits", "home", 2).await?, 2);
    /// assert_eq!(records.increment("visits", "home", -1).await?, 1);
    /// records.set_field("visits", "home", "many").await?;
    /// let refused = records.increment("visits", "home", 1).await.unwrap_err();
    /// assert_eq!(refused.code(), "not_integer");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn increment(
        &self,
        key: impl AsRef<str>,
        name: impl AsRef<str>,
        by: i64,
    ) -> Result<i64> {
        let name = field(name)?;
        let merge = Merge::new(Key::new(key)?).add(name.clone(), by);
        number(&self.merge(merge).await?, &name)
    }

    /// Raises an integer in a field to `to`, if it is lower or not there, and answers what it is then:
    /// an offset that never goes back, whoever reports late.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// assert_eq!(records.raise("reader", "offset", 700).await?, 700);
    /// assert_eq!(records.raise("reader", "offset", 300).await?, 700);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn raise(&self, key: impl AsRef<str>, name: impl AsRef<str>, to: i64) -> Result<i64> {
        let name = field(name)?;
        let merge = Merge::new(Key::new(key)?).raise(name.clone(), to);
        number(&self.merge(merge).await?, &name)
    }

    /// Lets the record live for `ttl` from now, and leaves its fields as they are. `record_not_found`
    /// if it is not there. The history does not show it.
    pub async fn touch(&self, key: impl AsRef<str>, ttl: Duration) -> Result<Revision> {
        let touch = Write::Touch(Key::new(key)?, Some(ttl));
        revision(self.write(touch).await?)
    }

    /// Lets the record live for ever. `record_not_found` if it is not there. The history does not show it.
    pub async fn persist(&self, key: impl AsRef<str>) -> Result<Revision> {
        let persist = Write::Touch(Key::new(key)?, None);
        revision(self.write(persist).await?)
    }

    /// Sets a field to `new` if it is `expected`, and says whether it did. One that took effect says so
    /// also when its first answer was lost.
    ///
    /// Do not write what belongs to it afterwards: whoever dies in between leaves half of it. Write all
    /// at once with [`swap`](Self::swap).
    pub async fn compare_and_swap(
        &self,
        key: impl AsRef<str>,
        name: impl AsRef<str>,
        expected: impl Into<Value>,
        new: impl Into<Value>,
    ) -> Result<bool> {
        let name = name.as_ref();
        let swap = Swap::new(key).when(name, expected).set(name, new);
        Ok(self.swap(swap).await?.is_done())
    }
}

fn revision(outcome: Outcome) -> Result<Revision> {
    match outcome {
        Outcome::Written { revision, .. } => Ok(revision),
        _ => Err(unanswered()),
    }
}

fn number(record: &Record, name: &Name) -> Result<i64> {
    let number = record.fields.get(name).and_then(|value| integer(value));
    number.ok_or_else(|| {
        Error::Corrupt(format!("record {}: bad or missing {name}", record.key).into())
    })
}
