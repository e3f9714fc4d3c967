//! Listens to what a command says on standard error and in the line protocol.

use std::time::Duration;

use plimsoll::limits::NAME_BYTES_MAX;
use plimsoll::log::Level;
use plimsoll::task::NewTask;
use plimsoll::worker::{Context, Failure};
use tokio::sync::watch;

use super::control::{self, Payload, Word};
use super::journal::Scribe;
use super::lines::Lines;
use super::pipes::{Fifo, Tap};
use super::verdict::FollowUps;

/// The longest line of standard error that is kept whole.
const LINE_MAX: usize = 4 * 1024;
/// How much of the end of standard error is kept apart from the log.
const TAIL_MAX: usize = 4 * 1024;
/// How much longer than a payload a control line may be: its verb and two names.
const NAMES_MAX: usize = 2 * NAME_BYTES_MAX + 16;

/// What a command said on standard error, in short.
pub(super) struct Said {
    pub(super) last_words: Option<String>,
    /// The end of all of it.
    pub(super) tail: Vec<u8>,
}

/// Takes standard error to the log, line by line.
pub(super) async fn errors(mut tap: Tap, scribe: Scribe) -> Said {
    let (mut lines, mut found) = (Lines::new(LINE_MAX), Vec::new());
    let mut said = Said {
        last_words: None,
        tail: Vec::new(),
    };
    loop {
        let bytes = tap.next().await;
        let ended = bytes.is_empty();
        lines.take(bytes, |line| found.push(line));
        said.tail.extend_from_slice(bytes);
        let beyond = said.tail.len().saturating_sub(TAIL_MAX);
        said.tail.drain(..beyond);
        if ended {
            found.extend(lines.last());
        }
        for line in found.drain(..) {
            let (level, text) = control::levelled(&line.text);
            if !text.trim().is_empty() {
                said.last_words = Some(text.to_owned());
            }
            let text = match line.cut {
                0 => text.to_owned(),
                cut => format!("{text} … and {cut} more bytes"),
            };
            scribe.line(level, text).await;
        }
        if ended {
            return said;
        }
    }
}

/// What a command asked for that is done at its end.
pub(super) struct Asked {
    pub(super) retry_after: Option<Duration>,
    pub(super) follow_ups: FollowUps,
}

/// Does what a command says in the line protocol.
pub(super) async fn control(
    fifo: Fifo,
    until: watch::Receiver<bool>,
    context: &Context,
    scribe: Scribe,
) -> Asked {
    let Fifo {
        writer: _open,
        reader,
    } = fifo;
    let limits = context.engine().store().limits();
    let line_max = limits.payload_bytes_max + NAMES_MAX;
    let mut asked = Asked {
        retry_after: None,
        // One write of the commit is the completion.
        follow_ups: FollowUps::up_to(
            limits.commit_writes_max.saturating_sub(1),
            limits.payload_bytes_max,
        ),
    };
    let mut tap = Tap::new(reader, until);
    let (mut lines, mut found) = (Lines::new(line_max), Vec::new());
    loop {
        let bytes = tap.next().await;
        let ended = bytes.is_empty();
        lines.take(bytes, |line| found.push(line));
        if ended {
            found.extend(lines.last());
        }
        for line in found.drain(..) {
            let word = match line.cut {
                0 => control::parse(&line.text),
                _ => Err(format!("longer than {line_max} bytes")),
            };
            match word {
                Ok(Word::RetryAfter(delay)) => asked.retry_after = Some(delay),
                Ok(Word::Submit(lane, payload)) => {
                    let (payload, file) = match payload {
                        Payload::Text(text) => (text, None),
                        Payload::File(path) => (String::new(), Some(path)),
                    };
                    let mut task = NewTask::new(context.engine().ids().task(), lane, payload);
                    task.trace = context.task().spec.trace.clone();
                    asked.follow_ups.add(task, file);
                }
                Ok(word) => scribe.word(word).await,
                Err(why) => {
                    let shown = &line.text[..line.text.floor_char_boundary(80)];
                    let text = format!("control line not understood: `{shown}`: {why}");
                    if control::is_submit(&line.text) {
                        // The task must not be completed without its next step.
                        asked.follow_ups.refuse(Failure::fatal(text.clone()));
                    }
                    scribe.line(Level::Warn, text).await;
                }
            }
        }
        if ended {
            return asked;
        }
    }
}
