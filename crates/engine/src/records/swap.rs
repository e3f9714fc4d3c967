//! Writing only if things are as expected: on one record, or on several at once.

use std::time::Duration;

use plimsoll_core::error::{Conflict, Invalid};
use plimsoll_core::ids::CommitId;
use plimsoll_core::record::{Fields, Value};
use plimsoll_core::store::{Commit, Guard, Merge, Outcome, Put, Write};
use plimsoll_core::task::NewTask;
use plimsoll_core::{Error, Key, Name, Result, Revision};

use super::{Records, collect, field};
use crate::answer::unanswered;

/// What is expected of one record, and what to write to it if all of that holds. Writes take effect in
/// the order given.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::Engine;
/// use plimsoll_engine::records::{Swap, Swapped};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
/// records.put("job", [("state", "pending")], None).await?;
/// let claim = |worker: &str| {
///     Swap::new("job")
///         .when("state", "pending")
///         .when_unset("worker")
///         .set("state", "claimed")
///         .set("worker", worker)
///         .add("claims", 1)
/// };
/// assert!(records.swap(claim("w1")).await?.is_done());
/// match records.swap(claim("w2")).await? {
///     Swapped::Done(_) => unreachable!("w1 has it"),
///     Swapped::Refused(guard) => {
///         assert_eq!(guard.to_string(), r#"field state of record job is b"pending""#);
///     }
/// }
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is written before it is given to Records::swap or Records::commit"]
pub struct Swap {
    /// The first wrong input is told when it is sent.
    parts: Result<Parts, Invalid>,
}

#[derive(Clone, Debug)]
struct Parts {
    key: Key,
    guards: Vec<Guard>,
    writes: Vec<Write>,
}

/// What became of a [`Swap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped<T = Option<Revision>> {
    /// All that was expected held, and everything is written. The record is at this revision; `None`:
    /// it was deleted, or nothing was to be written to it.
    Done(T),
    /// This did not hold, and nothing is written.
    Refused(Guard),
}

impl<T> Swapped<T> {
    /// Whether everything is written.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

impl Swap {
    /// Of the record with this key: nothing expected yet, and nothing to write.
    pub fn new(key: impl AsRef<str>) -> Self {
        match Key::new(key) {
            Ok(key) => Self::of(&key),
            Err(invalid) => Self {
                parts: Err(invalid),
            },
        }
    }

    /// The same of a key that was checked before.
    pub(super) fn of(key: &Key) -> Self {
        let parts = Parts {
            key: key.clone(),
            guards: Vec::new(),
            writes: Vec::new(),
        };
        Self { parts: Ok(parts) }
    }

    /// Makes this write, which must be to the same record.
    pub(super) fn then(self, write: Write) -> Self {
        self.write(|_| Ok(write))
    }

    /// Only if the field has this value.
    pub fn when(self, name: impl AsRef<str>, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.guard(|key| Ok(Guard::Field(key, field(name)?, Some(value.into()))))
    }

    /// Only if the record has no such field, or is not there.
    pub fn when_unset(self, name: impl AsRef<str>) -> Self {
        self.guard(|key| Ok(Guard::Field(key, field(name)?, None)))
    }

    /// Only if there is no such record, or it has expired.
    pub fn when_absent(self) -> Self {
        self.guard(|key| Ok(Guard::RecordAbsent(key)))
    }

    /// Only if there is such a record.
    pub fn when_present(self) -> Self {
        self.guard(|key| Ok(Guard::RecordPresent(key)))
    }

    /// Only if the record is still what was read at this revision. A new time to live makes it another one,
    /// and watches are not told of that: read it again before swapping.
    ///
    /// Whoever works on a record alone expects what the own last write has left ([`Swapped::Done`]): then nothing that others
    /// have written meanwhile is overwritten, be it an end, or what the same worker has written in another life.
    pub fn when_at(self, revision: Revision) -> Self {
        self.guard(|key| Ok(Guard::RecordAt(key, revision)))
    }

    /// Sets a field.
    pub fn set(self, name: impl AsRef<str>, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.merge(name, |merge, name| {
            merge.set(Fields::from([(name, value.into())]))
        })
    }

    /// Removes a field. This is a write as every other: where there is no record, it leaves one without fields, which lives for
    /// ever. Expect it with [`when_present`](Self::when_present) if that is not meant.
    pub fn unset(self, name: impl AsRef<str>) -> Self {
        self.merge(name, Merge::unset)
    }

    /// Adds to an integer; one that is not there counts as zero.
    pub fn add(self, name: impl AsRef<str>, number: i64) -> Self {
        self.merge(name, |merge, name| merge.add(name, number))
    }

    /// Raises an integer to this, if it is lower or not there.
    pub fn raise(self, name: impl AsRef<str>, number: i64) -> Self {
        self.merge(name, |merge, name| merge.raise(name, number))
    }

    /// Replaces the record with these fields; it lives for `ttl`, or for ever.
    pub fn put<N: AsRef<str>, V: Into<Value>>(
        self,
        fields: impl IntoIterator<Item = (N, V)>,
        ttl: Option<Duration>,
    ) -> Self {
        self.write(|key| {
            let fields = collect(fields)?;
            Ok(Write::Put(Put { key, fields, ttl }))
        })
    }

    /// Removes the record.
    pub fn delete(self) -> Self {
        self.write(|key| Ok(Write::Delete(key)))
    }

    /// Lets the record live for `ttl` from now, or for ever. It must be there: `record_not_found`.
    pub fn touch(self, ttl: Option<Duration>) -> Self {
        self.write(|key| Ok(Write::Touch(key, ttl)))
    }

    /// Submits a task in the same commit: it is there as soon as everything else is written, and not before.
    ///
    /// What became of it is not answered: it is read by its id, or by its key if it has one.
    ///
    /// With an idempotency key, its conflict policy decides if the key stands for another task: by default that one is
    /// left as it is, also if it has ended and its key is kept, and the rest is written. With
    /// [`OnConflict::Reject`](plimsoll_core::task::OnConflict::Reject) it is an error, `key_taken`, and nothing is written.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// use plimsoll_engine::records::Swap;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
    /// let (records, tasks) = (engine.records(), engine.tasks());
    /// records.put("upload.7", [("state", "received")], None).await?;
    /// let scan = tasks.task("uploads", "scan", "upload.7")?;
    /// let begun = Swap::new("upload.7").when("state", "received").set("state", "scanning");
    /// assert!(records.swap(begun.submit(scan.clone())).await?.is_done());
    /// assert_eq!(tasks.get(scan.id).await?.spec.payload, "upload.7");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn submit(self, task: NewTask) -> Self {
        self.write(|_| Ok(Write::Submit(Box::new(task))))
    }

    fn guard(self, guard: impl FnOnce(Key) -> Result<Guard, Invalid>) -> Self {
        self.with(|parts| {
            parts.guards.push(guard(parts.key.clone())?);
            Ok(())
        })
    }

    fn write(self, write: impl FnOnce(Key) -> Result<Write, Invalid>) -> Self {
        self.with(|parts| {
            parts.writes.push(write(parts.key.clone())?);
            Ok(())
        })
    }

    /// Fields that are changed one after another are changed by one write, as long as each is another one.
    fn merge(self, name: impl AsRef<str>, change: impl FnOnce(Merge, Name) -> Merge) -> Self {
        self.with(|parts| {
            let name = field(name)?;
            let merge = match parts.writes.pop() {
                Some(Write::Merge(merge)) if !merge.names(&name) => merge,
                before => {
                    parts.writes.extend(before);
                    Merge::new(parts.key.clone())
                }
            };
            parts.writes.push(Write::Merge(change(merge, name)));
            Ok(())
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Parts) -> Result<(), Invalid>) -> Self {
        self.parts = self.parts.and_then(|mut parts| {
            change(&mut parts)?;
            Ok(parts)
        });
        self
    }
}

impl Records {
    /// Writes to one record if it is as expected, and says what became of it.
    pub async fn swap(&self, swap: Swap) -> Result<Swapped> {
        Ok(match self.commit([swap]).await? {
            Swapped::Done(mut revisions) => Swapped::Done(revisions.pop().flatten()),
            Swapped::Refused(guard) => Swapped::Refused(guard),
        })
    }

    /// Writes to several records if all are as expected: everything or nothing. Answers the revision
    /// of each, in order, or what did not hold first.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// use plimsoll_engine::records::Swap;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// records.put("account.ada", [("balance", 100)], None).await?;
    /// let transfer = [
    ///     Swap::new("account.ada").when("balance", 100).add("balance", -30),
    ///     Swap::new("account.bob").add("balance", 30),
    /// ];
    /// assert!(records.commit(transfer).await?.is_done());
    /// assert_eq!(records.get_field("account.bob", "balance").await?.unwrap(), "30");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn commit(
        &self,
        swaps: impl IntoIterator<Item = Swap>,
    ) -> Result<Swapped<Vec<Option<Revision>>>> {
        self.commit_as(self.engine.ids().commit(), swaps).await
    }

    /// Like [`commit`](Self::commit), with an id by which it can be asked for again: what was written
    /// with this id in the last ten minutes is not written again, and answered as it was. What was
    /// refused is decided anew.
    pub async fn commit_as(
        &self,
        id: CommitId,
        swaps: impl IntoIterator<Item = Swap>,
    ) -> Result<Swapped<Vec<Option<Revision>>>> {
        let mut commit = Commit::new().id(id);
        let mut counts = Vec::new();
        for (index, swap) in swaps.into_iter().enumerate() {
            let parts = (swap.parts).map_err(|e| e.within(format_args!("swaps[{index}]")))?;
            counts.push(parts.writes.len());
            commit.guards.extend(parts.guards);
            commit.writes.extend(parts.writes);
        }
        let receipt = match self.send(commit).await {
            Ok(receipt) => receipt,
            Err(Error::Conflict(conflict)) => match *conflict {
                Conflict::Guard { guard, .. } => return Ok(Swapped::Refused(guard)),
                conflict => return Err(conflict.into()),
            },
            Err(error) => return Err(error),
        };
        let mut outcomes = receipt.outcomes.into_iter();
        let revisions = counts.into_iter().map(|count| {
            let mut revision = None;
            for _ in 0..count {
                revision = match outcomes.next() {
                    Some(Outcome::Written { revision, .. }) => Some(revision),
                    Some(Outcome::Removed { .. }) => None,
                    Some(Outcome::Submitted(_)) => revision,
                    _ => return Err(unanswered()),
                };
            }
            Ok(revision)
        });
        Ok(Swapped::Done(revisions.collect::<Result<_>>()?))
    }
}
