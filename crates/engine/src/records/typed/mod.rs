//! Structs as records: each field of the struct is a field of the record.
//!
//! | in the struct | in the record |
//! |---|---|
//! | text, characters, unit variants of enums | the UTF-8 of it |
//! | integers | decimal |
//! | booleans | `true` or `false` |
//! | bytes (what serde calls so, such as `Bytes`) | as they are |
//! | `None` | the field is not there |
//! | everything else | JSON |
//!
//! So filters, increments and people see what they expect. Reading goes by the type: text that is `123`
//! stays text. What does not say its type is not guessed, but refused: `serde_json::Value`, and enums
//! that are untagged or have their tag inside (put them in a struct, map or list, which is JSON), and
//! what `#[serde(flatten)]` brings in. A number that is not finite is refused before anything is written: JSON has none.

mod decode;
mod encode;

use std::marker::PhantomData;
use std::time::Duration;

use plimsoll_core::error::Conflict;
use plimsoll_core::record::{Fields, Record};
use plimsoll_core::store::{Merge, Put, Write};
use plimsoll_core::{Key, Result, Revision};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use decode::{from_fields, from_record};
pub use encode::to_fields;

use super::{Records, Swap, Swapped};
use crate::Retries;

/// How an update is tried again when others were faster: sooner than after a lost answer, because the
/// store is there, and more often.
const CONTENTION: Retries = Retries {
    tries: 50,
    first: Duration::from_millis(1),
    cap: Duration::from_millis(100),
};

/// Records that hold a `T` each.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::Engine;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Job {
///     state: String,
///     step: u32,
///     worker: Option<String>,
///     labels: Vec<String>,
/// }
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
/// let jobs = records.typed::<Job>();
/// let labels = vec!["night".into()];
/// let job = Job { state: "pending".into(), step: 0, worker: None, labels };
/// jobs.put("job.7", &job, None).await?;
///
/// let record = records.get("job.7").await?.unwrap();
/// assert_eq!(record.field("step").unwrap(), "0");
/// assert_eq!(record.field("labels").unwrap(), r#"["night"]"#);
/// assert!(record.field("worker").is_none());
///
/// let next = |job: Option<Job>| job.map(|job| Job { step: job.step + 1, ..job });
/// assert_eq!(jobs.update("job.7", next).await?.unwrap().step, 1);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Typed<T> {
    records: Records,
    of: PhantomData<fn() -> T>,
}

impl Records {
    /// The same records as values of this type.
    pub fn typed<T: Serialize + DeserializeOwned>(&self) -> Typed<T> {
        Typed {
            records: self.clone(),
            of: PhantomData,
        }
    }
}

impl<T: Serialize + DeserializeOwned> Typed<T> {
    /// The value with this key, if there is one. What cannot be read as such is `corrupt`, and the error
    /// names the record and the field. Fields that the type does not know are left aside.
    pub async fn get(&self, key: impl AsRef<str>) -> Result<Option<T>> {
        let record = self.records.get(key).await?;
        record.as_ref().map(from_record).transpose()
    }

    /// Replaces the record with this value, or creates it; it lives for `ttl`, or for ever.
    pub async fn put(
        &self,
        key: impl AsRef<str>,
        value: &T,
        ttl: Option<Duration>,
    ) -> Result<Revision> {
        self.records.put(key, to_fields(value)?, ttl).await
    }

    /// Makes a new value of the one that is there, and writes that if nobody has written meanwhile;
    /// otherwise does it again with what is there then. `change` answers `None` to leave the record as
    /// it is. Answers what `change` answered last.
    ///
    /// Only fields that differ are written; those that the type does not write, and the time to live,
    /// stay. A field that was found under another name of it (`#[serde(alias)]`) is written under its own, and the other one is
    /// removed. A record that is not there is created. After 50 tries in vain it is `contended`.
    pub async fn update(
        &self,
        key: impl AsRef<str>,
        mut change: impl FnMut(Option<T>) -> Option<T>,
    ) -> Result<Option<T>> {
        let key = Key::new(key)?;
        let mut patience = CONTENTION.patience(&self.records.engine);
        loop {
            let record = self.records.find(&key).await?;
            let before: Option<T> = record.as_ref().map(from_record).transpose()?;
            let known = before.as_ref().map(to_fields).transpose()?;
            let Some(value) = change(before) else {
                return Ok(None);
            };
            let found = record.as_ref().zip(known);
            let Some(swap) = rewrite::<T>(&key, found, to_fields(&value)?) else {
                return Ok(Some(value));
            };
            if let Swapped::Done(_) = self.records.swap(swap).await? {
                return Ok(Some(value));
            }
            if !patience.bears().await {
                let attempts = CONTENTION.tries;
                return Err(Conflict::Contended { attempts }.into());
            }
        }
    }
}

/// What makes these fields of a record and those fields of it that the type writes, if anything has to be
/// written.
fn rewrite<T: DeserializeOwned>(
    key: &Key,
    found: Option<(&Record, Fields)>,
    after: Fields,
) -> Option<Swap> {
    let Some((record, known)) = found else {
        let put = Write::Put(Put::new(key.clone(), after));
        return Some(Swap::of(key).when_absent().then(put));
    };
    let mut written = known;
    written.extend(
        after
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    let others = record.fields.iter();
    let others = others.filter(|(name, _)| !written.contains_key(*name));
    let mut unset = decode::aliases::<T>(&written, others.collect());
    let gone = written.into_keys().filter(|name| !after.contains_key(name));
    unset.extend(gone.filter(|name| record.fields.contains_key(name)));
    let differs = |(name, value): &(_, _)| record.fields.get(name) != Some(value);
    let set: Fields = after.into_iter().filter(differs).collect();
    if set.is_empty() && unset.is_empty() {
        return None;
    }
    let merge = Merge {
        set,
        unset,
        ..Merge::new(key.clone())
    };
    let swap = Swap::of(key).when_at(record.revision);
    Some(swap.then(Write::Merge(merge)))
}
