//! What people and programs see of a worker: one line on a terminal that changes, a line now and
//! then elsewhere, or an event for everything that happens, as JSON on standard output.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::worker::{Answer, Context, Summary};
use serde_json::{Value, json};

use crate::client::Options;
use crate::output::say;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Report {
    json: bool,
    quiet: bool,
    bar: Option<ProgressBar>,
    interrupted: AtomicU64,
    /// When a line was written last, and what it counted.
    last: Mutex<(Duration, Summary)>,
}

impl Report {
    pub(super) fn new(options: &Options) -> Self {
        let (json, quiet) = (options.json, options.quiet);
        let bar = (!json && !quiet && io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        });
        Self {
            json,
            quiet,
            bar,
            interrupted: AtomicU64::new(0),
            last: Mutex::default(),
        }
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
        match &self.bar {
            _ if self.json => self.event(|| json!({ "event": "note", "text": text })),
            Some(bar) => bar.suspend(|| eprintln!("plimsoll work: {text}")),
            None => eprintln!("plimsoll work: {text}"),
        }
    }

    /// Shows how far it is. The rate is that since the last line.
    pub(super) fn update(&self, now: Duration, done: Summary) {
        if self.json || self.quiet {
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_sub(last.0);
        match &self.bar {
            Some(bar) => {
                bar.set_message(line(since, &last.1, &done));
                bar.tick();
                if since >= Duration::from_secs(2) {
                    *last = (now, done);
                }
            }
            None if since >= LINE_EVERY => {
                if done != last.1 {
                    eprintln!("plimsoll work: {}", line(since, &last.1, &done));
                }
                *last = (now, done);
            }
            None => {}
        }
    }

    pub(super) fn summary(&self, done: &Summary) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let interrupted = self.was_interrupted() + done.interrupted;
        if self.json {
            let done = Summary {
                interrupted,
                ..*done
            };
            self.event(|| json!({ "event": "summary", "done": done }));
            return;
        }
        if self.quiet {
            return;
        }
        eprintln!(
            "plimsoll work: {} completed, {} failed, {} to run again, {} cancelled, {} given back",
            done.completed, done.failed, done.retried, done.cancelled, done.released
        );
        if interrupted > 0 || done.unsettled > 0 {
            eprintln!(
                "plimsoll work: {interrupted} cut off, {} not settled",
                done.unsettled
            );
        }
    }

    fn event(&self, event: impl FnOnce() -> Value) {
        if self.json {
            // Who does not listen any more need not be told.
            say(&format!("{}\n", event())).ok();
        }
    }
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
