//! What a task is: waiting, held, or over.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Due later: delayed, snoozed, or waiting for a retry.
    Scheduled,
    /// Runnable: the next claim may take it.
    Pending,
    /// A worker holds it under a lease.
    Claimed,
    /// It succeeded.
    Completed,
    /// It failed for good.
    Failed,
    /// It was called off.
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Scheduled,
        Self::Pending,
        Self::Claimed,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether the task has ended.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Scheduled | Self::Pending | Self::Claimed => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Pending => "pending",
            Self::Claimed => "claimed",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
