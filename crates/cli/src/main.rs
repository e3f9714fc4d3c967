//! The `plimsoll` command.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod place;
mod table;

/// Many small values are made and dropped by different threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The state, work and history of distributed jobs.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures a store: how many tasks a second, how long each takes, what is written.
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
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
        Command::Bench(bench) => runtime.block_on(bench.run()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll: {error}");
            ExitCode::FAILURE
        }
    }
}
