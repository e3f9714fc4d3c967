//! `plimsoll task wait`.

use std::time::Duration;

use clap::Args;
use futures::stream::{FuturesUnordered, StreamExt};
use indicatif::ProgressBar;
use plimsoll::TaskId;
use plimsoll::task::Task;

use super::list::{in_words, what};
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome, of_status};
use crate::input::{self, Which};
use crate::output::{say, say_bytes};
use crate::text::{clean, count, span};
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
    /// Shows results instead of a line for each task, as they were stored.
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
    let bar = client.screen.bar("{spinner} {wide_msg} {elapsed}");
    let clock = client.engine.clock();
    let late = async {
        match how.timeout {
            Some(timeout) => clock.sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        biased;
        ended = all(client, ids, how, &bar) => ended,
        () = animate(client, ids, &bar) => Ok(OK),
        () = late => Err(CliError::Timeout(format!(
            "not ended within {}: {} goes on",
            span(how.timeout.unwrap_or_default()),
            if ids.len() == 1 { "the task" } else { "what is left" }
        ))),
    };
    bar.finish_and_clear();
    ended
}

async fn all(client: &Client, ids: &[TaskId], how: &How, bar: &ProgressBar) -> Outcome {
    let waits = ids.iter().map(|id| client.tasks.wait(*id));
    let mut waits: FuturesUnordered<_> = waits.collect();
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
            ids => bar.set_message(format!("waiting for {}", count(ids.len() as u64, "task"))),
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
