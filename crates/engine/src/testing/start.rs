//! Workers beside a test.

use plimsoll_core::Result;
use tokio::task::JoinSet;

use super::Kit;
use super::run::{build, summary};
use crate::spawn::spawn_into;
use crate::worker::{Stats, Stopper, Summary, WorkerBuilder};

/// A worker beside the test. Dropping it is what a crash would be.
#[derive(Debug)]
pub struct Started {
    kit: Kit,
    run: JoinSet<Result<Summary>>,
    stopper: Stopper,
    stats: Stats,
}

impl Kit {
    /// Starts a worker and lets it do what it can do now. Then it waits, as the test goes on, until
    /// it is given time by [`idle`](Self::idle) or [`pass`](Self::pass).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let worker = || kit.worker("w1").queue("mail").handle("send", std::future::pending::<()>);
    /// let id = kit.tasks().submit(kit.tasks().task("mail", "send", "hello")?).await?.id;
    ///
    /// let started = kit.start(worker()).await;
    /// kit.assert_claimed(id);
    /// started.crash();
    /// kit.pass(Duration::from_secs(30)).await;
    ///
    /// let another = kit.worker("w2").queue("mail").handle("send", async || {});
    /// kit.drain_all(another).await;
    /// assert_eq!(kit.assert_completed(id).attempts, 2);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn start(&self, worker: WorkerBuilder) -> Started {
        let worker = build(worker);
        let (stopper, stats) = (worker.stopper(), worker.stats());
        let mut run = JoinSet::new();
        spawn_into(&mut run, worker.run());
        self.idle().await;
        Started {
            kit: self.clone(),
            run,
            stopper,
            stats,
        }
    }
}

impl Started {
    /// What it has done so far.
    pub fn summary(&self) -> Summary {
        self.stats.summary()
    }

    /// Drains it: it takes nothing more and ends with its last handler. Time passes until then, so
    /// that a handler that goes on for too long is asked to stop, and dropped in the end.
    ///
    /// ```
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let id = kit.tasks().submit(kit.tasks().task("mail", "send", "hello")?).await?.id;
    /// let worker = kit.worker("w1").queue("mail").handle("send", std::future::pending::<()>);
    /// let summary = kit.start(worker).await.stop().await;
    /// assert_eq!((summary.cut, summary.released), (1, 1));
    /// kit.assert_pending(id);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn stop(mut self) -> Summary {
        self.stopper.drain();
        let mut moves = 0;
        loop {
            self.kit.idle().await;
            match self.run.try_join_next() {
                Some(Ok(ended)) => return summary(ended),
                Some(Err(error)) => panic!("the worker ended: {error}"),
                None => {
                    moves += 1;
                    let step = self.kit.clock.next_sleep().unwrap_or_default();
                    self.kit.advance(step, moves);
                }
            }
        }
    }

    /// Ends it where it stands, with all its handlers: nothing is given back.
    pub fn crash(self) {
        drop(self);
    }
}
