//! The `plimsoll` command.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod client;
mod completion;
mod demo;
mod doctor;
mod exit;
mod grid;
mod input;
mod json;
mod lock;
mod output;
mod place;
mod queue;
mod screen;
mod table;
mod task;
mod text;
mod wire;
mod work;
mod worker;

/// Many small values are made and dropped by different threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The state, work and history of distributed jobs.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = exit::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Submits tasks, looks at them, waits for them and operates on them.
    Task(Box<task::TaskCommand>),
    /// Shows how many tasks wait where, and which come next.
    Queue(queue::QueueCommand),
    /// Shows which workers there are, and how much they do.
    Worker(worker::WorkerCommand),
    /// Shows who holds which lock, and runs commands under one.
    Lock(lock::LockCommand),
    /// Looks at a store, and says what is wrong and what to do.
    Doctor(doctor::Doctor),
    /// Writes a script that completes what is typed in a shell.
    Completion(completion::Completion),
    /// Shows what Plimsoll is for: some thousand tasks, several worker processes, one of them
    /// killed and one frozen in the middle of it, and the books afterwards.
    Demo(demo::Demo),
    /// Measures a store: how many tasks a second, how long each takes, what is written.
    Bench(bench::Bench),
    Work(work::Work),
    /// The demo without mercy: workers are killed and frozen at random until all tasks are done.
    #[command(hide = true)]
    Chaos(demo::Chaos),
    /// Becomes the command of `plimsoll lock run`, started by it.
    #[command(hide = true)]
    LockExec(lock::LockExec),
    /// One worker of the demo, started by it.
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
    /// The parent of one command of `plimsoll work`, started by it.
    #[command(hide = true)]
    WorkGuard(work::WorkGuard),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match &arguments.command {
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
    let done = match arguments.command {
        Command::Task(task) => {
            let json = task.options.json;
            return ended(runtime.block_on(task.run()), json);
        }
        Command::Queue(queue) => {
            let json = queue.options.json;
            return ended(runtime.block_on(queue.run()), json);
        }
        Command::Worker(worker) => {
            let json = worker.options.json;
            return ended(runtime.block_on(worker.run()), json);
        }
        Command::Lock(lock) => {
            let json = lock.options.json;
            return ended(runtime.block_on(lock.run()), json);
        }
        Command::LockExec(exec) => return exec.run(),
        Command::Doctor(doctor) => {
            let json = doctor.options.json;
            return ended(runtime.block_on(doctor.run()), json);
        }
        Command::Completion(completion) => return ended(completion.run(), false),
        Command::Demo(demo) => runtime
            .block_on(demo.run())
            .map_err(|error| error.to_string()),
        Command::Bench(bench) => runtime
            .block_on(bench.run())
            .map_err(|error| error.to_string()),
        Command::Chaos(chaos) => runtime
            .block_on(chaos.run())
            .map_err(|error| error.to_string()),
        Command::DemoWorker(worker) => runtime
            .block_on(worker.run())
            .map_err(|error| error.to_string()),
        Command::Work(work) => {
            let json = work.options.json;
            return ended(runtime.block_on(work.run()), json);
        }
        Command::WorkGuard(guard) => return runtime.block_on(guard.run()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll: {error}");
            ExitCode::FAILURE
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
