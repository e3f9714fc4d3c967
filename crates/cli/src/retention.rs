//! `plimsoll retention`: how long things are kept.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, Subcommand};
use plimsoll::Retention;
use plimsoll::task::Status;
use serde::Serialize;

use crate::client::{Client, IfMissing, Options};
use crate::exit::{OK, Outcome};
use crate::grid::{Cell, Column, Grid};
use crate::input;
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text::span;

/// Shows and says how long things are kept once they are over, in the namespace. Sweepers go by it, also those of
/// workers.
#[derive(Debug, Args)]
pub(crate) struct RetentionCommand {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Shows how long things are kept.
    Show,
    /// Says how long some things are kept; the others stay as they are.
    Set(Box<Set>),
    /// Forgets what was said: the default applies again.
    Reset,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Set {
    /// Tasks that were completed.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    completed: Option<Kept>,
    /// Tasks that failed for good.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    failed: Option<Kept>,
    /// Tasks that were cancelled.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    cancelled: Option<Kept>,
    /// Tasks in the archive.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    archived: Option<Kept>,
    /// Jobs whose partitions have all finished, unless it was said of them how long they are kept.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    jobs: Option<Kept>,
    /// Jobs that have not finished, since somebody last set a state of them: those that failed, or were left alone.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    silent_jobs: Option<Kept>,
    /// Groups that have drained.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    groups: Option<Kept>,
    /// The history: who comes back later is told everything anew.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    history: Option<Kept>,
    /// Lines of logs, also of active tasks; for ever is as long as their task.
    #[arg(long, value_name = "TIME|forever", value_parser = kept)]
    log_lines: Option<Kept>,
}

/// How long.
#[derive(Clone, Copy, Debug)]
enum Kept {
    For(Duration),
    Forever,
}

impl Kept {
    fn time(self) -> Option<Duration> {
        match self {
            Self::For(time) => Some(time),
            Self::Forever => None,
        }
    }
}

fn kept(text: &str) -> Result<Kept, String> {
    match text {
        "forever" => Ok(Kept::Forever),
        _ => match input::duration(text) {
            Ok(time) => Ok(Kept::For(time)),
            Err(wrong) => Err(format!("{wrong}, or forever")),
        },
    }
}

impl RetentionCommand {
    pub(crate) async fn run(self) -> Outcome {
        let client = match &self.verb {
            Verb::Set(_) => self.options.open(IfMissing::Create).await?,
            Verb::Show | Verb::Reset => self.options.open(IfMissing::Refuse).await?,
        };
        let stored = client.engine.retention();
        match self.verb {
            Verb::Show => {}
            Verb::Set(set) => {
                stored.update(|before| set.applied(before)).await?;
            }
            Verb::Reset => stored.clear().await?,
        }
        tell(stored.get().await?, &client)
    }
}

impl Set {
    fn applied(&self, mut retention: Retention) -> Retention {
        let tasks = [
            (Status::Completed, self.completed),
            (Status::Failed, self.failed),
            (Status::Cancelled, self.cancelled),
        ];
        for (status, kept) in tasks {
            match kept {
                Some(Kept::For(time)) => drop(retention.tasks.insert(status, time)),
                Some(Kept::Forever) => drop(retention.tasks.remove(&status)),
                None => {}
            }
        }
        let times = [
            (&mut retention.archived, self.archived),
            (&mut retention.jobs, self.jobs),
            (&mut retention.silent_jobs, self.silent_jobs),
            (&mut retention.groups, self.groups),
            (&mut retention.history, self.history),
            (&mut retention.logs, self.log_lines),
        ];
        for (time, kept) in times {
            if let Some(kept) = kept {
                *time = kept.time();
            }
        }
        retention
    }
}

/// What programs read.
#[derive(Serialize)]
struct WireRetention {
    stored: bool,
    completed_ms: Option<u64>,
    failed_ms: Option<u64>,
    cancelled_ms: Option<u64>,
    archive: BTreeSet<Status>,
    elsewhere: bool,
    archived_ms: Option<u64>,
    jobs_ms: Option<u64>,
    silent_jobs_ms: Option<u64>,
    groups_ms: Option<u64>,
    history_ms: Option<u64>,
    logs_ms: Option<u64>,
}

fn tell(stored: Option<Retention>, client: &Client) -> Outcome {
    let screen = &client.screen;
    let is_stored = stored.is_some();
    let retention = stored.unwrap_or_default();
    if screen.json {
        screen.object(&wire(retention, is_stored))?;
        return Ok(OK);
    }
    say(&table(&retention, screen))?;
    if !is_stored {
        screen.note("This is the default: nothing was said in this namespace.");
    }
    Ok(OK)
}

fn wire(retention: Retention, stored: bool) -> WireRetention {
    let millis = |time: Option<Duration>| {
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    };
    let of = |status| millis(retention.tasks.get(&status).copied());
    WireRetention {
        stored,
        completed_ms: of(Status::Completed),
        failed_ms: of(Status::Failed),
        cancelled_ms: of(Status::Cancelled),
        elsewhere: retention.elsewhere,
        archived_ms: millis(retention.archived),
        jobs_ms: millis(retention.jobs),
        silent_jobs_ms: millis(retention.silent_jobs),
        groups_ms: millis(retention.groups),
        history_ms: millis(retention.history),
        logs_ms: millis(retention.logs),
        archive: retention.archive,
    }
}

fn table(retention: &Retention, screen: &Screen) -> String {
    const COLUMNS: [Column; 3] = [
        Column::new("WHAT"),
        Column::new("IS KEPT"),
        Column::new("AND THEN").cut_to(10),
    ];
    let row = |what: &str, time: Option<Duration>, forever: &str, then: &str| match time {
        Some(time) => vec![what.into(), span(time).into(), then.into()],
        None => vec![what.into(), Cell::tinted(forever, Tint::Faint), "".into()],
    };
    let (forever, removed) = ("for ever", "is removed");
    let tasks = [
        (Status::Completed, "a completed task"),
        (Status::Failed, "a failed task"),
        (Status::Cancelled, "a cancelled task"),
    ];
    let tasks = tasks.map(|(status, what)| {
        let then = match (retention.archive.contains(&status), retention.elsewhere) {
            (true, true) => "goes to an archive elsewhere",
            (true, false) => "goes to the archive",
            (false, _) => removed,
        };
        let time = retention.tasks.get(&status).copied();
        row(what, time, forever, then)
    });
    let over = "is deleted, unless a time of its own was said of it";
    let silent = "is deleted, since its last state was set";
    let others = [
        row("an archived task", retention.archived, forever, removed),
        row("a job that has finished", retention.jobs, forever, over),
        row("a job that has not", retention.silent_jobs, forever, silent),
        row(
            "a group that has drained",
            retention.groups,
            forever,
            removed,
        ),
        row("the history", retention.history, forever, removed),
        row(
            "the log of a task",
            retention.logs,
            "as long as the task",
            removed,
        ),
    ];
    let rows: Vec<Vec<Cell>> = tasks.into_iter().chain(others).collect();
    let grid = Grid::fit(&COLUMNS, &rows, screen.width);
    grid.header(screen) + &grid.rows(&rows, screen)
}
