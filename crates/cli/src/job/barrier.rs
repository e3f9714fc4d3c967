//! `plimsoll job barrier`.

use std::time::Duration;

use clap::Args;
use futures::FutureExt;
use indicatif::ProgressBar;
use plimsoll::error::Conflict;
use plimsoll::jobs::{FINISHED, Monitor, STARTED, Scope, State};
use plimsoll::{Error, Name};

use super::line::Line;
use super::picture::who;
use super::standing::words;
use super::wire::WireState;
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome};
use crate::input;
use crate::table::grouped;
use crate::text::{clean, count, span};

/// How often the bar asks who is last.
const LOOK: Duration = Duration::from_millis(500);
/// How wide the bar is where nobody says how wide the screen is.
const WIDTH: usize = 80;

/// Waits until all partitions of a job have got somewhere. The exit code is 0 if they have, 30 if a
/// partition has failed, 6 if it took too long, 3 if there is no such job, and 31 if it is deleted
/// meanwhile.
#[derive(Debug, Args)]
pub(super) struct WaitForAll {
    /// Which job.
    job: Name,
    /// At which tag.
    tag: Name,
    /// How far they must be: finished, started, or a number above 0.
    #[arg(value_parser = status, default_value = "finished")]
    status: i32,
    /// Gives up after this time.
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    timeout: Option<Duration>,
    /// Waits for partitions that have a warning, too.
    #[arg(long)]
    despite_warnings: bool,
    /// Waits until there is such a job.
    #[arg(long)]
    wait_for_job: bool,
}

/// A status as people write it.
fn status(text: &str) -> Result<i32, String> {
    match (text, text.parse()) {
        ("started", _) => Ok(STARTED),
        ("finished", _) => Ok(FINISHED),
        (_, Ok(status)) if status > 0 => Ok(status),
        _ => Err("expected finished, started, or a number above 0".into()),
    }
}

impl WaitForAll {
    pub(super) fn waits_for_job(&self) -> bool {
        self.wait_for_job
    }

    pub(super) async fn run(self, client: &Client) -> Outcome {
        let bar = client.screen.bar("{spinner} {msg} {elapsed}");
        let began = client.engine.clock().monotonic();
        let waited = self.wait(client, &bar, began).await;
        bar.finish_and_clear();
        let (monitor, state) = waited?;
        match client.screen.json {
            true => drop(client.screen.object(&WireState::from(&state))?),
            false => {
                // It was reached, whatever has become of the job since.
                let all = match monitor.partitions().now_or_never() {
                    Some(Ok(partitions)) => count(partitions.into(), "partition"),
                    Some(Err(_)) | None => "all partitions".into(),
                };
                client.screen.note(&format!("{all}: {}.", self.at()));
            }
        }
        Ok(OK)
    }

    /// `ingest finished`
    fn at(&self) -> String {
        format!("{} {}", clean(self.tag.as_str()), words(self.status))
    }

    async fn wait(
        &self,
        client: &Client,
        bar: &ProgressBar,
        began: Duration,
    ) -> Outcome<(Monitor, State)> {
        let (clock, jobs) = (client.engine.clock(), client.engine.jobs());
        let monitor = async {
            match self.wait_for_job {
                true => jobs.monitor_when_created(&self.job).await,
                false => jobs.monitor(&self.job).await,
            }
        };
        let monitor = match self.timeout {
            None => monitor.await?,
            Some(timeout) => tokio::select! {
                biased;
                monitor = monitor => monitor?,
                () = clock.sleep(timeout) => {
                    let (job, time) = (clean(self.job.as_str()), span(timeout));
                    return Err(CliError::Timeout(match self.wait_for_job {
                        true => format!("there is no job {job} after {time}, or it could not be read"),
                        false => format!("job {job} was not read within {time}"),
                    }));
                }
            },
        };
        let mut barrier = monitor.barrier(&self.tag, self.status)?;
        if self.despite_warnings {
            barrier = barrier.despite_warnings();
        }
        if let Some(timeout) = self.timeout {
            let gone = clock.monotonic().saturating_sub(began);
            barrier = barrier.within(timeout.saturating_sub(gone));
        }
        let reached = tokio::select! {
            biased;
            reached = barrier.into_future() => reached,
            error = self.animate(client, &monitor, bar) => Err(error),
        };
        match reached {
            Ok(state) => Ok((monitor, state)),
            Err(error) => Err(self.told(error)),
        }
    }

    /// A barrier that was not reached in time, in the words of the command.
    fn told(&self, error: Error) -> CliError {
        if let Error::Conflict(conflict) = &error
            && let Conflict::BarrierNotReached {
                behind,
                partition,
                status,
                ..
            } = **conflict
        {
            let (job, at) = (clean(self.job.as_str()), self.at());
            let (behind, status) = (grouped(behind.into()), words(status));
            let time = span(self.timeout.unwrap_or_default());
            return CliError::Timeout(format!(
                "job {job}: after {time}, {behind} of its partitions have not reached {at}; \
                 the last is partition {partition}: {status}"
            ));
        }
        error.into()
    }

    /// Shows who is last, for ever, if somebody sees it.
    async fn animate(&self, client: &Client, monitor: &Monitor, bar: &ProgressBar) -> Error {
        if bar.is_hidden() {
            return std::future::pending().await;
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        let tag = Some(self.tag.clone());
        let scope = Scope {
            partition: None,
            tag,
        };
        let width = client.screen.width.unwrap_or(WIDTH).saturating_sub(20);
        loop {
            match monitor.get_state(&scope).await {
                Ok(state) => {
                    bar.set_message(who(&state, Line::new(width, &client.screen)).end());
                }
                Err(error) => return error,
            }
            client.engine.clock().sleep(LOOK).await;
        }
    }
}
