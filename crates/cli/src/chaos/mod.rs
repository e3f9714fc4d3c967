//! `plimsoll chaos coordination`: command workers, lock holders and watchdogs, each a process, on
//! one file. They are killed, frozen and drained at random for a while; then everybody finishes.
//!
//! Checked meanwhile and in the end:
//! - every task is completed, once by the books, by whoever held it;
//! - no process of a command outlives its worker, or the wake-up of a worker that has lost its task;
//! - what the locks protect takes no write after one with a higher token, nobody is told to have a
//!   lock that another has, and everybody who waits gets one;
//! - nothing is left: no lock, no waiter, no worker that counts as working, nothing due, no process.

mod cast;
mod dice;
mod ending;
mod holder;
mod job;
mod ledger;
mod processes;
mod progress;
#[cfg(feature = "postgres")]
pub(crate) mod proxy;
mod resource;
mod run;
mod stage;
mod strike;
mod summary;
mod suspects;

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plimsoll::clock::SystemClock;
use plimsoll::{Ids, Plimsoll};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

use crate::output::say;
use crate::place::Place;
use run::Run;
use stage::Stage;
use summary::Summary;

pub(crate) use holder::ChaosHolder;

/// Command workers, lock holders and watchdogs on one file, killed, frozen and drained at random.
#[derive(Debug, Args)]
pub(crate) struct Coordination {
    /// For so long somebody is hit. What follows takes a few seconds more.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Who is hit when comes from this. Without it, from chance.
    #[arg(long)]
    seed: Option<u64>,
    /// Leaves the file where it is, with what every process has said.
    #[arg(long)]
    keep: bool,
    /// One JSON object instead of a summary for people.
    #[arg(long)]
    json: bool,
}

/// Why a run did not end well.
#[derive(Debug, Error)]
pub(crate) enum ChaosError {
    #[error("cannot make a folder here: {0}")]
    Folder(io::Error),
    #[error("cannot start a process, signal it or wait for it: {0}")]
    Process(io::Error),
    #[error("what the locks protect cannot be read or written: {0}")]
    Resource(io::Error),
    #[error("{name} has ended although nobody ended it: {status}: {last_words}")]
    Ended {
        name: String,
        status: ExitStatus,
        last_words: String,
    },
    #[error("{0} was told to end and does not")]
    Undrained(String),
    #[error("something must not be: see above")]
    Faults,
    #[error("what was found cannot be shown: {0}")]
    Output(io::Error),
    #[error("what was found cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Store(#[from] plimsoll::Error),
}

impl Coordination {
    pub(crate) async fn run(self) -> Result<(), ChaosError> {
        let chance = Ids::random(Arc::new(SystemClock::new()));
        let seed = self.seed.unwrap_or_else(|| chance.below(1_000_000_000));
        eprintln!("Chaos of coordination with --seed {seed}");
        let place = Place::fresh("chaos").map_err(ChaosError::Folder)?;
        let folder = place.folder().unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(ChaosError::Folder)?;
        let stage = Stage {
            store: place.url.clone(),
            namespace: "chaos".into(),
            folder: folder.clone(),
            mark: format!("{:016x}", chance.below(u64::MAX)),
        };
        let done = self.perform(stage, seed).await;
        if self.keep {
            eprintln!("The books are in {}.", folder.display());
            place.keep();
        }
        done
    }

    /// Whatever happens, no process is left behind.
    async fn perform(&self, stage: Stage, seed: u64) -> Result<(), ChaosError> {
        let listen = |kind| signal(kind).map_err(ChaosError::Process);
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut terminate = listen(SignalKind::terminate())?;
        let engine = Plimsoll::open(&stage.store)?;
        let engine = engine.engine(&stage.namespace).await?;
        let mut run = Run::start(stage, engine)?;
        let mut summary = Summary {
            seed,
            ..Summary::default()
        };
        let ended = tokio::select! {
            biased;
            _ = interrupt.recv() => Err(ChaosError::Interrupted),
            _ = terminate.recv() => Err(ChaosError::Interrupted),
            ended = run.go(&mut summary, Duration::from_secs(self.seconds)) => ended,
        };
        run.end().await;
        ended?;
        let text = match self.json {
            true => serde_json::to_string(&summary)? + "\n",
            false => summary.show(),
        };
        say(&text).map_err(ChaosError::Output)?;
        match summary.faults.is_empty() {
            true => Ok(()),
            false => Err(ChaosError::Faults),
        }
    }
}
