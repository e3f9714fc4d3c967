//! `plimsoll task list`.

use clap::Args;
use futures::TryStreamExt;
use plimsoll::Timestamp;
use plimsoll::task::{Priority, Progress, Status, Task};

use super::select::{BY_INTEREST, Filters};
use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::grid::{Blocks, Cell, Column};
use crate::screen::{Screen, Tint};
use crate::text::{age, rough, span};
use crate::wire::WireTask;

/// Lists tasks: what is alive first, lane by lane, the oldest first.
#[derive(Debug, Args)]
pub(super) struct ListTasks {
    /// At most so many.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// As many as there are.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    filters: Filters,
}

impl ListTasks {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let selection = self.filters.selection(client, &BY_INTEREST).await?;
        let mut tasks = selection.tasks(&client.tasks);
        let screen = &client.screen;
        let limit = if self.all { u64::MAX } else { self.limit };
        let (mut shown, mut more) = (0, false);
        let mut table = Table::default();
        while let Some(task) = tasks.try_next().await? {
            if shown == limit {
                more = true;
                break;
            }
            shown += 1;
            let heard = match screen.json {
                true => screen.object(&WireTask::from(&task))?,
                false => table.push(&task, client.now(), screen)?,
            };
            if !heard {
                return Ok(OK);
            }
        }
        if !table.flush(screen)? {
            return Ok(OK);
        }
        if shown == 0 && !screen.json {
            screen.note("No tasks match.");
        }
        if more {
            screen.note(&format!(
                "The first {shown}; for more, --limit COUNT or --all."
            ));
        }
        Ok(OK)
    }
}

/// Tasks for people.
pub(crate) struct Table(pub(super) Blocks);

impl Default for Table {
    fn default() -> Self {
        Self(Blocks::new(&COLUMNS))
    }
}

impl Table {
    /// Whether somebody still listens.
    pub(crate) fn push(&mut self, task: &Task, now: Timestamp, screen: &Screen) -> Outcome<bool> {
        self.0.push(row(task, now), screen)
    }

    /// Shows what has not been shown yet.
    pub(crate) fn flush(&mut self, screen: &Screen) -> Outcome<bool> {
        self.0.flush(screen)
    }
}

const COLUMNS: [Column; 9] = [
    Column::new("ID"),
    Column::new("STATUS"),
    Column::new("LANE").cut_to(12),
    Column::new("PRIO").right().rank(3),
    Column::new("TRIES").right().rank(2),
    Column::new("AGE").right(),
    Column::new("KEY").cut_to(8).rank(4),
    Column::new("OWNER").cut_to(6).rank(5),
    Column::new("WHAT").cut_to(12).rank(1),
];

fn row(task: &Task, now: Timestamp) -> Vec<Cell> {
    let spec = &task.spec;
    let usual = task.priority == Priority::default();
    let priority = if usual {
        String::new()
    } else {
        task.priority.get().to_string()
    };
    let tries = match (task.attempts, spec.retry.max_attempts) {
        (0 | 1, _) => String::new(),
        (attempts, 0) => attempts.to_string(),
        (attempts, max) => format!("{attempts}/{max}"),
    };
    let key = spec.key.as_ref().map_or("", |(key, _)| key.as_str());
    vec![
        task.id().to_string().into(),
        Cell::tinted(task.status.as_str(), task.status.into()),
        spec.lane.to_string().into(),
        priority.into(),
        tries.into(),
        rough(now.since(spec.created_at)).into(),
        key.into(),
        spec.owner
            .as_ref()
            .map_or("", |owner| owner.as_str())
            .into(),
        Cell::tinted(what(task, now), Tint::Plain),
    ]
}

/// What there is to say of it, in a few words.
pub(super) fn what(task: &Task, now: Timestamp) -> String {
    let last_error = task.errors.last().map(|error| error.message.as_str());
    match task.status {
        Status::Scheduled => {
            let when = match task.runnable_at > now {
                true => age(now, task.runnable_at),
                false => format!("due for {}", rough(now.since(task.runnable_at))),
            };
            match last_error {
                Some(error) => format!("{when}: {error}"),
                None => when,
            }
        }
        Status::Pending => last_error.unwrap_or_default().into(),
        Status::Claimed => claimed(task),
        Status::Completed => match (task.started_at, task.finished_at) {
            (Some(from), Some(to)) => format!("took {}", span(to.since(from))),
            _ => String::new(),
        },
        Status::Failed | Status::Cancelled => task.reason.clone().unwrap_or_default(),
    }
}

fn claimed(task: &Task) -> String {
    let worker = task.lease.as_ref().map(|lease| lease.worker.name.as_str());
    let progress = task.progress.as_ref().map(in_words);
    let stopping = task.cancel.as_ref().map(|_| "asked to stop".to_string());
    let stage = task.stage.as_ref().map(|stage| stage.to_string());
    let parts = [worker.map(String::from), stopping, stage, progress];
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

/// How far a task is: `40 %, step 2 of 5, encoding`.
pub(super) fn in_words(progress: &Progress) -> String {
    let percent = progress.percent.map(|percent| format!("{percent} %"));
    let step = progress.current_step.map(|step| match progress.step_count {
        Some(count) => format!("step {step} of {count}"),
        None => format!("step {step}"),
    });
    let parts = [percent, step, progress.message.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
