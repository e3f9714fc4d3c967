//! One run: for a while somebody is hit, then everybody finishes.

use std::fs::File;
use std::time::Duration;

use plimsoll::Engine;

use super::ChaosError;
use super::cast::{Actor, Cast, State};
use super::dice::Dice;
use super::job::Job;
use super::ledger::Ledger;
use super::processes::{Process, marked};
use super::progress::Progress;
use super::stage::{GONE_WITHIN, Stage};
use super::summary::Summary;
use super::suspects::Suspects;
use crate::demo::Books;

/// How often the books are read and somebody may be hit.
const TICK: Duration = Duration::from_millis(100);
/// How long submitting may take before the frozen are looked after.
const FED_WITHIN: Duration = Duration::from_secs(1);
/// How long the tasks may take that are left when nobody is hit any more.
const CALM_MAX: Duration = Duration::from_secs(60);

/// One run.
pub(super) struct Run {
    pub(super) stage: Stage,
    pub(super) engine: Engine,
    began: Duration,
    pub(super) cast: Cast,
    job: Job,
    books: Books,
    pub(super) suspects: Suspects,
    progress: Progress,
    /// Who was hit when, for whoever looks for the reason of a fault.
    pub(super) log: File,
}

impl Run {
    pub(super) fn start(stage: Stage, engine: Engine) -> Result<Self, ChaosError> {
        let log = File::create(stage.folder.join("strokes.log"));
        Ok(Self {
            began: engine.clock().monotonic(),
            books: Books::new(engine.store().clone()),
            job: Job::new(&stage.namespace),
            suspects: Suspects::new(&stage.mark),
            cast: Cast::start(stage.clone())?,
            progress: Progress::new(),
            log: log.map_err(ChaosError::Folder)?,
            engine,
            stage,
        })
    }

    /// Ends every process, whatever happened.
    pub(super) async fn end(&mut self) {
        self.cast.end().await;
        let by = self.now() + GONE_WITHIN;
        loop {
            let left = marked(&self.stage.mark);
            if left.is_empty() || self.now() > by {
                return;
            }
            left.iter().for_each(Process::kill);
            self.engine.clock().sleep(TICK).await;
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.engine.clock().monotonic() - self.began
    }

    pub(super) async fn go(
        &mut self,
        summary: &mut Summary,
        lasts: Duration,
    ) -> Result<(), ChaosError> {
        let mut dice = Dice::new(summary.seed, self.engine.clock());
        while self.now() < lasts {
            for stroke in dice.due(self.now()) {
                self.strike(stroke, summary).await?;
            }
            self.feed().await?;
            self.tick(summary).await?;
        }
        self.thaw(Duration::MAX).await?;
        let by = self.now() + CALM_MAX;
        while self.now() < by && !self.is_calm() {
            self.tick(summary).await?;
        }
        self.finish(summary).await?;
        self.books.follow().await?;
        let audit = self.job.audit(&self.engine, &self.books).await?;
        summary.tasks(&self.books, &audit);
        let ledger = Ledger::read(&self.stage.folder).map_err(ChaosError::Resource)?;
        summary.locks(&ledger);
        summary.tasks = self.books.completed;
        summary.processes_to_end = self.suspects.seen;
        summary.seconds = self.now().as_secs_f64();
        Ok(())
    }

    /// Submits tasks, but does not wait long: one who is frozen within a transaction keeps the file
    /// for itself, and has to be woken up. What was submitted without an answer is so again.
    async fn feed(&mut self) -> Result<(), ChaosError> {
        let fed = self.job.feed(&self.engine, self.books.completed);
        let fed = tokio::select! {
            biased;
            fed = fed => fed,
            () = self.engine.clock().sleep(FED_WITHIN) => Ok(()),
        };
        match fed {
            Err(error) if error.is_transient() => Ok(()),
            fed => Ok(fed?),
        }
    }

    /// Whether everything is done that was begun while somebody was hit.
    fn is_calm(&self) -> bool {
        let is_up = |actor: &Actor| actor.state == State::Up;
        self.books.completed >= self.job.submitted
            && self.suspects.is_empty()
            && self.cast.actors.iter().all(is_up)
    }

    /// Looks after everybody once.
    async fn tick(&mut self, summary: &mut Summary) -> Result<(), ChaosError> {
        self.engine.clock().sleep(TICK).await;
        let now = self.now();
        self.thaw(now).await?;
        for name in self.cast.check(now)? {
            summary.deeds.workers_drained += 1;
            self.suspects.left_by(&name, now);
        }
        let overdue = self.suspects.overdue(now);
        self.fault_processes(summary, "outlived its lease", &overdue);
        self.books.follow().await?;
        self.progress.show(now, || {
            let deeds = &summary.deeds;
            format!(
                "{} of {} tasks, {} leases run out, {} killed, {} frozen, {} faults",
                self.books.completed,
                self.job.submitted,
                self.books.expired,
                deeds.killed(),
                deeds.frozen(),
                summary.faults.len()
            )
        });
        Ok(())
    }
}
