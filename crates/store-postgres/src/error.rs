//! What goes wrong, and what to do about it.

use plimsoll_core::Error;
use plimsoll_core::error::{Applied, Unavailable};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// What a step of a call came to.
pub(crate) type Answer<T> = Result<T, Fault>;

/// Why a step of a call failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server refused, or the connection broke.
    Server(tokio_postgres::Error),
    /// Rows were not as they were thought to be, or somebody else was faster. Nothing happened:
    /// trying again is safe and promising.
    Moved,
    /// A row that is needed is locked by somebody else.
    Busy,
    /// The server has no room for all the locks that are needed.
    Crowded,
    /// No connection could be had, or it said nothing for too long.
    Unreachable(String),
    /// A stored value cannot be read.
    Corrupt(String),
    /// What the caller asked is refused.
    Refused(Error),
}

/// SQLSTATE of `plimsoll.expect`.
const MOVED: &str = "PLM01";

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(code) = error.code() else {
            return Self::Server(error);
        };
        let moved = [
            &SqlState::UNIQUE_VIOLATION,
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
        ];
        if code.code() == MOVED || moved.contains(&code) {
            Self::Moved
        } else if *code == SqlState::LOCK_NOT_AVAILABLE {
            Self::Busy
        } else if *code == SqlState::OUT_OF_MEMORY {
            Self::Crowded
        } else {
            Self::Server(error)
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Fault {
    /// Whether the connection is of no more use.
    pub(crate) fn breaks_connection(&self) -> bool {
        match self {
            Self::Server(error) => error.as_db_error().is_none_or(ends_session),
            _ => false,
        }
    }

    /// Whether the schema or a prepared statement changed under this connection.
    pub(crate) fn is_stale(&self) -> bool {
        let Self::Server(error) = self else {
            return false;
        };
        let feature = error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED);
        feature || error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME)
    }

    /// Whether trying again, with another connection, is of no use.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Moved | Self::Busy | Self::Crowded | Self::Corrupt(_) => false,
            Self::Server(_) => !self.breaks_connection() && !self.is_stale(),
            Self::Unreachable(_) | Self::Refused(_) => true,
        }
    }

    /// For the caller. `applied`: whether the call may have taken effect.
    pub(crate) fn into_error(self, applied: Applied) -> Error {
        let unavailable = |applied, cause| Error::Unavailable(Unavailable { applied, cause });
        match self {
            Self::Server(error) => match error.as_db_error() {
                Some(db) => explain(db, applied),
                None => unavailable(
                    applied,
                    format!("the connection to PostgreSQL broke: try again ({error})"),
                ),
            },
            Self::Moved => unavailable(
                Applied::No,
                "others wrote the same rows again and again: try again".into(),
            ),
            Self::Busy => unavailable(
                Applied::No,
                "a row is locked by another transaction: look for one that is left open, \
                 in pg_stat_activity"
                    .into(),
            ),
            Self::Crowded => unavailable(
                Applied::No,
                "the server has no room for so many locks: raise max_locks_per_transaction, or \
                 name fewer new records in one commit"
                    .into(),
            ),
            Self::Unreachable(cause) => unavailable(applied, cause),
            Self::Corrupt(what) => Error::Corrupt(what.into()),
            Self::Refused(error) => error,
        }
    }
}

/// Whether the server ends the session with this error.
fn ends_session(error: &DbError) -> bool {
    match error.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        // A pooler says it in English alone, a server in its own language as well.
        None => matches!(error.severity(), "FATAL" | "PANIC"),
    }
}

/// What an error of the server means to the caller.
fn explain(error: &DbError, applied: Applied) -> Error {
    let code = error.code();
    let advice = if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        "the server is read-only: connect to the primary"
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        "the server takes no more connections: raise max_connections, or open with fewer"
    } else if *code == SqlState::INVALID_PASSWORD {
        "the server refuses the user or password: check the URL of the store"
    } else if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        "the server refuses the user, or connections like this one: check the URL of the store, \
         whether its sslmode should be require or disable, and pg_hba.conf of the server"
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        "there is no such database: check the URL of the store, or create it"
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        "the server is starting or stopping: try again"
    } else if *code == SqlState::ADMIN_SHUTDOWN || *code == SqlState::CRASH_SHUTDOWN {
        "the server ended the connection: try again"
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        "the role lacks a right: run `plimsoll migrate` with --runtime-role for it"
    } else if *code == SqlState::UNDEFINED_TABLE
        || *code == SqlState::UNDEFINED_FUNCTION
        || *code == SqlState::INVALID_SCHEMA_NAME
    {
        "the schema is not there or too old: run `plimsoll migrate`"
    } else if *code == SqlState::IN_FAILED_SQL_TRANSACTION {
        "a statement before has failed, so nothing was written: pass its error on"
    } else if *code == SqlState::DISK_FULL {
        "the disk of the server is full: make room"
    } else if *code == SqlState::QUERY_CANCELED {
        "a statement was cancelled or took longer than call_timeout allows: try again"
    } else {
        "PostgreSQL refused"
    };
    Error::Unavailable(Unavailable {
        applied,
        cause: format!("{advice} ({} {})", code.code(), error.message()),
    })
}
