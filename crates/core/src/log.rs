//! Job logs: what a task said while it ran.

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
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// How long it took, in milliseconds.
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
