//! The end of a run: nobody is hit any more, everybody finishes, and nothing may be left.

use std::time::Duration;

use futures::TryStreamExt;
use plimsoll::registry::WorkerStatus;
use plimsoll::store::{Due, Scan};
use plimsoll::{Engine, Prefix, Result, Sweeper};

use super::ChaosError;
use super::cast::Role;
use super::ledger::Ledger;
use super::processes::{Process, marked};
use super::run::Run;
use super::stage::{DRAINED_WITHIN, GONE_WITHIN};
use super::summary::Summary;

/// How often it is looked whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often everybody who waits for a lock must get one.
const TURNS: u64 = 2;
/// How long that may take, and until every lock is free.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

impl Run {
    /// Lets everybody finish and looks at what is left.
    pub(super) async fn finish(&mut self, summary: &mut Summary) -> Result<(), ChaosError> {
        self.serve(summary).await?;
        self.drain(Role::Holder).await?;
        self.drain(Role::Worker).await?;
        let mut left = Vec::new();
        self.eventually(GONE_WITHIN, async |run| {
            left = marked(&run.stage.mark);
            left.retain(|process| process.errand.is_some());
            Ok(left.is_empty())
        })
        .await?;
        self.fault_processes(summary, "outlived its worker", &left);
        let mut working = 0;
        self.eventually(GONE_WITHIN, async |run| {
            let workers = run.engine.workers().list().await?;
            let offline = |status| status == WorkerStatus::Offline;
            working = workers.iter().filter(|w| !offline(w.status)).count();
            Ok(working == 0)
        })
        .await?;
        summary.fault(working as u64, "workers registered that are gone");
        self.drain(Role::Watchdog).await?;
        self.eventually(GONE_WITHIN, async |run| {
            left = marked(&run.stage.mark);
            Ok(left.is_empty())
        })
        .await?;
        self.fault_processes(summary, "is left", &left);
        self.nothing_held(summary).await?;
        self.nothing_due(summary).await
    }

    /// Waits until everybody who waits for a lock has had some.
    async fn serve(&mut self, summary: &mut Summary) -> Result<(), ChaosError> {
        let read = |run: &Self| Ledger::read(&run.stage.folder).map_err(ChaosError::Resource);
        let before = read(self)?;
        let names: Vec<String> = (0..Role::Holder.count())
            .map(|number| Role::Holder.name(number))
            .collect();
        let mut behind = Vec::new();
        self.eventually(SERVED_WITHIN, async |run| {
            run.cast.check(run.now())?;
            behind = read(run)?.behind(&before, &names, TURNS);
            Ok(behind.is_empty())
        })
        .await?;
        summary.fault(behind.len() as u64, "holders that got no lock");
        Ok(())
    }

    async fn drain(&mut self, role: Role) -> Result<(), ChaosError> {
        let now = self.now();
        for index in 0..self.cast.actors.len() {
            if self.cast.actors[index].role == role {
                self.cast.drain(index, now)?;
            }
        }
        // It fails by itself when it takes too long.
        self.eventually(DRAINED_WITHIN * 2, async |run| {
            run.cast.have_drained(role, run.now())
        })
        .await?;
        self.cast.dismiss(role);
        Ok(())
    }

    async fn nothing_held(&mut self, summary: &mut Summary) -> Result<(), ChaosError> {
        let (mut held, mut waiting) = (0, 0);
        self.eventually(SERVED_WITHIN, async |run| {
            held = run
                .engine
                .locks()
                .list_all()
                .try_collect::<Vec<_>>()
                .await?
                .len();
            waiting = waiters(&run.engine).await?;
            Ok(held + waiting == 0)
        })
        .await?;
        summary.fault(held as u64, "locks held");
        summary.fault(waiting as u64, "waiters left");
        Ok(())
    }

    /// What sweeps leave, which was everything that was due. Something may become due right after one.
    async fn nothing_due(&mut self, summary: &mut Summary) -> Result<(), ChaosError> {
        let (mut troubles, mut left) = (0, 0);
        self.eventually(GONE_WITHIN, async |run| {
            let pass = Sweeper::new(run.engine.clone()).pass_all().await;
            troubles = pass.troubles.len();
            let due = run.engine.store().due(Due { limit: 100 }).await?;
            left = due.scheduled.len() + due.expired.len() + due.records.len() + due.groups.len();
            Ok(troubles + left == 0)
        })
        .await?;
        summary.fault(troubles as u64, "things that cannot be swept");
        summary.fault(left as u64, "things due");
        Ok(())
    }

    /// Looks until it is so, or too long. Whoever asks notes what it has found.
    async fn eventually(
        &mut self,
        within: Duration,
        mut is_so: impl AsyncFnMut(&mut Self) -> Result<bool, ChaosError>,
    ) -> Result<(), ChaosError> {
        let by = self.now() + within;
        while !is_so(self).await? && self.now() < by {
            self.engine.clock().sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    pub(super) fn fault_processes(&self, summary: &mut Summary, what: &str, found: &[Process]) {
        for process in found {
            let (pid, command) = (process.pid, process.command.trim_end());
            let errand = process.errand.as_ref();
            let whose = errand.map_or(String::new(), |errand| {
                format!(" of {}, task {}", errand.worker, errand.task)
            });
            let line = format!("process {pid}{whose} {what}: {command}");
            let cut = line.floor_char_boundary(200);
            summary.faults.push(line[..cut].replace('\n', " "));
        }
    }
}

/// How many places in lines there are.
async fn waiters(engine: &Engine) -> Result<usize> {
    let scan = Scan::new(Prefix::new("plimsoll.lock-waiters.")?, 100);
    Ok(engine.store().scan(scan).await?.rows.len())
}
