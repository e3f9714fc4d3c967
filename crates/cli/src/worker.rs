//! `plimsoll worker`: which workers there are.

use clap::{Args, Subcommand};
use plimsoll::registry::{WorkerInfo, WorkerStatus};
use plimsoll::{Name, Timestamp};
use serde::Serialize;

use crate::client::{Client, IfMissing, Options};
use crate::exit::{OK, Outcome};
use crate::grid::{Cell, Column, Grid};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::table::grouped;
use crate::text::age;
use crate::wire::At;

/// Shows which workers there are, and how much they do.
#[derive(Debug, Args)]
pub(crate) struct WorkerCommand {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Lists the workers that were heard of within a day, each life of its own.
    List(ListWorkers),
}

#[derive(Debug, Args)]
struct ListWorkers {
    /// Also those that have ended.
    #[arg(long)]
    all: bool,
}

#[derive(Serialize)]
struct WireWorker<'a> {
    worker: &'a Name,
    incarnation: String,
    status: &'static str,
    hostname: &'a str,
    pid: u32,
    version: &'a str,
    queues: Vec<&'a Name>,
    kinds: Vec<&'a Name>,
    max_concurrent: u64,
    current_load: u64,
    total_jobs: u64,
    failed_jobs: u64,
    started_at: At,
    last_heartbeat: At,
}

impl<'a> From<&'a WorkerInfo> for WireWorker<'a> {
    fn from(worker: &'a WorkerInfo) -> Self {
        let profile = &worker.profile;
        Self {
            worker: &worker.id.name,
            incarnation: worker.id.incarnation.to_string(),
            status: worker.status.as_str(),
            hostname: &profile.hostname,
            pid: profile.pid,
            version: &profile.version,
            queues: profile.queues.iter().collect(),
            kinds: profile.kinds.iter().collect(),
            max_concurrent: profile.max_concurrent,
            current_load: worker.load.current_load,
            total_jobs: worker.load.total_jobs,
            failed_jobs: worker.load.failed_jobs,
            started_at: At(worker.started_at),
            last_heartbeat: At(worker.last_heartbeat),
        }
    }
}

impl WorkerCommand {
    pub(crate) async fn run(self) -> Outcome {
        let client = self.options.open(IfMissing::Refuse).await?;
        match self.verb {
            Verb::List(list) => list.run(&client).await,
        }
    }
}

impl ListWorkers {
    async fn run(self, client: &Client) -> Outcome {
        let screen = &client.screen;
        let mut workers = client.engine.workers().list().await?;
        let known = workers.len();
        workers.retain(|worker| self.all || worker.status != WorkerStatus::Offline);
        if screen.json {
            for worker in &workers {
                if !screen.object(&WireWorker::from(worker))? {
                    break;
                }
            }
            return Ok(OK);
        }
        let gone = known - workers.len();
        match (workers.is_empty(), gone) {
            (false, _) => {
                say(&table(&workers, client.now(), screen))?;
            }
            (true, 0) => screen.note("No worker was heard of within a day."),
            (true, gone) => screen.note(&format!("No worker runs; --all shows {gone} that did.")),
        }
        Ok(OK)
    }
}

fn table(workers: &[WorkerInfo], now: Timestamp, screen: &Screen) -> String {
    const COLUMNS: [Column; 9] = [
        Column::new("WORKER").cut_to(10),
        Column::new("STATUS"),
        Column::new("LOAD").right(),
        Column::new("DONE").right(),
        Column::new("FAILED").right(),
        Column::new("HEARD"),
        Column::new("QUEUES").cut_to(10).rank(1),
        Column::new("HOST").cut_to(8).rank(2),
        Column::new("VERSION").cut_to(8).rank(3),
    ];
    let rows = workers.iter().map(|worker| {
        let tint = match worker.status {
            WorkerStatus::Active => Tint::Good,
            WorkerStatus::Draining => Tint::Warning,
            WorkerStatus::Offline => Tint::Faint,
        };
        let (load, profile) = (&worker.load, &worker.profile);
        let queues = profile.queues.iter().map(Name::as_str);
        vec![
            worker.id.name.as_str().into(),
            Cell::tinted(worker.status.as_str(), tint),
            format!("{}/{}", load.current_load, profile.max_concurrent).into(),
            grouped(load.total_jobs).into(),
            grouped(load.failed_jobs).into(),
            age(now, worker.last_heartbeat).into(),
            queues.collect::<Vec<_>>().join(" ").into(),
            format!("{} ({})", profile.hostname, profile.pid).into(),
            profile.version.as_str().into(),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let grid = Grid::fit(&COLUMNS, &rows, screen.width);
    grid.header(screen) + &grid.rows(&rows, screen)
}
