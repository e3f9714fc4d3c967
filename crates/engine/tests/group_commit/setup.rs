//! A store whose calls are counted and held up, with group commit in front of it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Around, Decorated, FaultPlan, Faults, Method};
use plimsoll_core::record::{fields, integer};
use plimsoll_core::store::{Claim, Claimed, Commit, Merge, Pick, Put, Receipt, Renew, Write};
use plimsoll_core::task::{Holder, Lane, NewTask, WorkerId};
use plimsoll_core::{
    Error, Ids, Key, Limits, Memory, Name, Namespace, Result, Store, StoreExt, TaskId, Timestamp,
};
use plimsoll_engine::{Bounds, GroupCommit};
use tokio::sync::Semaphore;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Counts the calls that can be merged, and holds each up until it is let through.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    made: Arc<Mutex<Vec<Method>>>,
    passes: Arc<Semaphore>,
    broken: Arc<AtomicBool>,
}

impl Gate {
    /// The calls that reached the store so far, also those that are held up.
    pub(crate) fn made(&self) -> Vec<Method> {
        self.made.lock().unwrap().clone()
    }

    /// Lets this many calls through.
    pub(crate) fn pass(&self, calls: usize) {
        self.passes.add_permits(calls);
    }

    /// Holds nothing up any more.
    pub(crate) fn open(&self) {
        self.passes.close();
    }

    /// Lets every call panic, or no longer.
    pub(crate) fn break_down(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    /// Waits until this many calls have reached the store.
    pub(crate) async fn reached(&self, calls: usize) {
        for _ in 0..1_000 {
            if self.made().len() >= calls {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("only {:?} reached the store", self.made());
    }
}

impl Around for Gate {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        use Method::{Claim, Commit, Exchange, Renew};
        if matches!(method, Commit | Claim | Renew | Exchange) {
            self.made.lock().unwrap().push(method);
            if let Ok(pass) = self.passes.acquire().await {
                pass.forget();
            }
            assert!(!self.broken.load(Ordering::SeqCst), "broken on purpose");
        }
        call().await
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}

pub(crate) struct Setup {
    pub(crate) clock: ManualClock,
    pub(crate) ids: Ids,
    pub(crate) plan: FaultPlan,
    pub(crate) gate: Gate,
    /// The store itself.
    pub(crate) bare: Arc<dyn Store>,
    /// With group commit, the gate and faults in front of it.
    pub(crate) merged: Arc<dyn Store>,
}

pub(crate) fn setup() -> Result<Setup> {
    setup_with(Limits::default(), Bounds::default())
}

pub(crate) fn setup_with(limits: Limits, bounds: Bounds) -> Result<Setup> {
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let memory = Memory::with(shared.clone(), limits);
    let bare: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("test")?));
    let plan = FaultPlan::none();
    let gate = Gate {
        made: Arc::default(),
        passes: Arc::new(Semaphore::new(0)),
        broken: Arc::default(),
    };
    let faults = Faults::new(plan.clone(), shared.clone());
    let faulty = Arc::new(Decorated::new(bare.clone(), faults));
    let gated = Arc::new(Decorated::new(faulty, gate.clone()));
    Ok(Setup {
        merged: Arc::new(GroupCommit::new(gated, bounds, shared.clone())),
        ids: Ids::seeded(1, shared),
        clock,
        plan,
        gate,
        bare,
    })
}

/// A call that was made, and waits.
pub(crate) type Waiting<F> = Pin<Box<F>>;

/// Makes a call, which must wait.
pub(crate) fn begin<F: Future>(call: F) -> Waiting<F> {
    let mut call = Box::pin(call);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending());
    call
}

impl Setup {
    /// Makes the first call, a commit, which the gate holds up.
    pub(crate) async fn hold_up(&self) -> Result<Waiting<impl Future<Output = Result<Receipt>>>> {
        let (store, commit) = (self.merged.clone(), put("first")?);
        let first = begin(async move { store.commit_one(commit).await });
        self.gate.reached(1).await;
        Ok(first)
    }

    /// Adds one to the sum, once.
    pub(crate) fn increment(&self) -> Result<Commit> {
        let merge = Merge::new(Key::new("sum")?).add(Name::new("n")?, 1);
        Ok(Commit::of(Write::Merge(merge)).id(self.ids.commit()))
    }

    pub(crate) async fn sum(&self) -> Result<i64> {
        let record = self.bare.record(&Key::new("sum")?).await?;
        let sum = record.and_then(|record| integer(record.field("n")?));
        Ok(sum.unwrap_or(0))
    }

    pub(crate) fn task(&self) -> Result<NewTask> {
        Ok(NewTask::new(self.ids.task(), Lane::new("q", "k")?, "x"))
    }

    /// Claims the next task for a new worker.
    pub(crate) fn claim(&self) -> Result<Claim> {
        Ok(Claim {
            pick: Pick::Next {
                lanes: vec![Lane::new("q", "k")?],
                limit: 1,
            },
            worker: WorkerId {
                name: Name::new("w")?,
                incarnation: self.ids.incarnation(),
            },
            lease: LEASE,
            request: self.ids.request(),
        })
    }

    /// Holds a task of its own, not through group commit.
    pub(crate) async fn hold(&self) -> Result<Holder> {
        self.bare.submit(self.task()?).await?;
        let claimed = self.bare.claim(self.claim()?).await?;
        Ok(claimed.tasks[0].holder().unwrap())
    }

    pub(crate) async fn lease_end(&self, task: TaskId) -> Result<Timestamp> {
        let task = self.bare.task(task).await?.unwrap();
        Ok(task.lease.as_ref().unwrap().until)
    }
}

pub(crate) fn put(key: &str) -> Result<Commit> {
    put_value(key, "v")
}

pub(crate) fn put_value(key: &str, value: &str) -> Result<Commit> {
    let fields = fields([("f", value.to_owned())])?;
    Ok(Commit::of(Write::Put(Put::new(Key::new(key)?, fields))))
}

pub(crate) fn renew(holders: &[&Holder]) -> Renew {
    Renew {
        holders: holders.iter().copied().cloned().collect(),
        lease: LEASE,
    }
}

pub(crate) fn ids_of(claimed: &Claimed) -> Vec<TaskId> {
    claimed.tasks.iter().map(|task| task.id()).collect()
}

pub(crate) fn is_unknown<T>(answer: &Result<T>) -> bool {
    use plimsoll_core::error::Applied;
    matches!(answer, Err(Error::Unavailable(lost)) if lost.applied == Applied::Unknown)
}
