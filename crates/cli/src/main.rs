//! The `plimsoll` command.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod ask;
mod bench;
mod chaos;
mod client;
mod completion;
mod demo;
mod doctor;
mod exit;
mod grid;
mod input;
mod job;
mod json;
mod lock;
#[cfg(feature = "postgres")]
mod migrate;
mod output;
mod place;
mod process;
mod queue;
mod record;
mod retention;
mod screen;
mod sweep;
mod table;
mod task;
mod telemetry;
mod text;
mod wire;
mod work;
mod worker;

/// Many small values are made and dropped by different threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::fmt::Display;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

/// The state, work and history of distributed jobs.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = exit::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    telemetry: telemetry::Telemetry,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Submits tasks, looks at them, waits for them and operates on them.
    Task(Box<task::TaskCommand>),
    /// Reads and writes records, finds them, and hears of their changes.
    Record(Box<record::RecordCommand>),
    /// Shows how many tasks wait where, and which come next.
    Queue(queue::QueueCommand),
    /// Shows which workers there are, and how much they do.
    Worker(worker::WorkerCommand),
    /// Shows who holds which lock, and runs commands under one.
    Lock(lock::LockCommand),
    /// Shows how far partitioned jobs are, waits for them, and sets their states.
    Job(Box<job::JobCommand>),
    /// Looks at a store, and says what is wrong and what to do.
    Doctor(doctor::Doctor),
    #[cfg(feature = "postgres")]
    Migrate(migrate::Migrate),
    /// Writes a script that completes what is typed in a shell.
    Completion(completion::Completion),
    /// Shows what Plimsoll is for: some thousand tasks, several worker processes, one of them
    /// killed and one frozen in the middle of it, and the books afterwards.
    Demo(demo::Demo),
    /// Measures a store: how many tasks a second, how long each takes, what is written.
    Bench(bench::Bench),
    Work(work::Work),
    Sweep(sweep::Sweep),
    Retention(retention::RetentionCommand),
    /// The demo without mercy: workers are killed and frozen at random until all tasks are done.
    #[command(hide = true)]
    Chaos(demo::Chaos),
    /// Becomes the command of `plimsoll lock run`, started by it.
    #[command(hide = true)]
    LockExec(lock::LockExec),
    /// One lock holder of the chaos, started by it.
    #[command(hide = true)]
    ChaosHolder(chaos::ChaosHolder),
    /// One worker of the demo, started by it.
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
    /// The parent of one command of `plimsoll work`, started by it.
    #[command(hide = true)]
    WorkGuard(work::WorkGuard),
}

fn main() -> ExitCode {
    let Arguments { command, telemetry } = Arguments::parse();
    let runtime = match &command {
        // There may be hundreds of them.
        Command::WorkGuard(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    }
    .enable_all()
    .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("plimsoll: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let installed = {
        let _inside = runtime.enter();
        match command.is_between() {
            true => Ok(None),
            false => telemetry.install().map(Some),
        }
    };
    let installed = match installed {
        Ok(installed) => installed,
        Err(error) => {
            eprintln!("plimsoll: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = command.run(&runtime, telemetry.serves_metrics());
    if let Some(installed) = installed
        && let Err(error) = runtime.block_on(installed.shutdown())
    {
        eprintln!("plimsoll: {error}");
    }
    // A command that has ended does not wait for what it might still have read from a terminal.
    runtime.shutdown_background();
    code
}

impl Command {
    /// Whether it stands between a command and who has started that. What it said of itself would
    /// be taken for what the command says.
    fn is_between(&self) -> bool {
        matches!(self, Self::LockExec(_) | Self::WorkGuard(_))
    }

    fn run(self, runtime: &Runtime, measured: bool) -> ExitCode {
        match self {
            Self::Task(task) => {
                let json = task.options.json;
                ended(runtime.block_on(task.run()), json)
            }
            Self::Record(record) => {
                let json = record.options.json;
                ended(runtime.block_on(record.run()), json)
            }
            Self::Queue(queue) => {
                let json = queue.options.json;
                ended(runtime.block_on(queue.run()), json)
            }
            Self::Worker(worker) => {
                let json = worker.options.json;
                ended(runtime.block_on(worker.run()), json)
            }
            Self::Lock(lock) => {
                let json = lock.options.json;
                ended(runtime.block_on(lock.run()), json)
            }
            Self::Job(job) => {
                let json = job.options.json;
                ended(runtime.block_on(job.run()), json)
            }
            Self::Sweep(sweep) => {
                let json = sweep.options.json;
                ended(runtime.block_on(sweep.run()), json)
            }
            Self::Retention(retention) => {
                let json = retention.options.json;
                ended(runtime.block_on(retention.run()), json)
            }
            Self::LockExec(exec) => exec.run(),
            Self::Doctor(doctor) => {
                let json = doctor.options.json;
                ended(runtime.block_on(doctor.run()), json)
            }
            #[cfg(feature = "postgres")]
            Self::Migrate(migrate) => {
                let json = migrate.options.json;
                ended(runtime.block_on(migrate.run()), json)
            }
            Self::Completion(completion) => ended(completion.run(), false),
            Self::Demo(demo) => done(runtime.block_on(demo.run())),
            Self::Bench(bench) => done(runtime.block_on(bench.run())),
            Self::Chaos(chaos) => match chaos.instead {
                Some(demo::Instead::Coordination(other)) => done(runtime.block_on(other.run())),
                #[cfg(feature = "postgres")]
                Some(demo::Instead::Postgres(other)) => done(runtime.block_on(other.run())),
                None => done(runtime.block_on(chaos.run())),
            },
            Self::ChaosHolder(holder) => done(runtime.block_on(holder.run())),
            Self::DemoWorker(worker) => done(runtime.block_on(worker.run())),
            Self::Work(work) => {
                let json = work.options.json;
                ended(runtime.block_on(work.run(measured)), json)
            }
            Self::WorkGuard(guard) => runtime.block_on(guard.run()),
        }
    }
}

/// The exit code of a command; says what went wrong, if something has.
fn ended(outcome: exit::Outcome, json: bool) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => error.tell(json),
    }
}

/// The exit code of a command that knows but one error.
fn done(outcome: Result<(), impl Display>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll: {error}");
            ExitCode::FAILURE
        }
    }
}
