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
mod resource;
mod stage;
mod summary;
mod suspects;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::TryStreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::clock::SystemClock;
use plimsoll::{Engine, Ids, Plimsoll};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

use crate::demo::Books;
use crate::output::say;
use crate::place::Place;
use cast::{Cast, Role, State};
use dice::{Deed, Dice, Stroke};
use job::Job;
use ledger::Ledger;
use processes::marked;
use stage::Stage;
use summary::Summary;
use suspects::Suspects;

pub(crate) use holder::ChaosHolder;

/// How often the books are read and somebody may be hit.
const TICK: Duration = Duration::from_millis(100);
/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// How long submitting may take before the frozen are looked after.
const FED_WITHIN: Duration = Duration::from_secs(1);
/// How long the tasks may take that are left when nobody is hit any more.
const CALM_MAX: Duration = Duration::from_secs(60);

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
        let mut run = Run {
            began: engine.clock().monotonic(),
            books: Books::new(engine.store().clone()),
            job: Job::new(&stage.namespace),
            suspects: Suspects::new(&stage.mark),
            cast: Cast::start(stage.clone())?,
            progress: Progress::new(),
            log: File::create(stage.folder.join("strokes.log")).map_err(ChaosError::Folder)?,
            engine,
            stage,
        };
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
        run.progress.bar.finish_and_clear();
        run.cast.end().await;
        for process in marked(&run.stage.mark) {
            process.kill();
        }
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

/// One run.
struct Run {
    stage: Stage,
    engine: Engine,
    began: Duration,
    cast: Cast,
    job: Job,
    books: Books,
    suspects: Suspects,
    progress: Progress,
    /// Who was hit when, for whoever looks for the reason of a fault.
    log: File,
}

impl Run {
    fn now(&self) -> Duration {
        self.engine.clock().monotonic() - self.began
    }

    async fn go(&mut self, summary: &mut Summary, lasts: Duration) -> Result<(), ChaosError> {
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
        let is_up = |actor: &cast::Actor| actor.state == State::Up;
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

    async fn strike(&mut self, stroke: Stroke, summary: &mut Summary) -> Result<(), ChaosError> {
        let number = match (stroke.deed, stroke.role) {
            (Deed::Freeze, Role::Holder) => self.holding(stroke).await?,
            _ => stroke.number,
        };
        let (now, deeds) = (self.now(), &mut summary.deeds);
        let Some(index) = self.cast.index(stroke.role, number) else {
            return Ok(());
        };
        let name = stroke.role.name(number);
        let state = self.cast.actors[index].state;
        let line = format!(
            "{:8.3} {:?} {name}, {state:?}",
            now.as_secs_f64(),
            stroke.deed
        );
        writeln!(self.log, "{line}").map_err(ChaosError::Folder)?;
        match (stroke.deed, state) {
            (Deed::Kill, _) => {
                *match stroke.role {
                    Role::Worker => &mut deeds.workers_killed,
                    Role::Holder => &mut deeds.holders_killed,
                    Role::Watchdog => &mut deeds.watchdogs_killed,
                } += 1;
                self.suspects.left_by(&name, now);
                self.cast.kill(index).await
            }
            (Deed::Freeze, State::Up) => {
                *match stroke.role {
                    Role::Worker => &mut deeds.workers_frozen,
                    Role::Holder => &mut deeds.holders_frozen,
                    Role::Watchdog => &mut deeds.watchdogs_frozen,
                } += 1;
                self.suspects.excuse(&name);
                self.cast.freeze(index, now + stroke.lasts)
            }
            (Deed::Drain, State::Up) => self.cast.drain(index, now),
            (Deed::Cut, _) => {
                let mut commands = marked(&self.stage.mark);
                commands.retain(|process| process.is_of(&name) && process.is_command());
                let one = stroke.draw.checked_rem(commands.len());
                if let Some(command) = one.and_then(|index| commands.get(index)) {
                    command.kill();
                    deeds.commands_killed += 1;
                }
                Ok(())
            }
            (Deed::Freeze | Deed::Drain, State::Frozen(_) | State::Draining(_)) => Ok(()),
        }
    }

    /// One who has a lock, if somebody has: what happens to others when they are frozen is dull.
    async fn holding(&self, stroke: Stroke) -> Result<u64, ChaosError> {
        let locks = self.engine.locks().list_all();
        let owners: Vec<String> = locks.map_ok(|lock| lock.owner).try_collect().await?;
        let one = stroke.draw.checked_rem(owners.len());
        let owner = one.and_then(|index| owners.get(index)?.split('/').next());
        let is = |number: &u64| Some(Role::Holder.name(*number).as_str()) == owner;
        let number = (0..Role::Holder.count()).find(is);
        Ok(number.unwrap_or(stroke.number))
    }

    /// Wakes up those whose time has come.
    async fn thaw(&mut self, now: Duration) -> Result<(), ChaosError> {
        for index in 0..self.cast.actors.len() {
            let actor = &self.cast.actors[index];
            if let State::Frozen(until) = actor.state
                && until <= now
            {
                let (name, woken) = (actor.name(), self.now());
                let store = self.engine.store().clone();
                self.suspects.lost_by(&name, store.as_ref(), woken).await?;
                self.cast.thaw(index)?;
            }
        }
        Ok(())
    }
}

/// One line that changes on a terminal, a line now and then elsewhere.
struct Progress {
    bar: ProgressBar,
    next_line: Duration,
}

impl Progress {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self {
            bar: ProgressBar::new_spinner().with_style(style),
            next_line: LINE_EVERY,
        }
    }

    fn show(&mut self, now: Duration, words: impl FnOnce() -> String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(words());
            self.bar.tick();
        } else if now >= self.next_line {
            self.next_line = now + LINE_EVERY;
            eprintln!("{:6.1} s  {}", now.as_secs_f64(), words());
        }
    }
}
