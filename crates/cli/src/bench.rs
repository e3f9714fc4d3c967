//! `plimsoll bench`: measures a store.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::clock::SystemClock;
use plimsoll::{Ids, Namespace, Plimsoll, StoreUrl};
use plimsoll_bench::{Figures, Scale, Workload};
use thiserror::Error;

use crate::output::say;
use crate::place::{Place, is_memory};
use crate::table;

/// Measures a store.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The store: `memory:`, `sqlite:PATH`, a new file that stays, or `postgres://…`, where each
    /// workload leaves a namespace. Without it, a file in this folder that is removed afterwards.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Also into a file that exists: what the workloads leave in it stays there.
    #[arg(long, requires = "store")]
    anyway: bool,
    /// Only this workload, or all whose name begins like this; may be given more than once.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// All workloads, or those named, with as much work as figures that are kept should rest on.
    /// It takes long, and several gigabytes of disk.
    #[arg(long)]
    full: bool,
    /// About so many tasks in the task cycle, and as little of everything else: to see that it
    /// works, not how fast.
    #[arg(long, value_name = "COUNT", conflicts_with = "full")]
    tasks: Option<u64>,
    /// One JSON object for each workload and line.
    #[arg(long)]
    json: bool,
    /// Names the workloads and ends.
    #[arg(long)]
    list: bool,
}

/// Why there are no figures, or not all.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    #[error("no workload is called {0}: `plimsoll bench --list` names them all")]
    Unknown(String),
    #[error("{0} takes long: it runs only with --full")]
    FullOnly(String),
    #[error("cannot make a folder here: {0}; say where with --store sqlite:PATH")]
    Folder(std::io::Error),
    #[error("{workload}: {error}")]
    Workload {
        workload: String,
        error: plimsoll::Error,
    },
    #[error("figures cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0} exists: a bench leaves many tasks in it. Name a new file, or add --anyway")]
    Exists(String),
    #[error("figures cannot be shown: {0}")]
    Output(std::io::Error),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Store(#[from] plimsoll::Error),
}

/// What a newcomer sees when no workload is named.
const INTRODUCTION: [&str; 6] = ["cycle", "sequential", "bulk", "merge", "swap", "tail"];

impl Bench {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let scale = match (self.full, self.tasks) {
            (true, _) => Scale::FULL,
            (false, Some(tasks)) => Scale::tasks(tasks),
            (false, None) => Scale::SHORT,
        };
        let workloads = plimsoll_bench::workloads(scale);
        if self.list {
            say(&table::list(&workloads)).map_err(BenchError::Output)?;
            return Ok(());
        }
        let chosen = self.choose(&workloads)?;
        self.check_file()?;
        let mut all = Vec::new();
        // The file is removed also when somebody loses patience.
        let ended = tokio::select! {
            ended = self.measure_all(&chosen, &mut all) => ended,
            _ = tokio::signal::ctrl_c() => Err(BenchError::Interrupted),
        };
        if !self.json && !all.is_empty() {
            say(&table::show(&all)).map_err(BenchError::Output)?;
        }
        ended
    }

    /// Nobody wants tasks of a bench among their own.
    fn check_file(&self) -> Result<(), BenchError> {
        let url = self.store.as_deref().unwrap_or("memory:");
        match StoreUrl::parse(url).map_err(plimsoll::Error::from)? {
            StoreUrl::Sqlite { path, .. } if path.exists() && !self.anyway => {
                Err(BenchError::Exists(path.display().to_string()))
            }
            StoreUrl::Sqlite { .. } | StoreUrl::Memory | StoreUrl::Postgres(_) => Ok(()),
        }
    }

    fn choose<'a>(&self, workloads: &'a [Workload]) -> Result<Vec<&'a Workload>, BenchError> {
        for name in &self.workload {
            let mut named = workloads.iter().filter(|w| w.name.starts_with(name));
            match named.next() {
                None => return Err(BenchError::Unknown(name.clone())),
                Some(first) if first.full_only && !self.full && named.all(|w| w.full_only) => {
                    return Err(BenchError::FullOnly(name.clone()));
                }
                Some(_) => {}
            }
        }
        let chosen = workloads.iter().filter(|workload| {
            let named = |name: &String| workload.name.starts_with(name);
            match (self.workload.is_empty(), self.full) {
                (true, true) => true,
                (true, false) => INTRODUCTION.contains(&workload.name.as_str()),
                (false, full) => self.workload.iter().any(named) && (full || !workload.full_only),
            }
        });
        Ok(chosen.collect())
    }

    async fn measure_all(
        &self,
        chosen: &[&Workload],
        all: &mut Vec<Figures>,
    ) -> Result<(), BenchError> {
        for workload in chosen {
            // A fresh file for each workload, if it is ours to choose: what one leaves behind must
            // not slow the next.
            let place = match &self.store {
                Some(url) => Place::named(url)?,
                None => Place::fresh("bench").map_err(BenchError::Folder)?,
            };
            let mut figures = measure(workload, &place.url).await?;
            if let Some(filesystem) = &place.filesystem {
                let setting = filesystem.as_str().into();
                figures.settings.insert("filesystem", setting);
            }
            figures.compare(all);
            if self.json {
                let line = serde_json::to_string(&figures)? + "\n";
                if !say(&line).map_err(BenchError::Output)? {
                    return Ok(());
                }
            }
            all.push(figures);
        }
        if let (true, Some(filesystem)) = (self.json, all.iter().find_map(is_memory)) {
            eprintln!("{}", table::costs_nothing(filesystem));
        }
        Ok(())
    }
}

async fn measure(workload: &Workload, url: &str) -> Result<Figures, BenchError> {
    // What an earlier run has left in the same file must not be met again.
    let run = Ids::random(Arc::new(SystemClock::new())).below(u64::MAX);
    let namespace = Namespace::new(format!("bench_{run:016x}")).map_err(plimsoll::Error::from)?;
    let store = Plimsoll::open(url)?.namespace(namespace).await?;
    // On standard error, and only if that is a terminal.
    let bar = ProgressBar::new(1);
    let style = ProgressStyle::with_template("{prefix:24} {bar:30} {percent:>3} %  {elapsed}");
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
    figures.map_err(|error| BenchError::Workload {
        workload: workload.name.clone(),
        error,
    })
}
