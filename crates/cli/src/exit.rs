//! How a command ends: one code for each thing that a script may want to tell apart.

use std::io::Write;
use std::process::ExitCode;

use plimsoll::error::{Conflict, NotFound};
use plimsoll::task::Status;
use plimsoll::{Error, Invalid, TaskId};
use serde::Serialize;
use thiserror::Error;

/// Everything went well.
pub(crate) const OK: u8 = 0;
/// Something went wrong that no other code stands for.
pub(crate) const FAILURE: u8 = 1;
/// What was asked makes no sense: an argument is wrong or missing.
pub(crate) const USAGE: u8 = 2;
/// There is no such thing.
pub(crate) const NOT_FOUND: u8 = 3;
/// The state of things does not allow it.
pub(crate) const REFUSED: u8 = 4;
/// The store is not there, or does not answer.
pub(crate) const UNAVAILABLE: u8 = 5;
/// It took longer than it may.
pub(crate) const TIMEOUT: u8 = 6;
/// The task that was waited for has failed.
pub(crate) const TASK_FAILED: u8 = 10;
/// The task that was waited for was cancelled.
pub(crate) const TASK_CANCELLED: u8 = 11;
/// A worker had to cut something off when it ended.
pub(crate) const CUT_OFF: u8 = 12;
/// The lock was not acquired, so that its command did not run.
pub(crate) const LOCK_NOT_ACQUIRED: u8 = 20;
/// The lock was lost while its command ran, which was ended.
pub(crate) const LOCK_LOST: u8 = 21;
/// A partition that others wait for has failed.
pub(crate) const PARTITION_FAILED: u8 = 30;
/// The job was deleted meanwhile.
pub(crate) const JOB_DELETED: u8 = 31;
/// The record is not as expected, so that nothing was written to it.
pub(crate) const NOT_SWAPPED: u8 = 40;

/// The table of them all, for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
    0  done
    1  failure, or `doctor` has found a problem
    2  wrong or missing arguments
    3  not found
    4  refused: the state of things does not allow it
    5  the store is not there or does not answer
    6  timeout
   10  the task that was waited for has failed
   11  the task that was waited for was cancelled
   12  `work` had to cut something off when it ended
   20  `lock run` did not get the lock: the command did not run
   21  `lock run` lost the lock: the command was ended
   30  `job barrier`: a partition has failed
   31  the job was deleted
   40  `record cas` wrote nothing: an expectation does not hold
  130  interrupted";

/// How a command ended, or why it could not.
pub(crate) type Outcome<T = u8> = Result<T, CliError>;

/// Why a command could not do what was asked.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NoStore(String),
    #[error("{0}")]
    NoSuch(String),
    #[error(transparent)]
    Plimsoll(#[from] Error),
    /// Nobody knows whether the task is there: its id makes it safe to submit it again.
    #[error("task {id}: {error}")]
    Submit { id: TaskId, error: Error },
    #[error("{0}")]
    Timeout(String),
    #[error("{0}")]
    LockNotAcquired(Error),
    #[error("lock {name} was lost: {what}")]
    LockLost { name: String, what: &'static str },
    #[error("nothing was written: {0}")]
    NotSwapped(String),
    #[error("{what} cannot be read: {error}")]
    Input { what: String, error: std::io::Error },
    #[error("cannot {what}: {error}")]
    System {
        what: &'static str,
        error: std::io::Error,
    },
    #[error("the answer cannot be shown: {0}")]
    Output(#[from] std::io::Error),
    #[error("the answer cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<Invalid> for CliError {
    fn from(invalid: Invalid) -> Self {
        Self::Plimsoll(invalid.into())
    }
}

/// What programs read on standard error.
#[derive(Serialize)]
struct Told<'a> {
    code: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
    exit_code: u8,
}

impl CliError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::NoStore(_) => UNAVAILABLE,
            Self::NoSuch(_) => NOT_FOUND,
            Self::Plimsoll(error) | Self::Submit { error, .. } => of_error(error),
            Self::Timeout(_) => TIMEOUT,
            Self::LockNotAcquired(_) => LOCK_NOT_ACQUIRED,
            Self::LockLost { .. } => LOCK_LOST,
            Self::NotSwapped(_) => NOT_SWAPPED,
            Self::Input { .. } | Self::System { .. } | Self::Output(_) | Self::Json(_) => FAILURE,
        }
    }

    /// The name of the cause, for programs.
    fn code(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::NoStore(_) => "no_store",
            Self::NoSuch(_) => "not_found",
            Self::Plimsoll(error) | Self::Submit { error, .. } | Self::LockNotAcquired(error) => {
                error.code()
            }
            Self::Timeout(_) => "timeout",
            Self::LockLost { .. } => "lock_lost",
            Self::NotSwapped(_) => "guard",
            Self::Input { .. } => "input",
            Self::System { .. } => "system",
            Self::Output(_) | Self::Json(_) => "output",
        }
    }

    /// Says what went wrong and what to do, on standard error.
    pub(crate) fn tell(&self, json: bool) -> ExitCode {
        let advice = match self {
            Self::Plimsoll(error) => advice(error),
            Self::Submit { .. } => {
                Some("It may be there: submit it again with --id and this id, which does no harm.")
            }
            _ => None,
        };
        let message = crate::text::clean(&self.to_string());
        let told = Told {
            code: self.code(),
            advice,
            exit_code: self.exit_code(),
            message,
        };
        let text = match (json, serde_json::to_string(&told)) {
            (true, Ok(line)) => format!("{{\"error\":{line}}}\n"),
            _ => {
                let advice = advice.map(|advice| format!("          {advice}\n"));
                let advice = advice.unwrap_or_default();
                format!("plimsoll: {}\n{advice}", told.message)
            }
        };
        // If nobody listens, the exit code still says it.
        std::io::stderr().write_all(text.as_bytes()).ok();
        ExitCode::from(told.exit_code)
    }
}

/// The code for an error of the store or the engine.
pub(crate) fn of_error(error: &Error) -> u8 {
    match error {
        Error::Invalid(_) => USAGE,
        Error::NotFound(_) => NOT_FOUND,
        Error::Conflict(conflict) => match **conflict {
            Conflict::PartitionFailed { .. } => PARTITION_FAILED,
            Conflict::JobDeleted { .. } => JOB_DELETED,
            _ => REFUSED,
        },
        Error::LeaseLost(_) => REFUSED,
        Error::Unavailable(_) | Error::Closed => UNAVAILABLE,
        Error::Unsupported(_) | Error::Corrupt(_) => FAILURE,
    }
}

/// The code for what became of a task that was waited for.
pub(crate) fn of_status(status: Status) -> u8 {
    match status {
        Status::Failed => TASK_FAILED,
        Status::Cancelled => TASK_CANCELLED,
        Status::Scheduled | Status::Pending | Status::Claimed | Status::Completed => OK,
    }
}

/// What to do about it, where the error does not say so itself.
fn advice(error: &Error) -> Option<&'static str> {
    match error {
        Error::NotFound(NotFound::Task(_) | NotFound::TaskByKey(_)) => Some(
            "It was deleted, has been kept long enough, or is in another store or namespace: see --store and --namespace.",
        ),
        Error::NotFound(NotFound::Job(_)) => Some(
            "Whoever sets its first state creates it; or it is in another store or namespace: see --store and --namespace.",
        ),
        Error::NotFound(NotFound::Index(_)) => {
            Some("To declare it: plimsoll record index declare PREFIX FIELD.")
        }
        Error::Conflict(conflict) => match **conflict {
            Conflict::JobDeleted { .. } => {
                Some("`plimsoll job set` with --partitions begins it anew.")
            }
            Conflict::MaxAttemptsReached { .. } => Some("--force grants one more attempt."),
            Conflict::NotFinished { .. } => Some("Cancel it first: plimsoll task cancel ID."),
            Conflict::KeyTaken { .. } => {
                Some("--on-conflict attach answers with that task instead.")
            }
            _ => None,
        },
        Error::Corrupt(_) => Some("`plimsoll doctor` tells more."),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::error::{Applied, LeaseLost, Lost, Problem, Unavailable};
    use plimsoll::{Fence, TaskId};

    use super::*;

    #[test]
    fn every_kind_of_error_has_its_code() {
        let task = TaskId::from_u128(7);
        let lost = LeaseLost {
            task,
            fence: Fence::ZERO,
            why: Lost::Gone,
        };
        let unavailable = Unavailable {
            applied: Applied::No,
            cause: "gone".into(),
        };
        for (error, kind, code) in [
            (
                Error::from(Invalid::new("queue", Problem::Empty)),
                "invalid",
                2,
            ),
            (NotFound::Task(task).into(), "not_found", 3),
            (Conflict::Cancelling { task }.into(), "conflict", 4),
            (lost.into(), "lease_lost", 4),
            (unavailable.into(), "unavailable", 5),
            (Error::Closed, "closed", 5),
            (Error::Unsupported("x".into()), "unsupported", 1),
            (Error::Corrupt("x".into()), "corrupt", 1),
        ] {
            assert_eq!((error.kind(), of_error(&error)), (kind, code));
            assert_eq!(CliError::from(error).exit_code(), code);
        }
    }

    #[test]
    fn who_does_not_know_whether_a_task_is_there_hears_its_id() {
        let error = Error::from(Unavailable {
            applied: Applied::Unknown,
            cause: "gone".into(),
        });
        let id = TaskId::from_u128(7);
        let lost = CliError::Submit { id, error };
        assert!(lost.to_string().contains(&id.to_string()), "{lost}");
        assert_eq!((lost.code(), lost.exit_code()), ("unavailable", 5));
    }

    #[test]
    fn every_status_has_its_code() {
        let codes = Status::ALL.map(of_status);
        assert_eq!(codes, [0, 0, 0, 0, 10, 11]);
    }

    #[test]
    fn the_help_names_every_code() {
        for code in [
            OK,
            FAILURE,
            USAGE,
            NOT_FOUND,
            REFUSED,
            UNAVAILABLE,
            TIMEOUT,
            TASK_FAILED,
            TASK_CANCELLED,
            CUT_OFF,
            LOCK_NOT_ACQUIRED,
            LOCK_LOST,
            PARTITION_FAILED,
            JOB_DELETED,
            NOT_SWAPPED,
        ] {
            assert!(HELP.contains(&format!("\n{code:>5}  ")), "{code}");
        }
    }
}
