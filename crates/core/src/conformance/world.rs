//! What a case works with: a store in a fresh namespace, a clock it may move, and shorthands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::{Clock, ManualClock};
use crate::conformance::{Harness, Opener};
use crate::error::{Conflict, Error, Invalid, Lost, NotFound, Result};
use crate::group::Group;
use crate::ids::{Ids, RequestId, TaskId};
use crate::names::{GroupId, IdempotencyKey, Key, Name, Namespace};
use crate::record::{Fields, Record, fields};
use crate::store::{
    ChangePage, Changes, Claim, Claimed, Commit, Ending, FailRetry, Groups, Outcome, Pick, Put,
    Receipt, Start, Store, StoreExt, Swept, TaskByKey, Write,
};
use crate::task::{Backoff, Holder, Lane, NewTask, RetryPolicy, Status, Task, WorkerId};
use crate::time::Timestamp;

/// The lease that [`World::claim`] asks for.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// The wait between attempts of the tasks that [`World::new_task`] makes: no jitter.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(10);

/// A fresh namespace of the store under test.
#[derive(Clone)]
pub struct World {
    /// A handle to the namespace.
    pub store: Arc<dyn Store>,
    /// The clock of the store.
    pub clock: ManualClock,
    /// Ids that are the same in every run of the case.
    pub ids: Ids,
    opener: Arc<dyn Opener>,
}

impl World {
    pub(super) async fn start(harness: &dyn Harness, case: &str) -> Result<Self> {
        // Namespaces must be fresh across runs on a server that outlives this process, and apart
        // from those of other processes that test the same server.
        static CASES: AtomicU64 = AtomicU64::new(0);
        let clock = ManualClock::new();
        let salt = Ids::random(Arc::new(clock.clone())).below(u64::MAX);
        let turn = CASES.fetch_add(1, Ordering::Relaxed);
        let name: String = case.chars().take(30).collect();
        let namespace = Namespace::new(format!("{name}_{turn}_{salt:016x}"))?;
        let seed = case.bytes().fold(0, |seed: u64, byte| {
            seed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let opener = harness.start(Arc::new(clock.clone())).await?;
        Ok(Self {
            store: opener.open(namespace).await?,
            ids: Ids::seeded(seed, Arc::new(clock.clone())),
            clock,
            opener,
        })
    }

    /// Another handle to the same namespace, as another process would have it.
    pub async fn second(&self) -> Result<Arc<dyn Store>> {
        self.opener.open(self.store.namespace().clone()).await
    }

    /// A handle to another namespace of the same store.
    pub async fn elsewhere(&self) -> Result<Arc<dyn Store>> {
        let name = self.store.namespace().as_str();
        let other: String = name.chars().rev().take(20).collect();
        self.opener
            .open(Namespace::new(format!("other_{other}"))?)
            .await
    }

    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
    }

    /// The store's time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A worker of this name, in a new incarnation each time.
    pub fn worker(&self, name: &str) -> Result<WorkerId> {
        Ok(WorkerId {
            name: Name::for_field("worker", name)?,
            incarnation: self.ids.incarnation(),
        })
    }

    /// A new task in `lane`, tried up to four times, `RETRY_DELAY` apart.
    pub fn new_task(&self, payload: impl Into<Bytes>) -> NewTask {
        NewTask::new(self.ids.task(), lane(), payload).retry(steady_retry(4))
    }

    /// Submits a new task and answers it.
    pub async fn submit(&self, task: NewTask) -> Result<Task> {
        let submitted = self.store.submit(task).await?;
        self.task(submitted.id).await
    }

    /// Submits `count` tasks one after another and answers their ids in this order.
    pub async fn submit_many(&self, count: usize) -> Result<Vec<TaskId>> {
        let mut ids = Vec::with_capacity(count);
        for n in 0..count {
            ids.push(self.submit(self.new_task(n.to_string())).await?.id());
        }
        Ok(ids)
    }

    /// Claims up to `limit` tasks of `lane` for `LEASE`.
    pub async fn claim(&self, worker: &WorkerId, limit: usize) -> Result<Vec<Task>> {
        Ok(self.store.claim(self.next(worker, limit)).await?.tasks)
    }

    /// What [`claim`](Self::claim) asks the store.
    pub fn next(&self, worker: &WorkerId, limit: usize) -> Claim {
        Claim {
            pick: Pick::Next {
                lanes: vec![lane()],
                limit,
            },
            worker: worker.clone(),
            lease: LEASE,
            request: self.ids.request(),
        }
    }

    /// Claims these tasks for `LEASE`.
    pub async fn claim_ids(&self, worker: &WorkerId, ids: &[TaskId]) -> Result<Claimed> {
        let claim = self.by_id(worker, ids, self.ids.request());
        self.store.claim(claim).await
    }

    /// What [`claim_ids`](Self::claim_ids) asks the store.
    pub fn by_id(&self, worker: &WorkerId, ids: &[TaskId], request: RequestId) -> Claim {
        Claim {
            pick: Pick::Ids(ids.to_vec()),
            worker: worker.clone(),
            lease: LEASE,
            request,
        }
    }

    /// Submits a task and claims it: the task as claimed, and its holder.
    pub async fn claimed(&self, task: NewTask) -> Result<(Task, Holder)> {
        let worker = self.worker("worker")?;
        let id = self.store.submit(task).await?.id;
        let claimed = self.claim_ids(&worker, &[id]).await?;
        match claimed.tasks.into_iter().next() {
            Some(task) => {
                let holder = holder(&task);
                Ok((task, holder))
            }
            None => Err(claimed
                .refused
                .into_iter()
                .next()
                .map_or_else(|| Error::from(NotFound::Task(id)), |(_, error)| error)),
        }
    }

    /// The task, which must be there.
    pub async fn task(&self, id: TaskId) -> Result<Task> {
        let task = self.store.task(id).await?;
        task.ok_or_else(|| NotFound::Task(id).into())
    }

    /// The status of a task, which must be there.
    pub async fn status(&self, id: TaskId) -> Result<Status> {
        Ok(self.task(id).await?.status)
    }

    /// The task that a key was last given to.
    pub async fn by_key(&self, key: &str) -> Result<Option<Task>> {
        let key = IdempotencyKey::new(key)?;
        self.store.task_by_key(TaskByKey { key }).await
    }

    /// The group, which must be there. Sweeps first where joins are not made in the commit.
    pub async fn group(&self, id: &str) -> Result<Group> {
        if !self.store.capabilities().joins_in_commit {
            self.sweep().await?;
        }
        let id = GroupId::new(id)?;
        let groups = Groups {
            ids: vec![id.clone()],
        };
        let group = self.store.groups(groups).await?.pop().flatten();
        group.ok_or_else(|| NotFound::Group(id).into())
    }

    /// Puts a record that does not expire.
    pub async fn put<V: Into<Bytes>>(
        &self,
        key: &str,
        pairs: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Result<Record> {
        self.put_record(Put::new(Key::new(key)?, fields(pairs)?))
            .await
    }

    /// Puts a record and answers it.
    pub async fn put_record(&self, put: Put) -> Result<Record> {
        let key = put.key.clone();
        self.store.write(Write::Put(put)).await?;
        let record = self.store.record(&key).await?;
        record.ok_or_else(|| NotFound::Record(key).into())
    }

    /// The record, if it is there.
    pub async fn record(&self, key: &str) -> Result<Option<Record>> {
        self.store.record(&Key::new(key)?).await
    }

    /// Makes one commit under a new id.
    pub async fn commit_with_id(&self, commit: Commit) -> Result<Receipt> {
        self.store.commit_one(commit.id(self.ids.commit())).await
    }

    /// Makes one write in a commit under a new id.
    pub async fn write_with_id(&self, write: Write) -> Result<Outcome> {
        let receipt = self.commit_with_id(Commit::of(write)).await?;
        let outcome = receipt.outcomes.into_iter().next();
        outcome.ok_or_else(|| Error::Corrupt("a receipt without an outcome".into()))
    }

    /// Decides everything that is due.
    pub async fn sweep(&self) -> Result<Swept> {
        let mut total = Swept::default();
        loop {
            let swept = self.store.sweep(1_000, &self.ids).await?;
            total.promoted += swept.promoted;
            total.expired += swept.expired;
            total.records += swept.records;
            total.groups += swept.groups;
            total.next = swept.next;
            total.errors.extend(swept.errors);
            if !swept.more {
                return Ok(total);
            }
        }
    }

    /// The whole history.
    pub async fn history(&self) -> Result<ChangePage> {
        self.history_from(Start::Oldest).await
    }

    /// The history from here to its end.
    pub async fn history_from(&self, mut start: Start) -> Result<ChangePage> {
        let mut all = ChangePage {
            entries: Vec::new(),
            next: Default::default(),
            more: false,
            newest: Default::default(),
        };
        loop {
            let changes = Changes {
                start,
                interests: Vec::new(),
                limit: 1_000,
            };
            let page = self.store.changes(changes).await?;
            all.entries.extend(page.entries);
            (all.next, all.newest) = (page.next, page.newest);
            start = Start::After(page.next);
            if !page.more {
                return Ok(all);
            }
        }
    }
}

/// The lane that cases use unless they need others.
pub(crate) fn lane() -> Lane {
    Lane::new("queue", "kind").expect("both names are valid")
}

/// A policy without jitter, `RETRY_DELAY` apart.
pub(crate) fn steady_retry(max_attempts: u32) -> RetryPolicy {
    RetryPolicy {
        max_attempts,
        backoff: Backoff::Fixed(RETRY_DELAY),
        jitter_percent: 0,
        total: None,
    }
}

/// The holder of a task that was just claimed.
pub(crate) fn holder(task: &Task) -> Holder {
    match task.holder() {
        Some(holder) => holder,
        None => panic!("nobody holds {task:?}"),
    }
}

/// Ends with success.
pub(crate) fn complete() -> Ending {
    Ending::Complete { result: None }
}

/// Ends with a failure that the policy may try again.
pub(crate) fn fail(error: &str) -> Ending {
    fail_with(error, FailRetry::Policy)
}

/// Ends with a failure.
pub(crate) fn fail_with(error: &str, retry: FailRetry) -> Ending {
    Ending::Fail {
        error: error.to_owned(),
        retry,
        jitter: Default::default(),
    }
}

/// The value of a field as text.
pub(crate) fn text(fields: &Fields, name: &str) -> Option<String> {
    let value = fields.get(name)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// A short name that is known to be valid.
pub(crate) fn name(text: &str) -> Result<Name> {
    Ok(Name::new(text)?)
}

/// The conflict that was answered.
pub(crate) fn conflict<T: std::fmt::Debug>(answer: Result<T>) -> Conflict {
    match answer {
        Err(Error::Conflict(conflict)) => *conflict,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

/// Why the lease was lost, as was answered.
pub(crate) fn lost<T: std::fmt::Debug>(answer: Result<T>) -> Lost {
    match answer {
        Err(Error::LeaseLost(lost)) => lost.why,
        other => panic!("expected a lost lease, got {other:?}"),
    }
}

/// What was wrong with the input, as was answered.
pub(crate) fn invalid<T: std::fmt::Debug>(answer: Result<T>) -> Invalid {
    match answer {
        Err(Error::Invalid(invalid)) => invalid,
        other => panic!("expected invalid input, got {other:?}"),
    }
}
