//! Job logs: what a task said while it ran.

use std::collections::BTreeMap;
use std::ops::Deref;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{Fence, LineId};
use crate::names::Name;
use crate::time::Timestamp;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// For who looks for a fault.
    Debug,
    /// What happened.
    Info,
    /// What should not have happened.
    Warn,
    /// What must not happen.
    Error,
}

impl Level {
    /// All of them, what matters least first.
    pub const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warn, Self::Error];

    /// The word for it: `debug`, `info`, `warn` or `error`.
    ///
    /// ```
    /// use plimsoll_core::log::Level;
    /// assert_eq!(Level::ALL.map(Level::as_str), ["debug", "info", "warn", "error"]);
    /// assert_eq!(Level::of("warn"), Some(Level::Warn));
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// The level that a word stands for.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

/// A line to append to the log of a task. Appending the same id again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLine {
    /// Made by whoever appends it.
    pub id: LineId,
    /// How much it matters.
    pub level: Level,
    /// The stage the task was in.
    pub stage: Option<Name>,
    /// The text.
    pub message: String,
    /// More about it, in a form of the author's choice.
    pub metadata: Option<Bytes>,
    /// The execution step that this line reports.
    pub step: Option<Box<ExecutionStep>>,
}

impl NewLine {
    /// A line with nothing but level and text.
    pub fn new(id: LineId, level: Level, message: impl Into<String>) -> Self {
        Self {
            id,
            level,
            stage: None,
            message: message.into(),
            metadata: None,
            step: None,
        }
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        self.message.len()
            + self.stage.as_ref().map_or(0, |stage| stage.as_str().len())
            + self.metadata.as_ref().map_or(0, Bytes::len)
            + self.step.as_ref().map_or(0, |step| step.size())
    }
}

/// One command that a task ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionStep {
    /// The author's name for the step.
    pub step_id: Name,
    /// What kind of step: download, ffmpeg, upload.
    pub kind: Name,
    /// The command line.
    pub command: Option<String>,
    /// The exit code.
    pub exit_code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Option<String>,
    /// What it wrote to standard error.
    pub stderr: Option<String>,
    /// When it started, by the clock of whoever ran it.
    pub started_at: Timestamp,
    /// When it ended, by the same clock, and not before it started.
    pub completed_at: Option<Timestamp>,
    /// How long it took, in milliseconds, by a clock that is never set: the two moments may be further apart
    /// or closer.
    pub duration_ms: Option<u64>,
    /// Whether it succeeded, once it has ended.
    pub success: Option<bool>,
    /// What went wrong.
    pub error: Option<String>,
}

impl ExecutionStep {
    fn size(&self) -> usize {
        let names = self.step_id.as_str().len() + self.kind.as_str().len();
        let texts: usize = [&self.command, &self.stdout, &self.stderr, &self.error]
            .into_iter()
            .flatten()
            .map(String::len)
            .sum();
        names + texts
    }
}

/// A line as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What was appended.
    #[serde(flatten)]
    pub line: NewLine,
    /// The fence of the attempt that wrote it.
    pub fence: Fence,
    /// When the store appended it.
    pub at: Timestamp,
}

/// A step of one attempt. It reads as the step itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStep {
    /// The fence of the attempt.
    pub fence: Fence,
    /// The step, as it was reported last.
    #[serde(flatten)]
    pub step: ExecutionStep,
    /// Whether its attempt ended before it did: nobody will say how it went.
    pub cut_off: bool,
}

impl Deref for AttemptStep {
    type Target = ExecutionStep;
    fn deref(&self) -> &ExecutionStep {
        &self.step
    }
}

/// The steps that lines of a log report: in the order in which they first appear, those of each attempt
/// on their own, each as it was reported last.
///
/// ```
/// use plimsoll_core::log::Steps;
/// let steps = Steps::default();
/// assert!(steps.told(|_| true).is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Steps {
    places: BTreeMap<(Fence, Name), usize>,
    steps: Vec<(Fence, ExecutionStep)>,
}

impl Steps {
    /// Takes in the next line of the log.
    pub fn add(&mut self, line: Line) {
        let Some(step) = line.line.step else { return };
        let key = (line.fence, step.step_id.clone());
        match self.places.get(&key) {
            Some(place) => self.steps[*place].1 = *step,
            None => {
                self.places.insert(key, self.steps.len());
                self.steps.push((line.fence, *step));
            }
        }
    }

    /// The steps, if `over` says which attempts were over before the lines were read.
    pub fn told(self, over: impl Fn(Fence) -> bool) -> Vec<AttemptStep> {
        let told = |(fence, step): (Fence, ExecutionStep)| AttemptStep {
            cut_off: step.success.is_none() && over(fence),
            fence,
            step,
        };
        self.steps.into_iter().map(told).collect()
    }
}

/// The text in no more than this many bytes: its beginning and its end, with a note of how much was
/// left out between them.
///
/// ```
/// use plimsoll_core::log::cut_middle;
/// let text = format!("begin{}end", "-".repeat(100));
/// assert_eq!(cut_middle(&text, 40), "begin-\n[90 bytes left out]\n---------end");
/// ```
pub fn cut_middle(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let note = |bytes: usize| format!("\n[{bytes} bytes left out]\n");
    let room = max.saturating_sub(note(text.len()).len());
    let head = text.floor_char_boundary(room / 3);
    // The end says more: that is where a command tells why it failed.
    let tail = text.ceil_char_boundary(text.len() - (room - head.min(room)));
    let mut cut = String::with_capacity(max);
    cut.push_str(&text[..head]);
    cut.push_str(&note(tail - head));
    cut.push_str(&text[tail..]);
    cut.truncate(cut.floor_char_boundary(max));
    cut
}
