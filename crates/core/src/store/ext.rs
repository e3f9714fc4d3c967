//! Conveniences over the port, written once for all stores.

use std::future::Future;
use std::pin::Pin;

use crate::error::{Error, Result};
use crate::ids::{Ids, TaskId};
use crate::names::Key;
use crate::record::{Index, Record};
use crate::store::{
    Cancel, Commit, DeclareIndex, Due, Ending, Expire, Get, Outcome, Receipt, Settle, Store,
    Submitted, Tasks, Write,
};
use crate::task::{Holder, NewTask, Status, Task};
use crate::time::Timestamp;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Scheduled tasks that were made runnable.
    pub promoted: u64,
    /// Attempts that were ended because their time ran out.
    pub expired: u64,
    /// Of these, after which the task has failed for good.
    pub failed: u64,
    /// Of these, after which the task is cancelled, as somebody had asked for.
    pub cancelled: u64,
    /// Records that expired.
    pub records: u64,
    /// Groups that were tallied.
    pub groups: u64,
    /// What could not be decided. Each stays for the next sweep and keeps nothing else from it.
    pub errors: Vec<Error>,
    /// When the next thing is due, if nothing is left now.
    pub next: Option<Timestamp>,
    /// Whether there is more to do now.
    pub more: bool,
}

/// Conveniences over the port.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Ids, Memory, Namespace, StoreExt, clock::ManualClock, task::{Lane, NewTask}};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = Memory::new().open(Namespace::new("docs")?);
/// let ids = Ids::seeded(1, Arc::new(ManualClock::new()));
/// let task = NewTask::new(ids.task(), Lane::new("mail", "send")?, "hello");
/// let submitted = store.submit(task).await?;
/// assert!(store.task(submitted.id).await?.is_some());
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
pub trait StoreExt: Store {
    /// Declares an index and fills it, in steps as large as the limits allow. If it breaks off, it goes
    /// on there the next time.
    ///
    /// ```
    /// # use plimsoll_core::record::{Index, fields};
    /// # use plimsoll_core::store::{Put, Range, Scan, Write};
    /// # use plimsoll_core::{Key, Memory, Name, Namespace, Prefix, Store, StoreExt};
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let store = Memory::new().open(Namespace::new("docs")?);
    /// let key = Key::new("gbe.state.tasks.email-send.job_123")?;
    /// let record = fields([("state", "running"), ("updated_at", "999")])?;
    /// store.write(Write::Put(Put::new(key.clone(), record))).await?;
    /// let (prefix, field) = (Prefix::new("gbe.state.tasks.")?, Name::new("updated_at")?);
    /// let index = Index { prefix: prefix.clone(), field: field.clone() };
    /// store.ensure_index(&index).await?;
    /// let stuck = Scan::new(prefix, 100).range(Range::new(field).before(1_000));
    /// assert_eq!(store.scan(stuck).await?.rows[0].key, key);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    fn ensure_index<'a>(&'a self, index: &Index) -> Answer<'a, ()> {
        let declare = DeclareIndex {
            index: index.clone(),
            limit: self.limits().page_max,
        };
        Box::pin(async move {
            while !self.declare_index(declare.clone()).await?.ready {}
            Ok(())
        })
    }

    /// Reads one record.
    fn record<'a>(&'a self, key: &Key) -> Answer<'a, Option<Record>> {
        let keys = vec![key.clone()];
        Box::pin(async move { Ok(self.get(Get { keys }).await?.pop().flatten()) })
    }

    /// Reads one task.
    fn task(&self, id: TaskId) -> Answer<'_, Option<Task>> {
        Box::pin(async move {
            let tasks = self.tasks(Tasks { ids: vec![id] }).await?;
            Ok(tasks.into_iter().next().flatten())
        })
    }

    /// Makes one commit.
    fn commit_one(&self, commit: Commit) -> Answer<'_, Receipt> {
        Box::pin(async move {
            let receipts = self.commit(vec![commit]).await;
            receipts
                .into_iter()
                .next()
                .unwrap_or_else(|| Err(unanswered()))
        })
    }

    /// Makes one write.
    fn write(&self, write: Write) -> Answer<'_, Outcome> {
        Box::pin(async move {
            let receipt = self.commit_one(Commit::of(write)).await?;
            receipt.outcomes.into_iter().next().ok_or_else(unanswered)
        })
    }

    /// Submits one task.
    fn submit(&self, task: NewTask) -> Answer<'_, Submitted> {
        Box::pin(async move {
            match self.write(Write::Submit(Box::new(task))).await? {
                Outcome::Submitted(submitted) => Ok(submitted),
                _ => Err(unanswered()),
            }
        })
    }

    /// Settles one task.
    fn settle(&self, holder: Holder, how: Ending) -> Answer<'_, Outcome> {
        self.write(Write::Settle(Settle { holder, how }))
    }

    /// Cancels one task.
    fn cancel(&self, task: TaskId, reason: Option<String>) -> Answer<'_, Outcome> {
        self.write(Write::Cancel(Cancel { task, reason }))
    }

    /// Decides what time has made ready: promotes what is due, expires what ran out, each in a
    /// commit of its own, at most `limit` of each. Several processes may sweep at once: every
    /// decision acts only on what is still as it was selected.
    fn sweep<'a>(&'a self, limit: usize, ids: &'a Ids) -> Answer<'a, Swept> {
        Box::pin(async move {
            let due = self.due(Due { limit }).await?;
            let mut swept = Swept {
                next: due.next,
                more: due.more,
                ..Swept::default()
            };
            let expire = |(task, fence)| {
                let jitter = ids.jitter();
                Write::Expire(Expire {
                    task,
                    fence,
                    jitter,
                })
            };
            let promote = due.scheduled.into_iter().map(Write::Promote);
            let expire = due.expired.into_iter().map(expire);
            let records = due.records.into_iter().map(Write::ExpireRecord);
            let groups = due.groups.into_iter().map(Write::Tally);
            for (writes, counter) in [
                (promote.collect::<Vec<_>>(), &mut swept.promoted),
                (expire.collect(), &mut swept.expired),
                (records.collect(), &mut swept.records),
                (groups.collect(), &mut swept.groups),
            ] {
                if writes.is_empty() {
                    continue;
                }
                for result in self
                    .commit(writes.into_iter().map(Commit::of).collect())
                    .await
                {
                    match result {
                        Ok(receipt) => {
                            *counter += u64::from(acted(&receipt));
                            match status(&receipt) {
                                Some(Status::Failed) => swept.failed += 1,
                                Some(Status::Cancelled) => swept.cancelled += 1,
                                Some(_) | None => {}
                            }
                        }
                        Err(error) => swept.errors.push(error),
                    }
                }
            }
            Ok(swept)
        })
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

fn acted(receipt: &Receipt) -> bool {
    match receipt.outcomes.first() {
        Some(Outcome::Removed { existed }) => *existed,
        Some(Outcome::Already { .. }) | None => false,
        Some(_) => true,
    }
}

/// What a task has become.
fn status(receipt: &Receipt) -> Option<Status> {
    match receipt.outcomes.first() {
        Some(Outcome::Changed { status, .. }) => Some(*status),
        Some(_) | None => None,
    }
}

fn unanswered() -> Error {
    Error::Corrupt("the store did not answer what was asked".into())
}
