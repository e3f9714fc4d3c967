//! Runs seeds, and shows how to run again what went wrong.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use plimsoll::Plimsoll;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::{Ids, Namespace};
use plimsoll_sim::recorded::{Recording, Spoil, record};
use plimsoll_sim::{Figures, Options, Outcome, Planted, run};

/// Simulates the engine in virtual time, with faults, and checks what must hold.
#[derive(Debug, Parser)]
#[command(name = "plimsoll-sim", version, about)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Runs this seed alone.
    #[arg(long, conflicts_with_all = ["seeds", "start"])]
    seed: Option<u64>,
    /// Shows everything that happens, of one seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Plants a bug, which must be found.
    #[arg(long)]
    plant: Option<Planted>,
    /// Records real runs on this store instead, in a namespace of their own: memory:, sqlite:PATH or
    /// postgres://...
    #[arg(long, conflicts_with_all = ["seeds", "start", "seed", "plant"])]
    store: Option<String>,
    /// How long a real run lasts.
    #[arg(long, requires = "store", default_value_t = 10)]
    seconds: u64,
    /// How many clients of each kind take part in it.
    #[arg(long, requires = "store", default_value_t = 8)]
    clients: usize,
    /// How many processes these have.
    #[arg(long, requires = "store", default_value_t = 3)]
    processes: usize,
    /// Plants a bug in a real run, which must be found.
    #[arg(long, requires = "store")]
    spoil: Option<Spoil>,
    /// How many lines of the trace to show when something goes wrong.
    #[arg(long, default_value_t = 60)]
    tail: usize,
}

/// How often to show how far it is.
const PROGRESS_APART: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(url) = &arguments.store {
        return record_runs(url, &arguments);
    }
    let (start, seeds) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.start, arguments.seeds),
    };
    let options = Options {
        trace: arguments.trace,
        planted: arguments.plant,
    };
    let clock = SystemClock::new();
    let mut tally = Tally::default();
    let mut shown = Duration::ZERO;
    for seed in start..start.saturating_add(seeds) {
        let outcome = run(seed, options);
        if arguments.trace {
            show(&outcome.trace);
        }
        if outcome.violation.is_some() {
            report(seed, &arguments);
            return ExitCode::FAILURE;
        }
        tally.add(&outcome);
        let now = clock.monotonic();
        if now > shown + PROGRESS_APART {
            shown = now;
            eprintln!("{}", tally.words(now));
        }
    }
    println!("{}", tally.words(clock.monotonic()));
    println!("{:?}", tally.figures);
    ExitCode::SUCCESS
}

/// Records a real run, and says what is wrong with it.
fn record_runs(url: &str, arguments: &Arguments) -> ExitCode {
    let recording = Recording {
        lasts: Duration::from_secs(arguments.seconds),
        clients: arguments.clients,
        spoil: arguments.spoil,
    };
    let run = async {
        let clock = Arc::new(SystemClock::new());
        let namespace = Namespace::new(Ids::random(clock).task().to_string())?;
        let (mut stores, mut opened) = (Vec::new(), None);
        for _ in 0..arguments.processes.max(1) {
            // What is in memory is in one process.
            let plimsoll = match opened.take() {
                Some(plimsoll) if url == "memory:" => plimsoll,
                Some(_) | None => Plimsoll::open(url)?,
            };
            stores.push(plimsoll.namespace(namespace.clone()).await?);
            opened = Some(plimsoll);
        }
        record(stores, recording).await
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run),
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(Ok(figures)) => {
            println!("no rule is broken: {figures:?}");
            ExitCode::SUCCESS
        }
        Ok(Err(violation)) => {
            println!("the run breaks the rule {violation}");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("the run ended early: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    tasks: usize,
    turns: u64,
    lasted: Duration,
    figures: Figures,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.tasks += outcome.tasks;
        self.turns += outcome.turns;
        self.lasted += outcome.lasted;
        self.figures += outcome.figures;
    }

    fn words(&self, took: Duration) -> String {
        let each_second = self.seeds as f64 / took.as_secs_f64().max(1e-9);
        format!(
            "{} seeds without a violation, {each_second:.0} a second: {} tasks, {} turns, {:.1} hours of virtual time",
            self.seeds,
            self.tasks,
            self.turns,
            self.lasted.as_secs_f64() / 3_600.0
        )
    }
}

/// Whoever reads may have seen enough before the end.
fn show(lines: &[String]) {
    let mut out = std::io::stdout().lock();
    lines
        .iter()
        .try_for_each(|line| writeln!(out, "{line}"))
        .ok();
}

/// Runs a seed again to see what happened, and says how to do that.
fn report(seed: u64, arguments: &Arguments) {
    let options = Options {
        trace: true,
        planted: arguments.plant,
    };
    let outcome = run(seed, options);
    if !arguments.trace {
        let from = outcome.trace.len().saturating_sub(arguments.tail);
        show(&outcome.trace[from..]);
    }
    match outcome.violation {
        Some(violation) => println!("\nseed {seed} breaks the rule {violation}"),
        None => {
            println!("\nseed {seed} broke a rule, and not again: the simulation itself is wrong")
        }
    }
    let plant = arguments.plant.and_then(|plant| plant.to_possible_value());
    let plant = plant.map_or_else(String::new, |plant| {
        format!(" --plant {}", plant.get_name())
    });
    println!("again: cargo run --release -p plimsoll-sim -- --seed {seed} --trace{plant}");
}
