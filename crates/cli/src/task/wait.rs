//! `plimsoll task wait`.

use std::cell::Cell;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt};
use indicatif::ProgressBar;
use plimsoll::TaskId;
use plimsoll::task::{Status, Task};

use super::list::{in_words, what};
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome, of_status};
use crate::input::{self, Which};
use crate::output::{say, say_bytes};
use crate::table::grouped;
use crate::text::{clean, span};
use crate::wire::WireTask;

/// How often the bar asks how far the task is.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until tasks have ended. The exit code is 0 if all are completed, 10 if one has failed, 11 if
/// one was cancelled, and 6 if it took too long.
#[derive(Debug, Args)]
pub(super) struct Wait {
    /// Ids, or `key:KEY`.
    #[arg(value_name = "TASK", value_parser = input::which, required = true)]
    tasks: Vec<Which>,
    #[command(flatten)]
    how: How,
}

/// How to wait.
#[derive(Debug, Args)]
pub(super) struct How {
    /// Gives up after this time; the tasks go on.
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    timeout: Option<Duration>,
    /// Shows results instead of a line for each task, as they were stored, in the order of the
    /// arguments.
    #[arg(long, conflicts_with = "json")]
    result: bool,
}

impl How {
    /// Whether anything is said about it.
    pub(super) fn is_given(&self) -> bool {
        self.timeout.is_some() || self.result
    }
}

impl Wait {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let mut ids = Vec::new();
        for which in &self.tasks {
            ids.push(which.id(&client.tasks).await?);
        }
        until_ended(client, &ids, &self.how).await
    }
}

/// Waits for all of them, and shows each as it ends.
pub(super) async fn until_ended(client: &Client, ids: &[TaskId], how: &How) -> Outcome {
    let bar = match ids {
        [_] => client.screen.bar("{spinner} {wide_msg} {elapsed}"),
        ids => {
            let counted = "{spinner} {bar:24} {human_pos} of {human_len}{msg} {elapsed}";
            let bar = client.screen.bar(counted);
            bar.set_length(ids.len() as u64);
            bar
        }
    };
    let so_far = Cell::default();
    let clock = client.engine.clock();
    let late = async {
        match how.timeout {
            Some(timeout) => clock.sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        biased;
        ended = all(client, ids, how, &bar, &so_far) => ended,
        () = animate(client, ids, &bar) => Ok(OK),
        () = late => {
            let timeout = how.timeout.unwrap_or_default();
            Err(CliError::Timeout(too_late(ids, so_far.get(), timeout)))
        }
    };
    bar.finish_and_clear();
    ended
}

fn too_late(ids: &[TaskId], so_far: Ended, timeout: Duration) -> String {
    let timeout = span(timeout);
    match ids {
        [id] => format!("task {id} has not ended within {timeout}: it goes on"),
        ids => {
            let (left, all) = (ids.len() as u64 - so_far.all(), ids.len());
            format!("{left} of {all} tasks have not ended within {timeout}: they go on")
        }
    }
}

/// How many have ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ended {
    completed: u64,
    failed: u64,
    cancelled: u64,
}

impl Ended {
    fn and(mut self, status: Status) -> Self {
        match status {
            Status::Failed => self.failed += 1,
            Status::Cancelled => self.cancelled += 1,
            Status::Completed | Status::Scheduled | Status::Pending | Status::Claimed => {
                self.completed += 1;
            }
        }
        self
    }

    fn all(self) -> u64 {
        self.completed + self.failed + self.cancelled
    }

    /// `, 3 failed, 1 cancelled`: what went well is what is left.
    fn in_words(self) -> String {
        let bad = [(self.failed, "failed"), (self.cancelled, "cancelled")];
        let bad = bad.into_iter().filter(|(count, _)| *count > 0);
        bad.map(|(count, how)| format!(", {} {how}", grouped(count)))
            .collect()
    }
}

async fn all(
    client: &Client,
    ids: &[TaskId],
    how: &How,
    bar: &ProgressBar,
    so_far: &Cell<Ended>,
) -> Outcome {
    let waits = stream::iter(ids).map(async |id| {
        let task = client.tasks.wait(*id).await?;
        so_far.set(so_far.get().and(task.status));
        if ids.len() > 1 {
            bar.set_position(so_far.get().all());
            bar.set_message(so_far.get().in_words());
        }
        Ok::<_, plimsoll::Error>(task)
    });
    let mut waits = match how.result {
        true => waits.buffered(ids.len()).boxed_local(),
        false => waits.buffer_unordered(ids.len()).boxed_local(),
    };
    let (mut worst, mut heard) = (OK, true);
    while let Some(task) = waits.next().await {
        let task = task?;
        // A failure says more than a cancellation.
        worst = match (worst, of_status(task.status)) {
            (OK, code) => code,
            (worst, OK) => worst,
            (worst, code) => worst.min(code),
        };
        if heard {
            heard = bar.suspend(|| show(client, &task, how))?;
        }
    }
    Ok(worst)
}

fn show(client: &Client, task: &Task, how: &How) -> Outcome<bool> {
    let screen = &client.screen;
    if screen.json {
        return screen.object(&WireTask::from(task));
    }
    if how.result {
        if task.status != Status::Completed {
            let reason = clean(&what(task, client.now()));
            let line = format!("plimsoll: task {} {}: {reason}", task.id(), task.status);
            // If nobody listens, the exit code still says it.
            writeln!(std::io::stderr(), "{line}").ok();
        }
        return Ok(say_bytes(task.result.as_deref().unwrap_or_default())?);
    }
    let status = screen.paint(task.status.into(), task.status.as_str());
    let words = clean(&what(task, client.now()));
    let line = format!("{}  {status}  {words}", task.id());
    Ok(say(&(line.trim_end().to_owned() + "\n"))?)
}

/// Moves the bar for ever, if somebody sees it.
async fn animate(client: &Client, ids: &[TaskId], bar: &ProgressBar) {
    if bar.is_hidden() {
        return std::future::pending().await;
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    loop {
        match ids {
            // Whoever waits hears of errors anyway.
            [id] => {
                if let Ok(Some(task)) = client.tasks.find(*id).await {
                    bar.set_message(progress(&task, client));
                }
            }
            // Whoever waits for them counts them.
            _ => return std::future::pending().await,
        }
        client.engine.clock().sleep(LOOK).await;
    }
}

fn progress(task: &Task, client: &Client) -> String {
    let words = what(task, client.now());
    let percent = task.progress.as_ref().and_then(|progress| progress.percent);
    let bar = percent.map(|percent| super::details::bar(percent) + " ");
    let words = match &task.progress {
        Some(progress) if bar.is_some() => in_words(progress),
        _ => words,
    };
    let bar = bar.unwrap_or_default();
    format!("{}  {bar}{}", task.status, clean(&words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_counted_by_how() {
        let none = Ended::default();
        assert_eq!(none.in_words(), "");
        let done = none.and(Status::Completed).and(Status::Completed);
        assert_eq!((done.all(), done.in_words().as_str()), (2, ""));
        let some = done.and(Status::Failed).and(Status::Cancelled);
        assert_eq!(some.in_words(), ", 1 failed, 1 cancelled");
        let ids = [1, 2, 3, 4, 5].map(TaskId::from_u128);
        let late = |ids: &[TaskId]| too_late(ids, some, Duration::from_secs(90));
        assert_eq!(
            late(&ids),
            "1 of 5 tasks have not ended within 1m 30s: they go on"
        );
        let one =
            "task 00000000-0000-0000-0000-000000000001 has not ended within 1m 30s: it goes on";
        assert_eq!(late(&ids[..1]), one);
    }
}
