//! `plimsoll queue`: how many tasks wait where.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use plimsoll::store::{Counts, LaneCounts};
use plimsoll::task::{Lane, Status, Task};
use plimsoll::{Name, Result, Timestamp};
use serde::Serialize;

use crate::client::{Client, IfMissing, Options};
use crate::exit::{CliError, OK, Outcome};
use crate::grid::{Cell, Column, Grid};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::table::grouped;
use crate::task::Table;
use crate::text::{age, rough};
use crate::wire::WireTask;

/// Shows how many tasks wait where, and which come next.
#[derive(Debug, Args)]
pub(crate) struct QueueCommand {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Counts the tasks of all lanes, each a queue and a kind.
    List,
    /// Shows a queue, and the tasks that come next.
    Show(ShowQueue),
}

#[derive(Debug, Args)]
struct ShowQueue {
    /// The queue.
    queue: Name,
    /// So many of the tasks that come next.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=500))]
    next: u16,
}

impl QueueCommand {
    pub(crate) async fn run(self) -> Outcome {
        let client = self.options.open(IfMissing::Refuse).await?;
        match self.verb {
            Verb::List => list(&client).await,
            Verb::Show(show) => show.run(&client).await,
        }
    }
}

/// A lane, and the task that comes next in it.
pub(crate) struct Row {
    pub(crate) counts: LaneCounts,
    pub(crate) next: Option<Task>,
}

#[derive(Serialize)]
struct WireLane<'a> {
    queue: &'a Name,
    kind: &'a Name,
    counts: BTreeMap<&'static str, u64>,
    next: Option<WireNext>,
}

#[derive(Serialize)]
struct WireNext {
    id: String,
    runnable_at: String,
}

impl<'a> From<&'a Row> for WireLane<'a> {
    fn from(row: &'a Row) -> Self {
        let counts = Status::ALL.map(|status| {
            let tasks = row.counts.by_status.get(&status);
            (status.as_str(), tasks.copied().unwrap_or(0))
        });
        Self {
            queue: &row.counts.lane.queue,
            kind: &row.counts.lane.kind,
            counts: counts.into(),
            next: row.next.as_ref().map(|task| WireNext {
                id: task.id().to_string(),
                runnable_at: task.runnable_at.to_string(),
            }),
        }
    }
}

/// The lanes of a queue, or all.
pub(crate) async fn rows(client: &Client, queue: Option<Name>) -> Result<Vec<Row>> {
    let counts = Counts { queue, kind: None };
    let mut rows = Vec::new();
    for counts in client.tasks.counts(counts).await? {
        let next = match counts.by_status.get(&Status::Pending) {
            Some(_) => client.tasks.peek([counts.lane.clone()], 1).await?.pop(),
            None => None,
        };
        rows.push(Row { counts, next });
    }
    Ok(rows)
}

async fn list(client: &Client) -> Outcome {
    let rows = rows(client, None).await?;
    let screen = &client.screen;
    if rows.is_empty() && !screen.json {
        screen.note("There are no tasks.");
    }
    show_lanes(&rows, client.now(), screen)?;
    Ok(OK)
}

/// Whether somebody still listens.
fn show_lanes(rows: &[Row], now: Timestamp, screen: &Screen) -> Outcome<bool> {
    if screen.json {
        for row in rows {
            if !screen.object(&WireLane::from(row))? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    match rows {
        [] => Ok(true),
        rows => Ok(say(&lanes(rows, now, screen))?),
    }
}

/// Lanes for people. A status that no task has takes no room.
pub(crate) fn lanes(rows: &[Row], now: Timestamp, screen: &Screen) -> String {
    const COLUMNS: [Column; 9] = [
        Column::new("QUEUE").cut_to(8),
        Column::new("KIND").cut_to(8),
        Column::new("SCHEDULED").right(),
        Column::new("PENDING").right(),
        Column::new("CLAIMED").right(),
        Column::new("COMPLETED").right(),
        Column::new("FAILED").right(),
        Column::new("CANCELLED").right().rank(2),
        Column::new("NEXT WAITS").rank(1),
    ];
    let cells = rows.iter().map(|row| {
        let Lane { queue, kind } = &row.counts.lane;
        let mut cells = vec![queue.as_str().into(), kind.as_str().into()];
        cells.extend(Status::ALL.map(|status| {
            let tasks = row.counts.by_status.get(&status).copied();
            let tasks = tasks.filter(|tasks| *tasks > 0).map(grouped);
            Cell::tinted(tasks.unwrap_or_default(), status.into())
        }));
        let waits = row.next.as_ref().map(|task| match task.runnable_at > now {
            true => age(now, task.runnable_at),
            false => rough(now.since(task.runnable_at)),
        });
        cells.push(waits.unwrap_or_default().into());
        cells
    });
    let cells: Vec<_> = cells.collect();
    let grid = Grid::fit(&COLUMNS, &cells, screen.width);
    grid.header(screen) + &grid.rows(&cells, screen)
}

impl ShowQueue {
    async fn run(self, client: &Client) -> Outcome {
        let rows = rows(client, Some(self.queue.clone())).await?;
        let screen = &client.screen;
        if rows.is_empty() {
            return Err(CliError::NoSuch(format!(
                "queue {} has no tasks",
                self.queue
            )));
        }
        let next = self.next_in_line(client, &rows).await?;
        if screen.json {
            return show_json(&self.queue, &rows, &next, screen);
        }
        if !show_lanes(&rows, client.now(), screen)? || next.is_empty() {
            return Ok(OK);
        }
        say(&format!(
            "\n{}\n",
            screen.paint(Tint::Strong, "Next in line")
        ))?;
        let mut table = Table::default();
        for task in &next {
            table.push(task, client.now(), screen)?;
        }
        table.flush(screen)?;
        Ok(OK)
    }

    async fn next_in_line(&self, client: &Client, rows: &[Row]) -> Result<Vec<Task>> {
        let waiting = rows.iter().filter(|row| row.next.is_some());
        let lanes: Vec<Lane> = waiting.map(|row| row.counts.lane.clone()).collect();
        let mut next = Vec::new();
        for lanes in lanes.chunks(client.engine.store().limits().lanes_max) {
            next.extend(client.tasks.peek(lanes.to_vec(), self.next.into()).await?);
        }
        // In the order of claims.
        next.sort_by_key(|task| (Reverse(task.priority), task.runnable_at, task.id()));
        next.truncate(self.next.into());
        Ok(next)
    }
}

fn show_json(queue: &Name, rows: &[Row], next: &[Task], screen: &Screen) -> Outcome {
    #[derive(Serialize)]
    struct WireQueue<'a> {
        queue: &'a Name,
        lanes: Vec<WireLane<'a>>,
        next: Vec<WireTask<'a>>,
    }
    screen.object(&WireQueue {
        queue,
        lanes: rows.iter().map(WireLane::from).collect(),
        next: next.iter().map(WireTask::from).collect(),
    })?;
    Ok(OK)
}
