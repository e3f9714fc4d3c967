//! Workers inside a test, and the time they live in.
//!
//! Time moves only when nothing else can happen. While handlers run it moves only if one of them
//! waits for the clock, so that a handler may take as long as it likes with a database of its own.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::task::{NewTask, Status, Task};
use plimsoll_core::{Result, Timestamp};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::yield_now;

use super::Kit;
use crate::Sweeper;
use crate::worker::{Summary, Worker, WorkerBuilder};

/// After this many turns of the runtime without a call of the store, nothing happens any more.
const QUIET_TURNS: u32 = 32;
/// How often the store may be called between two moves of time, for each that is allowed in all.
const CALLS_PER_MOVE: u64 = 100;

/// What the clock may be moved for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Handlers that wait for it.
    Empty,
    /// Tasks that are due later, too.
    Ended,
}

impl Kit {
    /// Submits a task and lets the worker work on this one alone, once. Answers the task as it is
    /// then: completed, failed, or scheduled for a retry, with what went wrong in `errors`. A panic
    /// of the handler is a failure that begins with `panicked:`.
    ///
    /// Fails the test if the task is not runnable now, or the worker has no handler for it.
    ///
    /// ```
    /// # use plimsoll_core::task::Status;
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let worker = kit.worker("w1").queue("mail").handle("send", async || Err::<(), _>("no route"));
    /// let task = kit.perform(worker, kit.tasks().task("mail", "send", "hello")?).await;
    /// assert_eq!(task.status, Status::Scheduled);
    /// assert_eq!(task.errors[0].message, "no route");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn perform(&self, worker: WorkerBuilder, task: NewTask) -> Task {
        let worker = build(worker);
        let submitted = self.tasks().submit(task).await;
        let id = submitted.unwrap_or_else(|error| panic!("{error}")).id;
        let who = worker.id().clone();
        self.store.restrict(&who, self.task(id));
        let summary = self.work(worker, Until::Empty).await;
        let refused = self.store.release(&who);
        let task = self.task(id);
        if summary.started == 0 {
            let lane = &task.spec.lane;
            match refused {
                Some(why) => panic!("the task was not run: {why}"),
                None => panic!("the task was not run: the worker has no handler for {lane}"),
            }
        }
        task
    }

    /// Lets the worker work until nothing is left that it could do now. Tasks that are due later
    /// are left: see [`drain_all`](Self::drain_all).
    ///
    /// ```
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// for name in ["ada", "bob"] {
    ///     kit.tasks().submit(kit.tasks().json("mail", "send", name)?).await?;
    /// }
    /// let worker = kit.worker("w1").queue("mail").handle("send", async || {});
    /// assert_eq!(kit.drain(worker).await.completed, 2);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn drain(&self, worker: WorkerBuilder) -> Summary {
        self.work(build(worker), Until::Empty).await
    }

    /// Like [`drain`](Self::drain), and moves the clock to whatever is due next, as often as
    /// needed: retries, snoozes, delayed tasks, leases of workers that died. In the end nothing is
    /// left but tasks that the worker has no handler for.
    ///
    /// Fails the test if that does not come to an end, and says what is still waiting.
    ///
    /// ```
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let id = kit.tasks().submit(kit.tasks().task("mail", "send", "hello")?).await?.id;
    /// let worker = kit.worker("w1").queue("mail").handle("send", async || Err::<(), _>("no route"));
    /// let summary = kit.drain_all(worker).await;
    /// assert_eq!((summary.retried, summary.failed), (3, 1));
    /// kit.assert_failed(id, "no route");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn drain_all(&self, worker: WorkerBuilder) -> Summary {
        self.work(build(worker), Until::Ended).await
    }

    /// Lets this much time pass. Everything that ends on the way, leases, deadlines, sleeps, ends
    /// at its own moment, and whoever waits for it acts before time goes on.
    ///
    /// For workers that were [started](Self::start). Needs a runtime of one thread, which is what
    /// `#[tokio::test]` has.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use plimsoll_core::task::FailureKind;
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let slow = kit.tasks().task("mail", "send", "")?.attempt_timeout(Duration::from_secs(600));
    /// let id = kit.tasks().submit(slow).await?.id;
    /// let worker = kit.worker("w1").queue("mail").handle("send", std::future::pending::<()>);
    /// let _worker = kit.start(worker).await;
    /// kit.pass(Duration::from_secs(599)).await; // its lease is renewed all the time
    /// kit.assert_claimed(id);
    /// kit.pass(Duration::from_secs(1)).await;
    /// assert_eq!(kit.assert_scheduled(id).errors[0].kind, FailureKind::DeadlineExceeded);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn pass(&self, duration: Duration) {
        let end = self.clock.monotonic().saturating_add(duration);
        loop {
            self.idle().await;
            let left = end.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            let step = self.clock.next_sleep().unwrap_or(left);
            self.clock.advance(step.min(left));
        }
    }

    /// Lets everything happen that can happen now, without time passing.
    ///
    /// For workers that were [started](Self::start). Needs a runtime of one thread, which is what
    /// `#[tokio::test]` has.
    ///
    /// ```
    /// # use plimsoll_engine::testing::Kit;
    /// # use plimsoll_engine::worker::{Answer, Context};
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let watch = async |context: Context| {
    ///     context.cancellation().await;
    ///     Answer::Cancel(None)
    /// };
    /// let _worker = kit.start(kit.worker("w1").queue("q").handle("watch", watch)).await;
    /// let id = kit.tasks().submit(kit.tasks().task("q", "watch", "")?).await?.id;
    /// kit.idle().await;
    /// kit.assert_claimed(id);
    /// kit.tasks().cancel(id, None).await?;
    /// kit.idle().await;
    /// kit.assert_cancelled(id);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn idle(&self) {
        assert_eq!(
            Handle::current().runtime_flavor(),
            RuntimeFlavor::CurrentThread,
            "only a runtime of one thread shows when nothing happens any more"
        );
        self.quiet(pin!(std::future::pending::<()>())).await;
    }

    /// Runs the worker until there is nothing to do for it.
    async fn work(&self, worker: Worker, until: Until) -> Summary {
        let (stats, stopper) = (worker.stats(), worker.stopper());
        // The worker itself sleeps until it has to do something; any other new sleep is a handler's.
        let not_of_handlers = self.clock.sleepers() + 1;
        let mut run = pin!(worker.run());
        let mut moves = 0;
        loop {
            if let Some(ended) = self.quiet(run.as_mut()).await {
                return summary(ended);
            }
            if self.sweep().await {
                continue;
            }
            let step = if stats.summary().running > 0 {
                let waited_for = self.clock.sleepers() > not_of_handlers;
                match self.clock.next_sleep().filter(|_| waited_for) {
                    Some(sleep) => sleep,
                    None => continue,
                }
            } else {
                match self.next_due().filter(|_| until == Until::Ended) {
                    Some(due) => due.since(self.clock.now()),
                    None => break,
                }
            };
            moves += 1;
            self.advance(step, moves);
        }
        stopper.drain();
        summary(run.await)
    }

    /// Polls until nothing happens any more, or this has ended.
    async fn quiet<T>(&self, mut run: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let mut calls = self.store.calls();
        let most = calls + u64::from(self.moves_max) * CALLS_PER_MOVE;
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            if calls > most {
                self.give_up("nothing comes to rest");
            }
            tokio::select! {
                biased;
                ended = &mut run => return Some(ended),
                // Every other task that can run has its turn before this one has it again.
                () = yield_now() => {}
            }
            let before = std::mem::replace(&mut calls, self.store.calls());
            quiet = if before == calls { quiet + 1 } else { 0 };
        }
        None
    }

    /// Decides what time has made ready. Answers whether there was anything.
    async fn sweep(&self) -> bool {
        let sweeper = Sweeper::new(self.engine().clone());
        let swept = sweeper.sweep_once().await;
        let swept = swept.unwrap_or_else(|error| panic!("{error}"));
        if let Some(error) = swept.errors.first() {
            panic!("what is due cannot be decided: {error}");
        }
        swept.promoted + swept.expired + swept.records + swept.groups > 0 || swept.more
    }

    /// When a task will next be moved by time alone.
    fn next_due(&self) -> Option<Timestamp> {
        let due = |task: Task| match task.status {
            Status::Scheduled => task.waiting.is_none().then_some(task.runnable_at),
            Status::Claimed => task.lease.as_ref().map(|lease| lease.until),
            Status::Pending | Status::Completed | Status::Failed | Status::Cancelled => None,
        };
        self.all().into_iter().filter_map(due).min()
    }

    /// Moves the clock, for the nth time in one go.
    pub(super) fn advance(&self, step: Duration, nth: u32) {
        if nth > self.moves_max {
            self.give_up(&format!("time was moved {} times", self.moves_max));
        }
        self.clock.advance(step);
    }

    fn give_up(&self, why: &str) -> ! {
        let waiting = self.describe(|task| !task.status.is_terminal());
        panic!("{why} and tasks are still waiting:{waiting}");
    }
}

pub(super) fn build(worker: WorkerBuilder) -> Worker {
    // Who moves time also decides what it made ready, and heartbeats are no reason to move it.
    let worker = worker.sweeps(false).registers(false).build();
    worker.unwrap_or_else(|error| panic!("the worker cannot be built: {error}"))
}

pub(super) fn summary(ended: Result<Summary>) -> Summary {
    ended.unwrap_or_else(|error| panic!("the worker ended: {error}"))
}
