//! Reads in the books of a store what happened: the history while it grows, and in the end every
//! task and every count of completions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use plimsoll::change::{Change, Interest, TaskChange, TaskEvent};
use plimsoll::record::integer;
use plimsoll::store::{Changes, Counts, Get, Start, Tasks};
use plimsoll::task::{FailureKind, Status};
use plimsoll::{Fence, Result, Store, TaskId, Timestamp};

use super::job::{self, Job};

/// How many rows are read at once.
const PAGE: usize = 1_000;

/// What the history says.
pub(crate) struct Books {
    store: Arc<dyn Store>,
    start: Start,
    tasks: HashMap<TaskId, History>,
    pub(super) submitted: u64,
    pub(crate) completed: u64,
    pub(super) retried: u64,
    pub(crate) expired: u64,
    stale: u64,
    /// Claims whose fence is not above all before.
    fallen: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

/// What the history says of one task.
#[derive(Debug, Default)]
struct History {
    completed: u64,
    /// The last fence it was claimed with.
    claimed: Option<Fence>,
    /// The last fence whose lease ran out.
    expired: Option<Fence>,
}

/// What all books together say in the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) retried: u64,
    pub(super) expired: u64,
    /// Leases that ran out, by the name of who held them.
    pub(super) expired_of: BTreeMap<String, u64>,
    pub(super) attempts: u64,
    /// Writes of a holder whose lease had run out before. None may ever be in the books.
    pub(super) stale: u64,
    /// Tasks that are not completed, or not counted as such.
    pub(super) lost: u64,
    /// Completions beyond the first of each task.
    pub(super) done_twice: u64,
    /// Claims whose fence is not above all before.
    pub(super) fences_fallen: u64,
    /// Tasks that are done and have a lease.
    pub(super) leases_left: u64,
    /// By how much the counts of lanes differ from the tasks.
    pub(super) miscounted: u64,
    /// From the first submit to the last completion.
    pub(super) seconds: f64,
}

impl Books {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            start: Start::Oldest,
            tasks: HashMap::new(),
            submitted: 0,
            completed: 0,
            retried: 0,
            expired: 0,
            stale: 0,
            fallen: 0,
            first: None,
            last: None,
        }
    }

    /// Reads on to the end of the history.
    pub(crate) async fn follow(&mut self) -> Result<()> {
        loop {
            let page = self.store.changes(Changes {
                start: self.start,
                interests: vec![Interest::tasks()],
                limit: PAGE,
            });
            let page = page.await?;
            for entry in page.entries {
                for change in entry.changes {
                    if let Change::Task(change) = change {
                        self.read(&change, entry.at);
                    }
                }
            }
            self.start = Start::After(page.next);
            if !page.more {
                return Ok(());
            }
        }
    }

    /// How often a task was completed, as the history says.
    pub(crate) fn completions(&self, task: TaskId) -> u64 {
        self.tasks.get(&task).map_or(0, |history| history.completed)
    }

    /// Writes of a holder whose lease had run out before. None may ever be in the books.
    pub(crate) fn stale(&self) -> u64 {
        self.stale
    }

    fn read(&mut self, change: &TaskChange, at: Timestamp) {
        let history = self.tasks.entry(change.id).or_default();
        let stale = history.expired.is_some_and(|fence| change.fence <= fence);
        match change.event {
            TaskEvent::Submitted => {
                self.submitted += 1;
                self.first.get_or_insert(at);
                return;
            }
            TaskEvent::Completed => {
                history.completed += 1;
                self.completed += 1;
                self.last = Some(at);
            }
            TaskEvent::Failed => self.retried += 1,
            TaskEvent::Expired => {
                history.expired = Some(change.fence);
                self.expired += 1;
                return;
            }
            TaskEvent::Snoozed | TaskEvent::Released | TaskEvent::Amended => {}
            TaskEvent::Claimed => {
                let last = history.claimed.replace(change.fence);
                self.fallen += u64::from(last.is_some_and(|last| change.fence <= last));
                return;
            }
            TaskEvent::Promoted
            | TaskEvent::CancelRequested
            | TaskEvent::Cancelled
            | TaskEvent::Retried
            | TaskEvent::Unblocked
            | TaskEvent::Deleted => return,
        }
        self.stale += u64::from(stale);
    }

    /// Reads every task and every count, and compares them with the history.
    pub(super) async fn audit(mut self, job: &Job) -> Result<Audit> {
        self.follow().await?;
        let expected = job.expected();
        let mut audit = Audit {
            submitted: self.submitted,
            completed: self.completed,
            retried: self.retried,
            expired: self.expired,
            stale: self.stale,
            fences_fallen: self.fallen,
            seconds: match (self.first, self.last) {
                (Some(first), Some(last)) => last.since(first).as_secs_f64(),
                _ => 0.0,
            },
            ..Audit::default()
        };
        for ids in expected.chunks(PAGE) {
            self.audit_page(ids, &mut audit).await?;
        }
        let counts = self.store.counts(Counts::default()).await?;
        let counts = || counts.iter().flat_map(|lane| &lane.by_status);
        let completed = counts().filter(|(status, _)| **status == Status::Completed);
        let (all, completed): (u64, u64) = (
            counts().map(|(_, count)| count).sum(),
            completed.map(|(_, count)| count).sum(),
        );
        let done = expected.len() as u64;
        audit.miscounted = completed.abs_diff(done) + all.abs_diff(done);
        Ok(audit)
    }

    async fn audit_page(&self, ids: &[TaskId], audit: &mut Audit) -> Result<()> {
        let keys = ids.iter().map(|id| job::done_key(*id));
        let keys = keys.collect::<Result<_>>()?;
        let counts = self.store.get(Get { keys }).await?;
        let tasks = self.store.tasks(Tasks { ids: ids.to_vec() }).await?;
        for ((id, task), count) in ids.iter().zip(tasks).zip(counts) {
            let number = |field: &str| integer(count.as_ref()?.field(field)?);
            let counted = number(job::TIMES).unwrap_or(0).unsigned_abs();
            let told = self.completions(*id);
            let status = task.as_ref().map(|task| task.status);
            let done = status == Some(Status::Completed) && counted > 0 && told > 0;
            audit.lost += u64::from(!done);
            audit.done_twice += counted.max(told).saturating_sub(1);
            let Some(task) = task else { continue };
            audit.attempts += u64::from(task.attempts);
            audit.leases_left += u64::from(task.lease.is_some());
            // Whoever completed it must have been the last to claim it.
            let by = number(job::FENCE).map(i64::unsigned_abs);
            audit.stale += u64::from(by.is_some_and(|fence| fence != task.fence.get()));
            for error in &task.errors {
                if error.kind == FailureKind::LeaseExpired {
                    let holder = error.worker.name.to_string();
                    *audit.expired_of.entry(holder).or_default() += 1;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::record::fields;
    use plimsoll::store::{Commit, Merge, Write};
    use plimsoll::task::Lane;
    use plimsoll::{Engine, Memory, Name, Namespace, Revision, StoreExt};

    use super::*;

    /// An engine on which the first tasks of a job are done.
    async fn done(job: &Job) -> Engine {
        let namespace = Namespace::new(&job.namespace).unwrap();
        let engine = Engine::new(Arc::new(Memory::new().open(namespace)));
        for receipt in engine.store().commit(job.commits(job.tasks).unwrap()).await {
            receipt.unwrap();
        }
        let worker = engine.worker("w").queue(job::QUEUE);
        let worker = (job::KINDS.into_iter()).fold(worker, |w, kind| w.handle(kind, job::handle));
        let worker = worker.build().unwrap();
        worker.run_until_empty().await.unwrap();
        engine
    }

    fn job(tasks: u64) -> Job {
        let namespace = "test".into();
        Job { namespace, tasks }
    }

    #[tokio::test]
    async fn what_is_missing_or_counted_twice_is_found() {
        let engine = done(&job(3)).await;
        let audit = async |tasks| Books::new(engine.store().clone()).audit(&job(tasks)).await;
        let good = audit(3).await.unwrap();
        assert_eq!((good.submitted, good.completed), (3, 3));
        assert_eq!((good.lost, good.done_twice, good.stale), (0, 0, 0));
        let more = audit(5).await.unwrap();
        assert_eq!(
            (more.lost, more.done_twice),
            (2, 0),
            "two were never submitted"
        );
        let key = job::done_key(job(3).expected()[1]).unwrap();
        let again = Merge::new(key.clone()).add(Name::new(job::TIMES).unwrap(), 1);
        let commit = Commit::of(Write::Merge(again)).id(engine.ids().commit());
        engine.store().commit_one(commit).await.unwrap();
        let twice = audit(3).await.unwrap();
        assert_eq!((twice.lost, twice.done_twice, twice.stale), (0, 1, 0));
        let by_another = Merge::new(key.clone()).set(fields([(job::FENCE, "0")]).unwrap());
        engine
            .store()
            .write(Write::Merge(by_another))
            .await
            .unwrap();
        assert_eq!(audit(3).await.unwrap().stale, 1);
        engine.store().write(Write::Delete(key)).await.unwrap();
        let uncounted = audit(3).await.unwrap();
        assert_eq!((uncounted.lost, uncounted.done_twice), (1, 0));
    }

    #[test]
    fn a_write_after_the_end_of_its_lease_is_found() {
        let namespace = Namespace::new("test").unwrap();
        let mut books = Books::new(Arc::new(Memory::new().open(namespace)));
        let mut happens = |event, fence| {
            let change = TaskChange {
                id: TaskId::from_u128(1),
                lane: Lane::new("q", "k").unwrap(),
                group: None,
                event,
                status: Status::Claimed,
                fence: Fence::new(fence),
                revision: Revision::new(1),
            };
            books.read(&change, Timestamp::MIN);
            (books.stale, books.completed)
        };
        happens(TaskEvent::Claimed, 1);
        happens(TaskEvent::Expired, 1);
        assert_eq!(happens(TaskEvent::Promoted, 1), (0, 0));
        assert_eq!(happens(TaskEvent::Failed, 1), (1, 0));
        assert_eq!(happens(TaskEvent::Completed, 1), (2, 1));
        happens(TaskEvent::Claimed, 2);
        assert_eq!(happens(TaskEvent::Completed, 2), (2, 2));
    }
}
