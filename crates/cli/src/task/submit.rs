//! `plimsoll task submit`.

use std::time::Duration;

use clap::Args;
use plimsoll::error::Problem;
use plimsoll::store::{SubmitOutcome, Submitted};
use plimsoll::task::{Backoff, Due, KeyLifetime, NewTask, OnConflict, Priority};
use plimsoll::{IdempotencyKey, Invalid, Name, Result, TaskId, Tasks, Timestamp};
use serde::Serialize;

use super::wait::{How, until_ended};
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome};
use crate::input;
use crate::json::is_json;
use crate::output::say;
use crate::wire::{conflict, lifetime, submitted};

/// Submits a task, or one for each line of JSON. Shows the id.
#[derive(Debug, Args)]
pub(super) struct Submit {
    /// Where it waits.
    #[arg(required_unless_present = "lines")]
    queue: Option<Name>,
    /// What kind of work it is.
    #[arg(required_unless_present = "lines")]
    kind: Option<Name>,
    /// What the worker gets: text, `@FILE`, or `-` for standard input. It may be empty: ''.
    #[arg(required_unless_present = "lines", conflicts_with = "lines")]
    payload: Option<String>,
    /// One task for each line of JSON in this file, or `-` for standard input; the other arguments
    /// say what a line does not.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["wait", "id", "json_payload"])]
    lines: Option<String>,
    /// Refuses a payload that is not JSON.
    #[arg(long)]
    json_payload: bool,
    /// The id of the task: to submit it again is the same submission.
    #[arg(long, value_name = "UUID")]
    id: Option<TaskId>,
    #[command(flatten)]
    settings: Settings,
    /// Waits until the task has ended. The exit code tells how.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    how: How,
}

/// What can be said of a task besides its lane and payload.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Settings {
    /// What makes it the same as an earlier task.
    #[arg(long)]
    pub(super) key: Option<IdempotencyKey>,
    /// How long the key stands for it: `forever` (until it is deleted), `active` (until it has
    /// ended), or a time.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(super) key_lifetime: Option<KeyLifetime>,
    /// If the key stands for another task: `attach` (answer with that), `reject`, `replace-pending`
    /// or `cancel-and-replace`.
    #[arg(long, value_name = "POLICY", value_parser = conflict)]
    pub(super) on_conflict: Option<OnConflict>,
    /// How urgent it is: 0 to 10, 10 first.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub(super) priority: Option<u8>,
    /// Runnable after this time.
    #[arg(long = "in", value_name = "TIME", value_parser = input::duration, conflicts_with = "at")]
    pub(super) after: Option<Duration>,
    /// Runnable at this moment.
    #[arg(long, value_name = "MOMENT", value_parser = input::moment)]
    pub(super) at: Option<Timestamp>,
    /// Whose it is.
    #[arg(long, value_name = "NAME")]
    pub(super) owner: Option<Name>,
    /// What it can be found by; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::label)]
    pub(super) label: Vec<(Name, Name)>,
    /// How often it may fail; 0: without limit.
    #[arg(long, value_name = "COUNT")]
    pub(super) max_attempts: Option<u32>,
    /// How long to wait after the first failure.
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    pub(super) retry_delay: Option<Duration>,
    /// How much longer each following wait is; 1: always the same.
    #[arg(long, value_name = "NUMBER")]
    pub(super) retry_factor: Option<f64>,
    /// The longest wait.
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    pub(super) retry_cap: Option<Duration>,
    /// How long after its submission a retry may still be due.
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    pub(super) retry_within: Option<Duration>,
    /// How long one attempt may take.
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    pub(super) attempt_timeout: Option<Duration>,
}

impl Settings {
    /// What is not said here, as it is said there.
    pub(super) fn or(mut self, other: &Self) -> Self {
        let due = self.after.is_some() || self.at.is_some();
        // Labels of the same name: the last counts, and that is this one.
        let own = std::mem::replace(&mut self.label, other.label.clone());
        self.label.extend(own);
        Self {
            key: self.key.or_else(|| other.key.clone()),
            key_lifetime: self.key_lifetime.or(other.key_lifetime),
            on_conflict: self.on_conflict.or(other.on_conflict),
            priority: self.priority.or(other.priority),
            after: if due { self.after } else { other.after },
            at: if due { self.at } else { other.at },
            owner: self.owner.or_else(|| other.owner.clone()),
            label: self.label,
            max_attempts: self.max_attempts.or(other.max_attempts),
            retry_delay: self.retry_delay.or(other.retry_delay),
            retry_factor: self.retry_factor.or(other.retry_factor),
            retry_cap: self.retry_cap.or(other.retry_cap),
            retry_within: self.retry_within.or(other.retry_within),
            attempt_timeout: self.attempt_timeout.or(other.attempt_timeout),
        }
    }

    /// The task with all of this.
    pub(super) fn apply(self, mut task: NewTask) -> Result<NewTask, Invalid> {
        let key_only = self.key_lifetime.is_some() || self.on_conflict.is_some();
        if key_only && self.key.is_none() {
            let missing = "the key that its lifetime and conflict policy are for".into();
            return Err(Invalid::new("key", Problem::Missing(missing)));
        }
        if let Some(key) = self.key {
            let (lifetime, conflict) = (self.key_lifetime, self.on_conflict);
            task = task.key_with(
                key,
                lifetime.unwrap_or_default(),
                conflict.unwrap_or_default(),
            );
        }
        if let Some(priority) = self.priority {
            task = task.priority(Priority::new(priority)?);
        }
        task.due = match (self.after, self.at) {
            (Some(delay), _) => Due::After(delay),
            (None, Some(moment)) => Due::At(moment),
            (None, None) => Due::Now,
        };
        task.owner = self.owner;
        task.labels.extend(self.label);
        task.retry.max_attempts = self.max_attempts.unwrap_or(task.retry.max_attempts);
        task.retry.total = self.retry_within;
        if let Backoff::Exponential { first, factor, cap } = &mut task.retry.backoff {
            *first = self.retry_delay.unwrap_or(*first);
            *factor = self.retry_factor.unwrap_or(*factor);
            // Who asks for a long first wait means it.
            *cap = self.retry_cap.unwrap_or((*cap).max(*first));
        }
        task.attempt_timeout = self.attempt_timeout;
        Ok(task)
    }
}

#[derive(Serialize)]
struct WireSubmitted {
    id: String,
    outcome: &'static str,
}

fn wire(answer: &Submitted) -> WireSubmitted {
    WireSubmitted {
        id: answer.id.to_string(),
        outcome: submitted(answer.outcome),
    }
}

impl Submit {
    /// What can be told before a store is opened, which would make the file.
    pub(super) fn check(&self) -> Outcome<()> {
        let unused = self.how.is_given() && !self.wait;
        match unused {
            true => Err(CliError::Usage(
                "--timeout and --result say how to wait: add --wait".into(),
            )),
            false => Ok(()),
        }
    }

    pub(super) async fn run(self, client: &Client) -> Outcome {
        if let Some(lines) = &self.lines {
            let defaults = super::lines::Defaults {
                queue: self.queue,
                kind: self.kind,
                settings: self.settings,
            };
            return super::lines::submit(client, lines, &defaults).await;
        }
        let task = self.task(client)?;
        let key = task.key.as_ref().map(|key| key.key.clone());
        let id = task.id;
        let answer = client.tasks.submit(task).await;
        let answer = answer.map_err(|error| match error.is_transient() {
            true => CliError::Submit { id, error },
            false => error.into(),
        })?;
        if self.wait {
            // Whoever stops waiting must be able to find it again.
            client.screen.note(&match client.screen.json {
                true => serde_json::json!({ "submitted": wire(&answer) }).to_string(),
                false => answer.id.to_string(),
            });
            return until_ended(client, &[answer.id], &self.how).await;
        }
        if client.screen.json {
            client.screen.object(&wire(&answer))?;
        } else {
            say(&format!("{}\n", answer.id))?;
            if let (Some(key), Some(words)) = (key, attached(&answer)) {
                client
                    .screen
                    .note(&format!("Nothing new: key {key} {words}."));
            }
        }
        Ok(OK)
    }

    fn task(&self, client: &Client) -> Outcome<NewTask> {
        let max = client.engine.store().limits().payload_bytes_max;
        let payload = input::payload(self.payload.as_deref().unwrap_or_default(), max)?;
        let text = std::str::from_utf8(&payload);
        if self.json_payload && !text.is_ok_and(is_json) {
            let expected = "JSON, as --json-payload asks".into();
            return Err(Invalid::new("payload", Problem::Malformed { expected }).into());
        }
        let task = new_task(
            &client.tasks,
            self.queue.as_ref(),
            self.kind.as_ref(),
            payload,
        )?;
        let mut task = self.settings.clone().apply(task)?;
        task.id = self.id.unwrap_or(task.id);
        Ok(task)
    }
}

/// A task in this lane; both parts of it are needed.
pub(super) fn new_task(
    tasks: &Tasks,
    queue: Option<&Name>,
    kind: Option<&Name>,
    payload: Vec<u8>,
) -> Result<NewTask> {
    let needed = |field: &str, name: Option<&Name>| {
        let missing = || {
            Invalid::new(
                field,
                Problem::Missing("no line and no argument says it".into()),
            )
        };
        name.cloned().ok_or_else(missing)
    };
    tasks.task(needed("queue", queue)?, needed("kind", kind)?, payload)
}

/// That no task was made, and which there is instead.
fn attached(answer: &Submitted) -> Option<String> {
    match answer.outcome {
        SubmitOutcome::Created => None,
        SubmitOutcome::Existing => Some("stands for this task already".into()),
        SubmitOutcome::ExistingOtherPayload => {
            Some("stands for this task already, which has another payload".into())
        }
        SubmitOutcome::ExistingFinished(status) => {
            Some(format!("stands for this task, which is {status}"))
        }
    }
}
