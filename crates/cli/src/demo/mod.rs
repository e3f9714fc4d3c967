//! `plimsoll demo`: a job with several worker processes on one store, of which one is killed and
//! one is frozen for longer than its leases last; in the end the books are checked.
//!
//! `chaos` is the same without mercy: workers are killed and frozen at random all the time.

mod books;
mod display;
mod fleet;
mod job;
mod mischief;
mod summary;
#[cfg(feature = "postgres")]
mod trouble;
mod worker;

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use plimsoll::clock::{Clock, SystemClock};
use plimsoll::{Engine, Ids, Invalid, Plimsoll, StoreUrl};
use serde::Serialize;
use thiserror::Error;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;

use crate::output::say;
use crate::place::Place;
use crate::table::grouped;
use display::Display;
use fleet::{Crew, Fleet};
use job::Job;
use mischief::{Dice, Mischief, Scene, Script};
use summary::Summary;

pub(crate) use books::Books;
pub(crate) use fleet::signal;
#[cfg(feature = "postgres")]
pub(crate) use trouble::ChaosPostgres;
pub(crate) use worker::DemoWorker;

/// Short, so that it does not take long until others take over.
const LEASE: Duration = Duration::from_secs(2);
/// How often the books are read and the display is drawn.
const TICK: Duration = Duration::from_millis(50);
/// How long workers may take to finish what they have begun.
const DRAIN_MAX: Duration = Duration::from_secs(15);

/// Shows what Plimsoll is for.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// So many tasks at the start; every ninth or so submits another one as it completes.
    #[arg(long, value_name = "COUNT", default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    tasks: u64,
    /// So many worker processes.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: u16,
    /// The store: `sqlite:PATH` or `postgres://…`, where the books stay. Without it, a file in this
    /// folder that is removed afterwards.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Leaves the file where it is.
    #[arg(long)]
    keep: bool,
    /// One JSON object instead of a summary for people.
    #[arg(long)]
    json: bool,
}

/// The demo without mercy.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Chaos {
    #[command(subcommand)]
    pub(crate) instead: Option<Instead>,
    /// So many tasks at the start.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    tasks: u64,
    /// So many worker processes.
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: u16,
    /// So many tasks at a time in each of them.
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    concurrency: usize,
    /// The store. Without it, a file in this folder that is removed afterwards.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// It has failed if it takes longer than this.
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    minutes_max: u64,
    /// Who is killed and frozen when comes from this. Without it, from chance.
    #[arg(long)]
    seed: Option<u64>,
    /// One JSON object instead of a summary for people.
    #[arg(long)]
    json: bool,
}

/// Another chaos instead.
#[derive(Debug, Subcommand)]
pub(crate) enum Instead {
    Coordination(crate::chaos::Coordination),
    #[cfg(feature = "postgres")]
    Postgres(ChaosPostgres),
}

/// Why a run did not end well.
#[derive(Debug, Error)]
pub(crate) enum DemoError {
    #[error("cannot make a folder here: {0}; say where with --store sqlite:PATH")]
    Folder(std::io::Error),
    #[error("the summary cannot be shown: {0}")]
    Output(std::io::Error),
    #[error(
        "several processes cannot share memory: name a file with --store sqlite:PATH, or a server"
    )]
    Memory,
    #[error("cannot start a worker: {0}")]
    Start(std::io::Error),
    #[error("cannot signal a worker or wait for it: {0}")]
    Signal(std::io::Error),
    #[error("a worker cannot hear its parent or speak to it: {0}")]
    Worker(std::io::Error),
    #[error("{name} has ended although nobody ended it: {status}")]
    Ended { name: String, status: ExitStatus },
    #[error("not all tasks were completed within {0:?}")]
    Late(Duration),
    #[error("the books are wrong: see above")]
    Books,
    #[error("what was found cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error("chaos on PostgreSQL needs the URL of a server that listens at a port")]
    NoServer,
    #[error("cannot stand between the workers and the server: {0}")]
    Proxy(std::io::Error),
    #[error("cannot kill the server and start it again: {0}")]
    Restart(std::io::Error),
    #[cfg(feature = "postgres")]
    #[error("cannot end connections at the server: {0}")]
    Server(plimsoll::postgres::tokio_postgres::Error),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Store(#[from] plimsoll::Error),
}

impl From<Invalid> for DemoError {
    fn from(invalid: Invalid) -> Self {
        Self::Store(invalid.into())
    }
}

impl Demo {
    pub(crate) async fn run(self) -> Result<(), DemoError> {
        let place = match &self.store {
            Some(url) => Place::named(url)?,
            None => Place::fresh("demo").map_err(DemoError::Folder)?,
        };
        let workers = usize::from(self.workers);
        let run = Run {
            url: place.url.clone(),
            workers_url: place.url.clone(),
            tasks: self.tasks,
            first: self.tasks,
            workers,
            concurrency: 10,
            // Many times as long as it should take.
            within: Duration::from_secs(120 + self.tasks / u64::from(self.workers) / 8),
            seed: None,
            json: self.json,
        };
        let mischief = Mischief::Script(Script::new(workers));
        let ended = run.go(mischief, &calm(), no_trouble()).await;
        if self.keep {
            eprintln!("The books are in {}.", StoreUrl::parse(&place.url)?);
            place.keep();
        }
        ended
    }
}

impl Chaos {
    pub(crate) async fn run(self) -> Result<(), DemoError> {
        let place = match &self.store {
            Some(url) => Place::named(url)?,
            None => Place::fresh("chaos").map_err(DemoError::Folder)?,
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let chance = Ids::random(clock.clone());
        let seed = self.seed.unwrap_or_else(|| chance.below(1_000_000_000));
        eprintln!("Chaos with --seed {seed}");
        let run = Run {
            url: place.url.clone(),
            workers_url: place.url.clone(),
            tasks: self.tasks,
            first: self.tasks / 2,
            workers: usize::from(self.workers),
            concurrency: self.concurrency,
            within: Duration::from_secs(self.minutes_max * 60),
            seed: Some(seed),
            json: self.json,
        };
        let mischief = Mischief::Dice(Dice::new(seed, clock));
        run.go(mischief, &calm(), no_trouble()).await
    }
}

/// Where is to be said that all is done.
fn calm() -> watch::Sender<bool> {
    watch::Sender::new(false)
}

async fn no_trouble() -> Result<Troubles, DemoError> {
    Ok(Troubles::default())
}

/// How often what was done to the store and to the way to it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Troubles {
    server_killed: u64,
    /// How many connections were ended by the server: those of all workers, ten times a second.
    backends_killed: u64,
    /// How often all connections were cut.
    cut: u64,
    /// For how many short whiles connections were cut in the middle of an answer, and so on.
    cut_in_answers: u64,
    stalled: u64,
    half_open: u64,
    /// How many submits of the caller had to be repeated.
    submits_repeated: u64,
}

/// One run of the job.
struct Run {
    /// Where the books are read.
    url: String,
    /// Where workers find the same store.
    workers_url: String,
    tasks: u64,
    /// How many of them are submitted before there are workers. The others come while these are at work, the same way.
    first: u64,
    workers: usize,
    concurrency: usize,
    within: Duration,
    seed: Option<u64>,
    json: bool,
}

impl Run {
    /// Where the processes meet.
    fn meeting(&self) -> Result<&'static str, DemoError> {
        match StoreUrl::parse(&self.url)? {
            StoreUrl::Memory => Err(DemoError::Memory),
            StoreUrl::Sqlite { .. } => Ok("one SQLite file"),
            StoreUrl::Postgres(_) => Ok("one PostgreSQL database"),
        }
    }

    /// Runs the job and checks the books. Whatever happens, no worker is left behind.
    async fn go(
        &self,
        mischief: Mischief,
        calm: &watch::Sender<bool>,
        trouble: impl Future<Output = Result<Troubles, DemoError>>,
    ) -> Result<(), DemoError> {
        self.meeting()?;
        let listen = |kind| tokio::signal::unix::signal(kind).map_err(DemoError::Signal);
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut terminate = listen(SignalKind::terminate())?;
        // What an earlier run has left in the same file must not be met again.
        let run = Ids::random(Arc::new(SystemClock::new())).below(u64::MAX);
        let namespace = format!("demo_{run:016x}");
        let engine = Plimsoll::open(&self.url)?.engine(&namespace).await?;
        let job = Job {
            namespace: namespace.clone(),
            tasks: self.tasks,
        };
        for receipt in engine.store().commit(job.commits(self.first)?).await {
            receipt?;
        }
        let caller = Plimsoll::open(&self.workers_url)?;
        let caller = caller.engine(&job.namespace).await?;
        let mut fleet = Fleet::start(Crew {
            store: self.workers_url.clone(),
            namespace,
            workers: self.workers,
            concurrency: self.concurrency,
            lease: LEASE,
        })?;
        let ended = tokio::select! {
            biased;
            _ = interrupt.recv() => Err(DemoError::Interrupted),
            _ = terminate.recv() => Err(DemoError::Interrupted),
            ended = async {
                let watch = async {
                    let watched = self.watch(&engine, &job, &mut fleet, mischief, calm).await;
                    calm.send_replace(true);
                    watched
                };
                let submit = async { Ok(job.submit_rest(&caller, self.first).await?) };
                // Whoever makes trouble ends when all is calm, or because it cannot go on.
                futures::future::try_join3(watch, trouble, submit).await
            } => ended,
        };
        fleet.end().await;
        let (late, mut troubles, repeated) = ended?;
        troubles.submits_repeated = repeated;
        let audit = Books::new(engine.store().clone()).audit(&job).await?;
        let summary = Summary::new(&audit, &fleet, troubles, self.tasks, self.seed);
        let text = match self.json {
            true => serde_json::to_string(&summary)? + "\n",
            false => summary.show(),
        };
        say(&text).map_err(DemoError::Output)?;
        match late {
            Some(late) => Err(late),
            None if !summary.is_good() => Err(DemoError::Books),
            None => Ok(()),
        }
    }

    /// Watches the workers and does them mischief until everything is done. If that takes too long,
    /// answers so: the books are of interest all the same.
    async fn watch(
        &self,
        engine: &Engine,
        job: &Job,
        fleet: &mut Fleet,
        mut mischief: Mischief,
        calm: &watch::Sender<bool>,
    ) -> Result<Option<DemoError>, DemoError> {
        let clock = engine.clock();
        let expected = job.expected().len() as u64;
        let mut books = Books::new(engine.store().clone());
        eprintln!(
            "{} tasks of 10 ms to 1 s, {} processes, {}, leases of {} s.\n",
            grouped(expected),
            self.workers,
            self.meeting()?,
            LEASE.as_secs()
        );
        let mut display = Display::new(self.workers, expected);
        let began = clock.monotonic();
        let late = loop {
            let tick = clock.sleep(TICK);
            tokio::pin!(tick);
            loop {
                tokio::select! {
                    biased;
                    () = &mut tick => break,
                    () = fleet.listen() => {}
                }
            }
            fleet.check()?;
            match books.follow().await {
                Err(error) if error.is_transient() => {}
                read => read?,
            }
            let now = clock.monotonic() - began;
            let scene = Scene {
                now,
                engine,
                books: &books,
                expected,
                lease: LEASE,
            };
            for words in mischief.act(&scene, fleet).await? {
                display.note(now, &words);
            }
            display.update(now, fleet, &books);
            if books.completed >= expected && mischief.is_over() {
                break None;
            }
            if now > self.within {
                break Some(DemoError::Late(self.within));
            }
        };
        calm.send_replace(true);
        tokio::select! {
            drained = fleet.drain() => drained?,
            () = clock.sleep(DRAIN_MAX) => return Ok(Some(DemoError::Late(DRAIN_MAX))),
        }
        books.follow().await?;
        display.update(clock.monotonic() - began, fleet, &books);
        Ok(late)
    }
}
