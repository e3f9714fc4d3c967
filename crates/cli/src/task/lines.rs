//! Tasks from lines of JSON.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use plimsoll::clock::Clock;
use plimsoll::error::Problem;
use plimsoll::store::{SubmitOutcome, Submitted};
use plimsoll::task::NewTask;
use plimsoll::{Error, IdempotencyKey, Invalid, Name, Result, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};

use super::submit::{Settings, new_task};
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome, of_error};
use crate::json::compact;
use crate::output::{Teller, say};
use crate::text::{clean, count};
use crate::wire::{WireError, conflict, lifetime, submitted};
use crate::{input, table::grouped};

/// How many tasks are submitted at a time.
const BATCH: usize = 500;
/// How long a line may be: payloads are smaller than this, however they are written.
const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long a line waits for others to be submitted with.
const LINGER: Duration = Duration::from_millis(100);

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
    teller: Teller,
}

/// Submits a task for each line of this file, `-` being standard input.
pub(super) async fn submit(client: &Client, file: &str, defaults: &Defaults) -> Outcome {
    let mut source = Source::open(file).await?;
    let bar = client.screen.bar("{spinner} {human_pos} lines, {per_sec}");
    let (mut tally, mut number) = (Tally::default(), 0);
    let mut ended = None;
    while ended.is_none() && !tally.away {
        let (lines, end) = source.batch(client.engine.clock().as_ref()).await;
        let mut batch = Vec::new();
        for line in lines {
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
            for (line, answer) in &answers {
                tally.take(client, *line, answer);
            }
        });
        bar.set_position(number);
        ended = end;
    }
    bar.finish_and_clear();
    if !client.screen.json {
        let words = tally.in_words();
        tally.teller.tell(|| Ok(say(&words)?));
    }
    if tally.away {
        client.screen.note(
            "The rest was not sent. To submit it all again is safe where lines have an id or a key.",
        );
    }
    // What could not be read comes after what could be.
    ended.unwrap_or(Ok(()))?;
    tally.teller.end(tally.code)
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

/// Where lines come from.
struct Source {
    input: Box<dyn AsyncBufRead + Unpin>,
    file: String,
    /// The beginning of a line whose end was not read yet.
    begun: Vec<u8>,
}

impl Source {
    async fn open(file: &str) -> Outcome<Self> {
        let input: Box<dyn AsyncBufRead + Unpin> = match file {
            "-" => Box::new(BufReader::new(tokio::io::stdin())),
            path => match tokio::fs::File::open(path).await {
                Ok(file) => Box::new(BufReader::new(file)),
                Err(error) => return Err(unreadable(file, error)),
            },
        };
        Ok(Self {
            input,
            file: file.into(),
            begun: Vec::new(),
        })
    }

    /// What has come, as soon as it is many lines or the first has waited for a moment, and whether
    /// that was the end, and how it came.
    async fn batch(&mut self, clock: &dyn Clock) -> (Vec<Vec<u8>>, Option<Outcome<()>>) {
        let mut lines = match self.next().await {
            Ok(Some(line)) => vec![line],
            Ok(None) => return (Vec::new(), Some(Ok(()))),
            Err(error) => return (Vec::new(), Some(Err(error))),
        };
        let mut linger = pin!(clock.sleep(LINGER));
        while lines.len() < BATCH {
            let next = tokio::select! {
                biased;
                next = self.next() => next,
                () = &mut linger => break,
            };
            match next {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => return (lines, Some(Ok(()))),
                Err(error) => return (lines, Some(Err(error))),
            }
        }
        (lines, None)
    }

    /// The next line, however long it may be within reason. Whoever stops waiting for it loses
    /// nothing: what has come stays for the next call.
    async fn next(&mut self) -> Outcome<Option<Vec<u8>>> {
        loop {
            let read = self.input.fill_buf().await;
            let read = read.map_err(|error| unreadable(&self.file, error))?;
            if read.is_empty() {
                let last = std::mem::take(&mut self.begun);
                return Ok(Some(last).filter(|line| !line.is_empty()));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(read.len(), |end| end + 1);
            self.begun.extend_from_slice(&read[..taken]);
            self.input.consume(taken);
            if self.begun.len() > LINE_BYTES_MAX {
                let file = &self.file;
                return Err(CliError::Usage(format!(
                    "a line of {file} is longer than {LINE_BYTES_MAX} bytes"
                )));
            }
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.begun)));
            }
        }
    }
}

fn unreadable(file: &str, error: std::io::Error) -> CliError {
    let what = if file == "-" { "standard input" } else { file };
    let what = what.into();
    CliError::Input { what, error }
}

impl Tally {
    fn take(&mut self, client: &Client, line: u64, answer: &Result<Submitted>) {
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
        if client.screen.json {
            let object = WireLineTask {
                line,
                id: submission.map(|submission| submission.id.to_string()),
                outcome: submission.map(|submission| submitted(submission.outcome)),
                error: answer.as_ref().err().map(WireError::from),
            };
            self.teller.tell(|| client.screen.object(&object));
        } else if let Err(error) = answer {
            let error = clean(&error.to_string());
            client
                .screen
                .note(&format!("line {}: {error}", grouped(line)));
        }
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

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use plimsoll::clock::ManualClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn source(input: impl AsyncBufRead + Unpin + 'static) -> Source {
        Source {
            input: Box::new(input),
            file: "-".into(),
            begun: Vec::new(),
        }
    }

    /// Answers with an error.
    struct Broken;

    impl tokio::io::AsyncRead for Broken {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(Error::from(ErrorKind::ConnectionReset)))
        }
    }

    #[tokio::test]
    async fn what_was_read_before_an_error_is_handed_out_with_it() {
        let mut source = source(BufReader::new((&b"one\ntwo\nthr"[..]).chain(Broken)));
        let (lines, end) = source.batch(&ManualClock::new()).await;
        assert_eq!(lines, [b"one\n", b"two\n"]);
        assert!(matches!(end, Some(Err(CliError::Input { .. }))), "{end:?}");
    }

    #[tokio::test]
    async fn a_batch_is_full_or_has_waited_and_loses_no_part_of_a_line() {
        let clock = ManualClock::new();
        let (mut pipe, reader) = duplex(64 * 1024);
        let mut source = source(BufReader::new(reader));
        let many = "x\n".repeat(BATCH + 1) + "begun";
        pipe.write_all(many.as_bytes()).await.expect("it is read");
        let (lines, end) = source.batch(&clock).await;
        assert_eq!((lines.len(), end.is_none()), (BATCH, true));
        let (waited, ()) = tokio::join!(source.batch(&clock), async {
            while clock.next_sleep().is_none() {
                tokio::task::yield_now().await;
            }
            clock.advance(LINGER);
        });
        assert_eq!((waited.0.len(), waited.1.is_none()), (1, true));
        pipe.write_all(b" and ended").await.expect("it is read");
        drop(pipe);
        let (last, end) = source.batch(&clock).await;
        assert_eq!(last, [b"begun and ended"]);
        assert!(matches!(end, Some(Ok(()))), "{end:?}");
    }
}
