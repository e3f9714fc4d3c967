//! `plimsoll bench`: measures a store.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::clock::SystemClock;
use plimsoll::{Error, Ids, Namespace, Plimsoll, Result};
use plimsoll_bench::{Figures, Scale, Workload};

/// Measures a store.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The store: `memory:` or `sqlite:PATH`. Without it, a file that is removed afterwards.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Only this workload, or all whose name begins like this; may be given more than once.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// As much work as figures that are kept should rest on.
    #[arg(long)]
    full: bool,
    /// One JSON object for each workload and line.
    #[arg(long)]
    json: bool,
    /// Names the workloads and ends.
    #[arg(long)]
    list: bool,
}

/// What a newcomer sees when no workload is named.
const INTRODUCTION: [&str; 6] = ["cycle", "sequential", "bulk", "merge", "swap", "tail"];

impl Bench {
    pub(crate) async fn run(self) -> Result<()> {
        let scale = if self.full { Scale::Full } else { Scale::Short };
        let workloads = plimsoll_bench::workloads(scale);
        if self.list {
            for workload in &workloads {
                println!("{:24} {}", workload.name, workload.about);
            }
            return Ok(());
        }
        let chosen: Vec<&Workload> = workloads.iter().filter(|w| self.chooses(w)).collect();
        if chosen.is_empty() {
            return Err(Error::Unsupported(
                format!(
                    "no workload is called {}: see --list",
                    self.workload.join(", ")
                )
                .into(),
            ));
        }
        plimsoll_bench::count_transactions();
        let folder = tempfile::tempdir().map_err(|error| {
            Error::Unsupported(format!("cannot make a temporary folder: {error}").into())
        })?;
        let mut all = Vec::new();
        for workload in chosen {
            // A fresh file for each workload: what one leaves behind must not slow the next.
            let url = match &self.store {
                Some(url) => url.clone(),
                None => {
                    let path = folder.path().join(format!("{}.db", workload.name));
                    format!("sqlite:{}", path.display())
                }
            };
            let figures = measure(workload, &url, self.json).await?;
            if self.json {
                let line = serde_json::to_string(&figures);
                println!(
                    "{}",
                    line.map_err(|e| Error::Corrupt(e.to_string().into()))?
                );
            }
            all.push(figures);
            if self.store.is_none() {
                for end in ["", "-wal", "-shm", "-turn"] {
                    let path = folder.path().join(format!("{}.db{end}", workload.name));
                    std::fs::remove_file(path).ok();
                }
            }
        }
        if !self.json {
            show(&all, self.store.is_none());
        }
        Ok(())
    }

    fn chooses(&self, workload: &Workload) -> bool {
        if self.workload.is_empty() {
            return INTRODUCTION.contains(&workload.name.as_str());
        }
        (self.workload.iter()).any(|name| workload.name.starts_with(name.as_str()))
    }
}

async fn measure(workload: &Workload, url: &str, quiet: bool) -> Result<Figures> {
    // What an earlier run has left in the same file must not be met again.
    let run = Ids::random(Arc::new(SystemClock::new())).below(u64::MAX);
    let namespace = Namespace::new(format!("bench_{run:016x}"))?;
    let store = Plimsoll::open(url)?.namespace(namespace).await?;
    let bar = if quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(1)
    };
    let style = ProgressStyle::with_template("{prefix:20} {bar:30} {percent:>3} %  {elapsed}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_prefix(workload.name.clone());
    bar.enable_steady_tick(Duration::from_millis(250));
    let shown = bar.clone();
    let figures = plimsoll_bench::run(workload, store, move |done, total| {
        shown.set_length(total);
        shown.set_position(done);
    })
    .await;
    bar.finish_and_clear();
    figures
}

fn show(all: &[Figures], on_a_file: bool) {
    println!(
        "{:24} {:>12} {:>10} {:>10} {:>10} {:>9} {:>9}",
        "workload", "per second", "p50", "p99", "of", "bytes", "fsyncs"
    );
    for figures in all {
        let of = match figures.settings.get("latency_of") {
            Some(plimsoll_bench::Setting::Word(word)) => word.as_str(),
            _ => "",
        };
        println!(
            "{:24} {:>12} {:>10} {:>10} {:>10} {:>9} {:>9.3}",
            figures.name,
            grouped(figures.operations_per_second as u64),
            micros(figures.p50_us),
            micros(figures.p99_us),
            of,
            grouped(figures.bytes_per_operation as u64),
            figures.fsyncs_per_operation,
        );
    }
    let cycle = all.iter().find(|figures| figures.name == "cycle");
    if let (Some(cycle), true) = (cycle, on_a_file) {
        println!(
            "\nOn this machine, one process on one SQLite file takes {} tasks a second from submit \
             through claim\nto completion, each on disk before its caller is told.",
            grouped(cycle.operations_per_second as u64)
        );
    }
}

fn micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
