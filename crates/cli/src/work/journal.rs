//! What a command says while it runs, on its way to the store: in order, in batches, bounded.
//!
//! Whoever speaks faster than the store writes has to wait, so that little is ever in memory. What
//! goes beyond the log's share of an attempt is counted and left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use plimsoll::log::{Level, NewLine, cut_middle};
use plimsoll::record::Fields;
use plimsoll::task::Progress;
use plimsoll::worker::Context;
use plimsoll::{Error, Result};
use tokio::sync::mpsc;

use super::control::Word;

/// How many notes wait for the store, and travel together.
const BATCH: usize = 64;

enum Note {
    Line(Level, String),
    Word(Word),
}

/// Takes notes of what a command says.
#[derive(Clone)]
pub(super) struct Scribe {
    notes: mpsc::Sender<Note>,
    budget: Arc<Budget>,
}

/// How much of an attempt goes to the log, and what was left out.
struct Budget {
    max: usize,
    left: AtomicUsize,
    lines_left_out: AtomicU64,
}

impl Scribe {
    /// A line for the log.
    pub(super) async fn line(&self, level: Level, text: String) {
        let take = |left: usize| left.checked_sub(text.len() + 1);
        let left = &self.budget.left;
        if left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_err()
        {
            // What comes later is left out too, however short: a log with holes misleads.
            left.store(0, Ordering::Relaxed);
            self.budget.lines_left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.note(Note::Line(level, text)).await;
    }

    /// What a command said of its task.
    pub(super) async fn word(&self, word: Word) {
        match word {
            Word::Log(level, text) => self.line(level, text).await,
            word => self.note(Note::Word(word)).await,
        }
    }

    async fn note(&self, note: Note) {
        // The journal listens for as long as there is a scribe.
        self.notes.send(note).await.ok();
    }
}

/// Writes down what scribes say.
pub(super) struct Journal {
    context: Context,
    notes: mpsc::Receiver<Note>,
    budget: Arc<Budget>,
    progress: Option<Progress>,
    checkpoint: Option<String>,
    attributes: Fields,
    /// Whether the task is not this worker's any more, so that nothing more can be written.
    lost: bool,
}

impl Journal {
    pub(super) fn new(context: Context, bytes_max: usize) -> (Scribe, Self) {
        let (notes, heard) = mpsc::channel(BATCH);
        let budget = Arc::new(Budget {
            max: bytes_max,
            left: AtomicUsize::new(bytes_max),
            lines_left_out: AtomicU64::new(0),
        });
        let journal = Self {
            context,
            notes: heard,
            budget: budget.clone(),
            progress: None,
            checkpoint: None,
            attributes: Fields::new(),
            lost: false,
        };
        (Scribe { notes, budget }, journal)
    }

    /// Writes until the last scribe is gone. What has come while the store wrote goes together.
    pub(super) async fn run(mut self) -> Self {
        let mut batch = Vec::with_capacity(BATCH);
        while self.notes.recv_many(&mut batch, BATCH).await > 0 {
            for note in batch.drain(..) {
                match note {
                    Note::Line(level, text) => self.add(level, text).await,
                    Note::Word(word) => self.hear(word).await,
                }
            }
            self.flush().await;
        }
        let left_out = self.budget.lines_left_out.load(Ordering::Relaxed);
        if left_out > 0 {
            let max = self.budget.max;
            let text = format!("{left_out} more lines: the log keeps {max} bytes of an attempt");
            self.add(Level::Warn, text).await;
        }
        self
    }

    /// Writes a last line, with all that is left.
    pub(super) async fn close(mut self, last: NewLine) {
        self.append(last).await;
        self.flush().await;
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    async fn add(&mut self, level: Level, text: String) {
        let id = self.context.job_log().line_id();
        self.append(NewLine::new(id, level, text)).await;
    }

    async fn append(&mut self, mut line: NewLine) {
        if self.lost {
            return;
        }
        let max = self.context.engine().store().limits().text_bytes_max;
        if line.message.len() > max {
            line.message = cut_middle(&line.message, max);
        }
        if let Err(error) = self.context.job_log().append(line).await {
            // Any other refusal is of this line, and cannot be logged.
            self.lost = ends(&error);
        }
    }

    /// The last progress, checkpoint and value of an attribute counts; every stage does.
    async fn hear(&mut self, word: Word) {
        match word {
            Word::Progress(progress) => self.progress = Some(progress),
            Word::Checkpoint(text) => self.checkpoint = Some(text),
            Word::Set(name, value) => drop(self.attributes.insert(name, value.into())),
            Word::Stage(stage) => {
                self.flush().await;
                let moved = self.context.stage(stage).await;
                self.heard("stage", moved).await;
            }
            // These are heard elsewhere.
            Word::Log(..) | Word::RetryAfter(_) | Word::Submit(..) => {}
        }
    }

    async fn flush(&mut self) {
        if self.lost {
            return;
        }
        if let Some(progress) = self.progress.take() {
            let done = self.context.progress(progress).await;
            self.heard("progress", done).await;
        }
        if let Some(checkpoint) = self.checkpoint.take() {
            let done = self.context.checkpoint(checkpoint).await;
            self.heard("checkpoint", done).await;
        }
        if !self.attributes.is_empty() {
            let set = std::mem::take(&mut self.attributes);
            match self.context.set_attributes(set.clone()).await {
                // One that is wrong does not keep the others from being set.
                Err(Error::Invalid(_)) => {
                    for (name, value) in set {
                        let verb = format!("set {name}");
                        let one = [(name, value)].into();
                        let done = self.context.set_attributes(one).await;
                        self.heard(&verb, done).await;
                    }
                }
                done => self.heard("set", done).await,
            }
        }
    }

    /// A refusal goes to the log, and is no failure of the task.
    async fn heard(&mut self, verb: &str, done: Result<()>) {
        match done {
            Ok(()) => {}
            Err(error) if ends(&error) => self.lost = true,
            Err(error) => {
                let text = format!("`{verb}` was refused: {error}");
                self.add(Level::Warn, text).await;
            }
        }
    }
}

/// Whether nothing more of this attempt can be written.
fn ends(error: &Error) -> bool {
    matches!(
        error,
        Error::LeaseLost(_) | Error::Unavailable(_) | Error::Closed
    )
}
