//! `plimsoll demo-worker`: one worker process of the demo. It says on its standard output what it
//! has done, and drains when its standard input ends, which it does however its parent ends.

use std::io::Write as _;
use std::os::fd::AsFd;
use std::time::Duration;

use clap::Args;
use plimsoll::clock::{Clock, SystemClock};
use plimsoll::worker::{Stats, Worker};
use plimsoll::{Engine, Plimsoll};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::{DemoError, job};

/// How often a worker says what it has done.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// How long a store may be away when a worker starts.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// One worker process of the demo.
#[derive(Debug, Args)]
pub(crate) struct DemoWorker {
    #[arg(long, env = "PLIMSOLL_STORE", hide_env_values = true)]
    store: String,
    #[arg(long)]
    namespace: String,
    #[arg(long)]
    name: String,
    #[arg(long)]
    concurrency: usize,
    #[arg(long)]
    lease_ms: u64,
}

/// What a worker says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) running: u64,
    pub(super) completed: u64,
    /// Answers that came too late and were refused.
    pub(super) refused: u64,
}

impl DemoWorker {
    pub(crate) async fn run(self) -> Result<(), DemoError> {
        die_with_the_parent();
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        let input = input.and_then(pipe::Receiver::from_owned_fd);
        let mut input = input.map_err(DemoError::Worker)?;
        let worker = self.build().await?;
        let (stopper, stats) = (worker.stopper(), worker.stats());
        let clock = SystemClock::new();
        let work = worker.run();
        tokio::pin!(work);
        let mut told_to_end = false;
        let mut nothing = [0];
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    done?;
                    return say(&stats);
                }
                _ = input.read(&mut nothing), if !told_to_end => {
                    told_to_end = true;
                    stopper.drain();
                }
                () = clock.sleep(REPORT_EVERY) => say(&stats)?,
            }
        }
    }

    /// Waits for a store that is away.
    async fn open(&self) -> Result<Engine, DemoError> {
        let clock = SystemClock::new();
        let plimsoll = Plimsoll::open(&self.store)?;
        loop {
            match plimsoll.engine(&self.namespace).await {
                Err(error) if error.is_transient() && clock.monotonic() < OPEN_WITHIN => {
                    clock.sleep(REPORT_EVERY).await;
                }
                opened => return Ok(opened?),
            }
        }
    }

    async fn build(&self) -> Result<Worker, DemoError> {
        let engine = self.open().await?;
        let worker = engine
            .worker(&self.name)
            .queue(job::QUEUE)
            .concurrency(self.concurrency)
            .settings(|settings| {
                settings.lease = Duration::from_millis(self.lease_ms);
                settings.drain_soft = settings.lease;
                settings.drain_hard = settings.lease;
            });
        let handled =
            (job::KINDS.into_iter()).fold(worker, |worker, kind| worker.handle(kind, job::handle));
        Ok(handled.build()?)
    }
}

/// One line for the parent.
fn say(stats: &Stats) -> Result<(), DemoError> {
    let done = stats.summary();
    let report = Report {
        running: done.running,
        completed: done.completed,
        refused: done.refused,
    };
    let line = serde_json::to_string(&report)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").map_err(DemoError::Worker)
}

/// The end of the input tells a worker that its parent is gone; but one that is frozen hears
/// nothing, and would stay for ever.
fn die_with_the_parent() {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).ok();
}
