//! `plimsoll task retry`, `cancel` and `delete`: for tasks that are named, or for all that match.

use std::time::Duration;

use clap::Args;
use plimsoll::task::Status;
use plimsoll::tasks::{self, Bulk, DryRun, Effect, Report};
use plimsoll::{Result, TaskId};
use serde::Serialize;

use super::select::Filters;
use crate::ask;
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome, REFUSED, of_error};
use crate::input::{self, Which};
use crate::output::{Teller, say};
use crate::text::{clean, count};
use crate::wire::WireError;

/// Which tasks to act on.
#[derive(Debug, Args)]
struct Target {
    /// Ids, or `key:KEY`.
    #[arg(value_name = "TASK", value_parser = input::which)]
    tasks: Vec<Which>,
    /// Of all that match: only says how many there are.
    #[arg(long, conflicts_with = "tasks")]
    dry_run: bool,
    /// Of all that match: does not ask.
    #[arg(long, short, conflicts_with = "tasks")]
    yes: bool,
    #[command(flatten)]
    filters: Filters,
}

/// Makes tasks run again at once. A completed one stays completed; a claimed one, if it is named or
/// asked for with --status, is taken away from its worker.
#[derive(Debug, Args)]
pub(super) struct Retry {
    /// Also those that have failed as often as they may: each gets one more attempt.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

/// Cancels tasks. The worker of one that is claimed is asked to stop.
#[derive(Debug, Args)]
pub(super) struct Cancel {
    /// Why.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Removes tasks that have ended, with their keys and logs.
#[derive(Debug, Args)]
pub(super) struct Delete {
    #[command(flatten)]
    target: Target,
}

impl Retry {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let force = self.force;
        self.target.run(client, &Verb::Retry { force }).await
    }
}

impl Cancel {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let reason = self.reason;
        self.target.run(client, &Verb::Cancel { reason }).await
    }
}

impl Delete {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        self.target.run(client, &Verb::Delete).await
    }
}

/// What to do to each.
enum Verb {
    Retry { force: bool },
    Cancel { reason: Option<String> },
    Delete,
}

impl Verb {
    /// What is meant unless somebody asks for other statuses. To retry all of a queue must not take
    /// tasks away from their workers.
    fn statuses(&self) -> &'static [Status] {
        match self {
            Self::Retry { .. } => &[Status::Failed],
            Self::Cancel { .. } => &[Status::Scheduled, Status::Pending, Status::Claimed],
            Self::Delete => &[Status::Completed, Status::Failed, Status::Cancelled],
        }
    }

    fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::Retry { .. } => ("Retry", "Retried"),
            Self::Cancel { .. } => ("Cancel", "Cancelled"),
            Self::Delete => ("Delete", "Deleted"),
        }
    }

    async fn one(&self, client: &Client, id: TaskId) -> Result<Option<Effect>> {
        let tasks = &client.tasks;
        match self {
            Self::Retry { force } => {
                let effect = tasks.retry_with(id, *force, Duration::ZERO).await?;
                Ok(Some(effect))
            }
            Self::Cancel { reason } => tasks.cancel(id, reason.clone()).await.map(Some),
            Self::Delete => tasks.delete(id).await.map(|()| None),
        }
    }

    async fn many(&self, bulks: &[Bulk], report: &mut Report) -> Result<()> {
        let verb = match self {
            Self::Retry { force } => tasks::Verb::Retry { force: *force },
            Self::Cancel { reason } => tasks::Verb::Cancel {
                reason: reason.clone(),
            },
            Self::Delete => tasks::Verb::Delete,
        };
        for bulk in bulks {
            bulk.act(&verb, report).await?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct WireEffect<'a> {
    task: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<WireError>,
}

#[derive(Serialize)]
struct WireReport {
    matched: u64,
    changed: u64,
    already: u64,
    refused: u64,
    refusals: Vec<WireEffect<'static>>,
}

#[derive(Serialize)]
struct WireDryRun {
    matched: u64,
    sample: Vec<String>,
}

impl Target {
    async fn run(self, client: &Client, verb: &Verb) -> Outcome {
        match (self.tasks.is_empty(), self.filters.is_empty()) {
            (false, true) => self.named(client, verb).await,
            (true, false) => self.matching(client, verb).await,
            (true, true) => Err(CliError::Usage(
                "no task is named: give ids or key:KEY, or say which with --queue, --owner and so on"
                    .into(),
            )),
            (false, false) => Err(CliError::Usage(
                "tasks are named and described: give either ids or --queue, --owner and so on"
                    .into(),
            )),
        }
    }

    /// Each on its own: one that is refused does not keep the others from it.
    async fn named(self, client: &Client, verb: &Verb) -> Outcome {
        let (mut ended, mut teller) = (OK, Teller::default());
        for which in &self.tasks {
            let answer = match which.id(&client.tasks).await {
                Ok(id) => verb.one(client, id).await,
                Err(error) => Err(error),
            };
            match (client.screen.json, &answer) {
                (true, _) => teller.tell(|| client.screen.object(&wire(which, &answer))),
                (false, Ok(effect)) => {
                    teller.tell(|| Ok(say(&format!("{which}  {}\n", in_words(*effect)))?));
                }
                (false, Err(error)) => {
                    CliError::from(error.clone()).tell(false);
                }
            }
            if let (OK, Err(error)) = (ended, &answer) {
                ended = of_error(error);
            }
        }
        teller.end(ended)
    }

    async fn matching(self, client: &Client, verb: &Verb) -> Outcome {
        if !self.filters.is_indexed() {
            return Err(CliError::Usage(
                "only one of --queue or --kind, --owner, --group and --key-prefix can say which \
                 tasks to act on"
                    .into(),
            ));
        }
        let selection = self.filters.selection(client, verb.statuses()).await?;
        let bulks = selection.selectors.into_iter();
        let bulks = bulks.map(|selector| client.tasks.bulk(selector, selection.filter.clone()));
        let bulks: Vec<Bulk> = bulks.collect();
        if self.dry_run || !self.yes {
            let found = dry_run(&bulks).await?;
            if self.dry_run {
                return show_dry_run(client, found);
            }
            if !confirmed(verb, found.matched)? {
                client.screen.note("Nothing was changed.");
                return Ok(REFUSED);
            }
        }
        let mut all = Report::default();
        let done = verb.many(&bulks, &mut all).await;
        // Also what was done before it broke off.
        let code = show_report(client, verb, &all)?;
        done?;
        Ok(code)
    }
}

fn wire(which: &Which, answer: &Result<Option<Effect>>) -> WireEffect<'static> {
    let effect = answer.as_ref().ok();
    WireEffect {
        task: which.to_string(),
        changed: effect.map(|effect| !matches!(effect, Some(Effect::Already(_)))),
        status: effect.map(|effect| effect.map_or("deleted", |effect| effect.status().as_str())),
        error: answer.as_ref().err().map(WireError::from),
    }
}

fn in_words(effect: Option<Effect>) -> String {
    match effect {
        None => "deleted".into(),
        // Only a cancel leaves a task with its worker.
        Some(Effect::Changed(Status::Claimed)) => "asked to stop".into(),
        Some(Effect::Changed(status)) => status.to_string(),
        Some(Effect::Already(Status::Claimed)) => "already asked to stop".into(),
        Some(Effect::Already(status)) => format!("already {status}"),
    }
}

async fn dry_run(bulks: &[Bulk]) -> Result<DryRun> {
    let mut all = DryRun::default();
    for bulk in bulks {
        let found = bulk.dry_run().await?;
        all.matched += found.matched;
        all.sample.extend(found.sample);
    }
    Ok(all)
}

fn show_dry_run(client: &Client, found: DryRun) -> Outcome {
    if client.screen.json {
        let sample = found.sample.iter().map(TaskId::to_string).collect();
        let matched = found.matched;
        client.screen.object(&WireDryRun { matched, sample })?;
    } else {
        let s = if found.matched == 1 { "es" } else { "" };
        say(&format!("{} match{s}.\n", count(found.matched, "task")))?;
    }
    Ok(OK)
}

/// Asks, if there is somebody to ask.
fn confirmed(verb: &Verb, matched: u64) -> Outcome<bool> {
    let (question, _) = verb.names();
    let tasks = count(matched, "task");
    let would = format!("{tasks} would be acted on");
    ask::agreed(
        &format!("{question} {tasks}?"),
        &would,
        "add --yes, or --dry-run to look",
    )
}

fn show_report(client: &Client, verb: &Verb, report: &Report) -> Outcome {
    let refused = report.refusals();
    if client.screen.json {
        let refusals = report.refused.iter().map(|(id, error)| WireEffect {
            task: id.to_string(),
            changed: None,
            status: None,
            error: Some(error.into()),
        });
        client.screen.object(&WireReport {
            matched: report.matched,
            changed: report.changed,
            already: report.already,
            refused,
            refusals: refusals.collect(),
        })?;
    } else {
        let (_, done) = verb.names();
        let mut text = format!("{done} {}", count(report.changed, "task"));
        if report.already > 0 {
            text += &format!(", {} that way already", report.already);
        }
        if refused > 0 {
            text += &format!(", {refused} refused");
        }
        say(&(text + ".\n"))?;
        for (_, error) in &report.refused {
            client
                .screen
                .note(&format!("  {}", clean(&error.to_string())));
        }
    }
    Ok(if refused > 0 { REFUSED } else { OK })
}
