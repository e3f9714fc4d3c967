//! `plimsoll work`: a worker that runs a command for each task, so that any language can work.

mod control;
mod environment;
mod follow;
mod group;
mod guard;
mod journal;
mod lines;
mod pipes;
mod report;
mod run;
mod troubles;
mod verdict;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plimsoll::Engine;
use plimsoll::telemetry::Sampler;
use plimsoll::worker::{Context, Summary, Worker};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::client::{IfMissing, Options};
use crate::exit::{CUT_OFF, CliError, OK, Outcome};
use crate::input::duration;
use crate::process::this_program;
use group::{Groups, adopt_orphans};
use report::Report;
use run::Setup;
use troubles::Troubles;

pub(crate) use guard::WorkGuard;

/// How often the display is drawn, and what was killed is let go of.
const TICK: Duration = Duration::from_millis(250);
/// How much longer than a command a handler may take, to write down how it ended.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long to wait in the end for what was killed.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Runs a command for each task: the payload is its standard input, the result its standard
/// output, and its exit code decides.
///
/// 0 completes the task, 65 fails it for good, 69 and 75 put it off; after any other code it is tried
/// again as its policy says. Standard error goes to the job log. Lines written to
/// the file $PLIMSOLL_CONTROL say more: `progress 40 copying`, `checkpoint TEXT`, `stage NAME`,
/// `set NAME TEXT`, `log LEVEL TEXT`, `retry-after 30s`, `submit QUEUE KIND PAYLOAD`.
///
/// SIGTERM or an interrupt drains: what runs may finish. A second one kills it. The exit code is 0,
/// or 12 if something was cut off.
#[derive(Debug, Args)]
pub(crate) struct Work {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Works on this queue. May be given several times.
    #[arg(long = "queue", value_name = "NAME", required = true)]
    queues: Vec<String>,
    /// Works on tasks of this kind alone. May be given several times. Without it, on all kinds.
    #[arg(long = "kind", value_name = "NAME")]
    kinds: Vec<String>,
    /// Runs this many commands at a time. Without it, one for each processor.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: Option<u32>,
    /// The name of this worker. Without it, that of the machine.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long the store waits for a sign of life before others may have a task.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    lease: Duration,
    /// How often this worker says that it lives. It counts as offline after three times as long.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    heartbeat: Duration,
    /// How long commands may go on after SIGTERM before they are told to stop.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    drain_timeout: Duration,
    /// How long a command may go on after it was told to stop, before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    grace: Duration,
    /// How much of the standard error of an attempt goes to the job log.
    #[arg(long, value_name = "BYTES", default_value_t = 1024 * 1024)]
    log_bytes_max: usize,
    /// Ends when there is nothing to be had. Tasks that are due later are left.
    #[arg(long)]
    until_empty: bool,
    /// Makes the store if it is not there, and waits for tasks.
    #[arg(long)]
    create: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Work {
    /// Works; `measured`: somebody may read metrics.
    pub(crate) async fn run(self, measured: bool) -> Outcome {
        check_command(&self.command[0])?;
        adopt_orphans().map_err(because("adopt what commands leave behind"))?;
        let setup = Arc::new(self.setup()?);
        let missing = match self.create {
            true => IfMissing::Create,
            false => IfMissing::Refuse,
        };
        let engine = self.options.open(missing).await?.engine;
        let engine = match measured {
            true => engine.observed(),
            false => engine,
        };
        let worker = self.build(&engine, &setup)?;
        let done = tokio::select! {
            biased;
            done = self.drive(worker, &engine, &setup) => done,
            never = sample(&engine, measured) => match never {},
        };
        let clock = engine.clock().as_ref();
        tokio::select! {
            gone = setup.groups.empty(clock) => gone.map_err(because("wait for what was killed"))?,
            () = clock.sleep(GONE_WITHIN) => setup.report.note("a killed command is still there"),
        }
        let done = done?;
        setup.report.summary(&done, clock).await;
        if let Some(why) = setup.troubles.last() {
            return Err(because("run commands")(io::Error::other(why)));
        }
        match done.is_clean() && setup.report.was_interrupted() == 0 {
            true => Ok(OK),
            false => Ok(CUT_OFF),
        }
    }

    fn setup(&self) -> Outcome<Setup> {
        Ok(Setup {
            command: self.command.clone(),
            program: this_program().map_err(because("find this program"))?,
            store: self.options.store.clone(),
            namespace: self.options.namespace.clone(),
            grace: self.grace,
            lease: self.lease,
            log_bytes_max: self.log_bytes_max,
            groups: Arc::new(Groups::default()),
            draining: watch::Sender::default(),
            troubles: Troubles::default(),
            report: Report::new(&self.options).map_err(because("start a thread to report"))?,
        })
    }

    fn build(&self, engine: &Engine, setup: &Arc<Setup>) -> Outcome<Worker> {
        let handler = {
            let setup = setup.clone();
            move |context: Context| run::run(setup.clone(), context)
        };
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let concurrency = self
            .concurrency
            .map_or_else(processors, |count| count as usize);
        let name = self.name.clone().unwrap_or_else(machine);
        let builder = engine.worker(name).concurrency(concurrency);
        let builder = builder.settings(|settings| {
            settings.lease = self.lease;
            settings.heartbeat = self.heartbeat;
            settings.stale_after = self.heartbeat.saturating_mul(3);
            settings.cancel_grace = self.grace.saturating_add(LAST_WORDS);
            settings.drain_soft = self.drain_timeout;
            settings.drain_hard = self.grace.saturating_add(LAST_WORDS);
        });
        let builder = (self.queues.iter()).fold(builder, |builder, queue| builder.queue(queue));
        let builder = match self.kinds.as_slice() {
            [] => builder.handle_rest(handler),
            kinds => (kinds.iter()).fold(builder, |builder, kind| {
                builder.handle(kind, handler.clone())
            }),
        };
        Ok(builder.build()?)
    }

    /// Works until there is nothing to do, or until it is told to end: politely, then for good.
    async fn drive(&self, worker: Worker, engine: &Engine, setup: &Setup) -> Outcome<Summary> {
        let listen = |kind| signal(kind).map_err(because("listen for signals"));
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut hangup = listen(SignalKind::hangup())?;
        let (stopper, stats, clock) = (worker.stopper(), worker.stats(), engine.clock());
        let work = async {
            match self.until_empty {
                true => worker.run_until_empty().await,
                false => worker.run().await,
            }
        };
        tokio::pin!(work);
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done?),
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
                () = setup.troubles.too_many(), if !told => {}
                () = clock.sleep(TICK) => {
                    setup.groups.sweep();
                    setup.report.update(clock.monotonic(), stats.summary());
                    continue;
                }
            }
            if told {
                stopper.now();
            } else {
                stopper.drain();
                setup.draining.send_replace(true);
                let running = stats.summary().running;
                setup
                    .report
                    .note(&format!("draining, {running} running; again to kill them"));
            }
            told = true;
        }
    }
}

/// Looks at the store for gauges, if somebody may read them.
async fn sample(engine: &Engine, measured: bool) -> Infallible {
    if measured {
        Sampler::new(engine.clone()).run().await;
    }
    std::future::pending().await
}

/// Finds out at the start what would fail every task.
fn check_command(command: &OsStr) -> Outcome<()> {
    let is_program = |path: &Path| {
        let metadata = std::fs::metadata(path);
        metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let path = Path::new(command);
    let found = if path.components().count() > 1 || path.is_absolute() {
        is_program(path)
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).any(|folder| is_program(&folder.join(path)))
    };
    if found {
        return Ok(());
    }
    let command = path.display();
    Err(CliError::Usage(format!(
        "cannot run `{command}`: there is no such program"
    )))
}

/// What could not be done, and why.
fn because(what: &'static str) -> impl Fn(io::Error) -> CliError {
    move |error| CliError::System { what, error }
}

fn machine() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
