//! What people and programs see of a worker: one line on a terminal that changes, a line now and
//! then elsewhere, or an event for everything that happens, as JSON on standard output.
//!
//! A thread of its own writes it. Who does not read (a terminal on hold, a full pipe) stops that
//! thread and nothing else: the worker goes on, and says later how much it could not say.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::clock::Clock;
use plimsoll::worker::{Answer, Context, Summary};
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::client::Options;
use crate::output::say;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How much waits for a reader.
const WAITING_MAX: usize = 256;
/// How long a worker that has ended waits for a reader.
const FAREWELL: Duration = Duration::from_secs(2);

/// Something to write.
enum Said {
    Event(Value),
    /// For people, to be read.
    Note(String),
    /// For people, until the next one.
    Line(String),
    /// All before it is written.
    Told(oneshot::Sender<()>),
}

pub(super) struct Report {
    json: bool,
    quiet: bool,
    on_terminal: bool,
    said: mpsc::Sender<Said>,
    dropped: AtomicU64,
    interrupted: AtomicU64,
    /// When a line was written last, and what it counted.
    last: Mutex<(Duration, Summary)>,
}

impl Report {
    pub(super) fn new(options: &Options) -> io::Result<Self> {
        let (json, quiet) = (options.json, options.quiet);
        let on_terminal = !json && !quiet && io::stderr().is_terminal();
        let (said, waiting) = mpsc::channel(WAITING_MAX);
        start(Writer::new(on_terminal), waiting)?;
        Ok(Self {
            json,
            quiet,
            on_terminal,
            said,
            dropped: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
            last: Mutex::default(),
        })
    }

    pub(super) fn started(&self, context: &Context) {
        self.event(|| {
            let lane = &context.task().spec.lane;
            json!({
                "event": "started",
                "task": context.task().id().to_string(),
                "queue": lane.queue.as_str(),
                "kind": lane.kind.as_str(),
                "attempt": context.attempt(),
                "fence": context.fence().get(),
            })
        });
    }

    pub(super) fn ended(
        &self,
        context: &Context,
        answer: &Answer,
        exit_code: Option<i32>,
        took: Duration,
    ) {
        self.event(|| {
            let (answer, error) = match answer {
                Answer::Complete(_) => ("complete", None),
                Answer::Fail(failure) => ("fail", Some(&failure.message)),
                Answer::Snooze(_) => ("snooze", None),
                Answer::Release => ("release", None),
                Answer::Cancel(_) => ("cancel", None),
            };
            json!({
                "event": "ended",
                "task": context.task().id().to_string(),
                "fence": context.fence().get(),
                "answer": answer,
                "exit_code": exit_code,
                "error": error,
                "seconds": took.as_secs_f64(),
            })
        });
    }

    /// The worker could not even start a command.
    pub(super) fn trouble(&self, context: &Context, error: &io::Error) {
        let task = context.task().id();
        self.note(&format!("cannot run the command for task {task}: {error}"));
    }

    /// A command did not finish because the worker had to.
    pub(super) fn interrupted(&self) {
        self.interrupted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn was_interrupted(&self) -> u64 {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Something to know at once.
    pub(super) fn note(&self, text: &str) {
        self.say(self.noted(text));
    }

    fn noted(&self, text: &str) -> Said {
        match self.json {
            true => Said::Event(json!({ "event": "note", "text": text })),
            false => Said::Note(text.into()),
        }
    }

    /// Shows how far it is. The rate is that since the last line.
    pub(super) fn update(&self, now: Duration, done: Summary) {
        if self.json || self.quiet {
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_sub(last.0);
        let text = line(since, &last.1, &done);
        if self.on_terminal {
            self.say(Said::Line(text));
            if since >= Duration::from_secs(2) {
                *last = (now, done);
            }
        } else if since >= LINE_EVERY {
            if done != last.1 {
                self.say(Said::Line(text));
            }
            *last = (now, done);
        }
    }

    /// The last words. Waits a little for somebody to read them.
    pub(super) async fn summary(&self, done: &Summary, clock: &dyn Clock) {
        let interrupted = self.was_interrupted() + done.interrupted;
        let farewell = async {
            if let Some(dropped) = self.take_dropped() {
                self.said.send(dropped).await.ok();
            }
            for last in self.last_words(done, interrupted) {
                self.said.send(last).await.ok();
            }
            let (told, heard) = oneshot::channel();
            self.said.send(Said::Told(told)).await.ok();
            heard.await.ok();
        };
        tokio::select! {
            () = farewell => {}
            () = clock.sleep(FAREWELL) => {}
        }
    }

    fn last_words(&self, done: &Summary, interrupted: u64) -> Vec<Said> {
        if self.json {
            let done = Summary {
                interrupted,
                ..*done
            };
            return vec![Said::Event(json!({ "event": "summary", "done": done }))];
        }
        if self.quiet {
            return Vec::new();
        }
        let mut words = vec![Said::Note(format!(
            "{} completed, {} failed, {} to run again, {} cancelled, {} given back",
            done.completed, done.failed, done.retried, done.cancelled, done.released
        ))];
        if interrupted > 0 || done.unsettled > 0 {
            let unsettled = done.unsettled;
            let cut = format!("{interrupted} cut off, {unsettled} not settled");
            words.push(Said::Note(cut));
        }
        words
    }

    fn event(&self, event: impl FnOnce() -> Value) {
        if self.json {
            self.say(Said::Event(event()));
        }
    }

    /// Never waits.
    fn say(&self, said: Said) {
        if self.dropped.load(Ordering::Relaxed) > 0
            && let Ok(place) = self.said.try_reserve()
            && let Some(dropped) = self.take_dropped()
        {
            place.send(dropped);
        }
        match self.said.try_send(said) {
            // There will be another one.
            Ok(()) | Err(TrySendError::Full(Said::Line(_)) | TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// That something could not be said.
    fn take_dropped(&self) -> Option<Said> {
        match self.dropped.swap(0, Ordering::Relaxed) {
            0 => None,
            count if self.json => Some(Said::Event(json!({ "event": "dropped", "count": count }))),
            count => Some(Said::Note(format!("{count} notes could not be shown"))),
        }
    }
}

/// Writes what is said.
struct Writer(Option<ProgressBar>);

impl Writer {
    fn new(on_terminal: bool) -> Self {
        Self(on_terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        }))
    }

    /// Who does not listen any more need not be told.
    fn write(&self, said: Said) {
        let line = |text: &str| drop(writeln!(io::stderr(), "plimsoll work: {text}"));
        match (said, &self.0) {
            (Said::Event(event), _) => drop(say(&format!("{event}\n"))),
            (Said::Line(text), Some(bar)) => {
                bar.set_message(text);
                bar.tick();
            }
            (Said::Note(text), Some(bar)) => bar.suspend(|| line(&text)),
            (Said::Line(text) | Said::Note(text), None) => line(&text),
            (Said::Told(told), bar) => {
                if let Some(bar) = bar {
                    bar.finish_and_clear();
                }
                told.send(()).ok();
            }
        }
    }
}

/// The one thread beside the worker: no task, because it may stand still for ever, and a runtime
/// waits for its tasks when it ends.
#[allow(clippy::disallowed_methods)]
fn start(writer: Writer, mut waiting: mpsc::Receiver<Said>) -> io::Result<()> {
    let write = move || {
        while let Some(said) = waiting.blocking_recv() {
            writer.write(said);
        }
    };
    let thread = std::thread::Builder::new().name("report".into());
    thread.spawn(write).map(drop)
}

fn line(since: Duration, before: &Summary, done: &Summary) -> String {
    let ended = |summary: &Summary| summary.completed + summary.failed + summary.retried;
    let seconds = since.as_secs_f64().max(0.001);
    let rate = ended(done).saturating_sub(ended(before)) as f64 / seconds;
    format!(
        "{} running, {} completed, {} failed, {} to run again, {rate:.1}/s",
        done.running, done.completed, done.failed, done.retried
    )
}
