//! Tasks from lines of JSON.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use plimsoll::error::Problem;
use plimsoll::store::{SubmitOutcome, Submitted};
use plimsoll::task::NewTask;
use plimsoll::{Error, IdempotencyKey, Invalid, Name, Result, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::submit::{Settings, new_task};
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome, of_error};
use crate::json::compact;
use crate::output::say;
use crate::text::{clean, count};
use crate::wire::{WireError, conflict, lifetime, submitted};
use crate::{input, table::grouped};

/// How many tasks are submitted at a time.
const BATCH: usize = 500;
/// How long a line may be: payloads are smaller than this, however they are written.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What holds for every line that says nothing else.
pub(super) struct Defaults {
    pub(super) queue: Option<Name>,
    pub(super) kind: Option<Name>,
    pub(super) settings: Settings,
}

/// A line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineTask {
    id: Option<TaskId>,
    queue: Option<Name>,
    kind: Option<Name>,
    /// Kept as it is written, on one line.
    payload: Option<Box<RawValue>>,
    /// A payload that is not JSON.
    text: Option<String>,
    key: Option<IdempotencyKey>,
    key_lifetime: Option<String>,
    on_conflict: Option<String>,
    priority: Option<u8>,
    #[serde(rename = "in")]
    after: Option<String>,
    at: Option<String>,
    owner: Option<Name>,
    #[serde(default)]
    labels: BTreeMap<Name, Name>,
    max_attempts: Option<u32>,
    attempt_timeout: Option<String>,
}

impl LineTask {
    fn read(line: &[u8]) -> Result<Self, Invalid> {
        serde_json::from_slice(line).map_err(|error| {
            let problem = Problem::Contradiction(error.to_string().into());
            Invalid::new("line", problem)
        })
    }

    fn into_task(self, client: &Client, defaults: &Defaults) -> Result<NewTask> {
        let payload = match (&self.payload, self.text) {
            (Some(json), None) => compact(json.get()).unwrap_or_default().into_bytes(),
            (None, Some(text)) => text.into_bytes(),
            (None, None) => {
                let missing = "payload (JSON) or text".into();
                return Err(Invalid::new("payload", Problem::Missing(missing)).into());
            }
            (Some(_), Some(_)) => {
                let both = "payload and text exclude each other".into();
                return Err(Invalid::new("payload", Problem::Contradiction(both)).into());
            }
        };
        let settings = Settings {
            key: self.key,
            key_lifetime: parsed("key_lifetime", self.key_lifetime, lifetime)?,
            on_conflict: parsed("on_conflict", self.on_conflict, conflict)?,
            priority: self.priority,
            after: parsed("in", self.after, input::duration)?,
            at: parsed("at", self.at, input::moment)?,
            owner: self.owner,
            label: self.labels.into_iter().collect(),
            max_attempts: self.max_attempts,
            attempt_timeout: parsed("attempt_timeout", self.attempt_timeout, input::duration)?,
            ..Settings::default()
        };
        let queue = self.queue.as_ref().or(defaults.queue.as_ref());
        let kind = self.kind.as_ref().or(defaults.kind.as_ref());
        let task = new_task(&client.tasks, queue, kind, payload)?;
        let mut task = settings.or(&defaults.settings).apply(task)?;
        task.id = self.id.unwrap_or(task.id);
        Ok(task)
    }
}

fn parsed<T>(
    field: &str,
    text: Option<String>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Invalid> {
    let read = text.map(|text| read(&text)).transpose();
    read.map_err(|expected| malformed(field, expected.trim_start_matches("expected ")))
}

fn malformed(field: &str, expected: &str) -> Invalid {
    let expected = expected.to_owned().into();
    Invalid::new(field, Problem::Malformed { expected })
}

/// What became of a line.
#[derive(Serialize)]
struct WireLineTask {
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<WireError>,
}

/// What became of all lines so far.
#[derive(Default)]
struct Tally {
    created: u64,
    existing: u64,
    refused: u64,
    /// The exit code of the first that was refused.
    code: u8,
    /// That the store is away, so that it makes no sense to go on.
    away: bool,
    /// Nobody listens any more.
    deaf: bool,
}

/// Submits a task for each line of this file, `-` being standard input.
pub(super) async fn submit(client: &Client, file: &str, defaults: &Defaults) -> Outcome {
    let mut input: Box<dyn BufRead> = match file {
        "-" => Box::new(BufReader::new(std::io::stdin())),
        path => match std::fs::File::open(path) {
            Ok(file) => Box::new(BufReader::new(file)),
            Err(error) => return Err(unreadable(file, error)),
        },
    };
    let bar = client.screen.bar("{spinner} {human_pos} lines, {per_sec}");
    let (mut tally, mut number) = (Tally::default(), 0);
    let mut ended = false;
    while !ended && !tally.away && !tally.deaf {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            let Some(line) = next_line(&mut input, file)? else {
                ended = true;
                break;
            };
            number += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let task = LineTask::read(&line).map_err(Error::from);
            let task = task.and_then(|task| task.into_task(client, defaults));
            batch.push((number, task));
        }
        let answers = answers(client, batch).await;
        bar.suspend(|| {
            let mut answers = answers.iter();
            answers.try_for_each(|(line, answer)| tally.take(client, *line, answer))
        })?;
        bar.set_position(number);
    }
    bar.finish_and_clear();
    if !client.screen.json {
        say(&tally.in_words())?;
    }
    if tally.away {
        client.screen.note(
            "The rest was not sent. To submit it all again is safe where lines have an id or a key.",
        );
    }
    Ok(tally.code)
}

/// Submits what can be, and answers for each line in order.
async fn answers(
    client: &Client,
    batch: Vec<(u64, Result<NewTask>)>,
) -> Vec<(u64, Result<Submitted>)> {
    let (lines, tasks): (Vec<u64>, Vec<Result<NewTask>>) = batch.into_iter().unzip();
    let refused: Vec<Option<Error>> = tasks.iter().map(|task| task.clone().err()).collect();
    let good = tasks.into_iter().flatten();
    let mut sent = client.tasks.submit_all(good).await.into_iter();
    let answer = |refused: Option<Error>| match refused {
        Some(error) => Err(error),
        None => (sent.next()).unwrap_or_else(|| Err(Error::Corrupt("a line has no answer".into()))),
    };
    lines
        .into_iter()
        .zip(refused.into_iter().map(answer))
        .collect()
}

/// The next line, however long it may be within reason.
fn next_line(input: &mut dyn BufRead, file: &str) -> Outcome<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    match read {
        Ok(0) => Ok(None),
        Ok(_) if line.len() as u64 == LINE_BYTES_MAX => Err(CliError::Usage(format!(
            "a line of {file} is longer than {LINE_BYTES_MAX} bytes"
        ))),
        Ok(_) => Ok(Some(line)),
        Err(error) => Err(unreadable(file, error)),
    }
}

fn unreadable(file: &str, error: std::io::Error) -> CliError {
    let what = if file == "-" { "standard input" } else { file };
    let what = what.into();
    CliError::Input { what, error }
}

impl Tally {
    fn take(&mut self, client: &Client, line: u64, answer: &Result<Submitted>) -> Outcome<()> {
        match answer {
            Ok(submitted) if submitted.outcome == SubmitOutcome::Created => self.created += 1,
            Ok(_) => self.existing += 1,
            Err(error) => {
                self.refused += 1;
                self.away |= error.is_transient();
                if self.code == OK {
                    self.code = of_error(error);
                }
            }
        }
        let submission = answer.as_ref().ok();
        if client.screen.json && !self.deaf {
            let heard = client.screen.object(&WireLineTask {
                line,
                id: submission.map(|submission| submission.id.to_string()),
                outcome: submission.map(|submission| submitted(submission.outcome)),
                error: answer.as_ref().err().map(WireError::from),
            })?;
            self.deaf = !heard;
        } else if let Err(error) = answer {
            let error = clean(&error.to_string());
            client
                .screen
                .note(&format!("line {}: {error}", grouped(line)));
        }
        Ok(())
    }

    fn in_words(&self) -> String {
        let mut text = format!("Submitted {}", count(self.created, "task"));
        if self.existing > 0 {
            text += &format!(", {} there already", grouped(self.existing));
        }
        if self.refused > 0 {
            text += &format!(", {} refused", grouped(self.refused));
        }
        text + ".\n"
    }
}
