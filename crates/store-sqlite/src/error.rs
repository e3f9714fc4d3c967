//! What SQLite says, in terms of what the caller should do.

use plimsoll_core::Error;
use plimsoll_core::error::{Applied, Unavailable};
use rusqlite::ErrorCode;

/// Why a transaction could not go on. Nothing of it was applied.
#[derive(Debug)]
pub(crate) enum Fault {
    Sqlite(rusqlite::Error),
    /// A stored value that cannot be read.
    Corrupt(String),
    /// The file is not for this program.
    Unsupported(String),
}

pub(crate) type Answer<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Fault {
    pub(crate) fn into_error(self, applied: Applied) -> Error {
        match self {
            Self::Corrupt(what) => Error::Corrupt(what.into()),
            Self::Unsupported(what) => Error::Unsupported(what.into()),
            Self::Sqlite(error) => from_sqlite(&error, applied),
        }
    }
}

pub(crate) fn from_sqlite(error: &rusqlite::Error, applied: Applied) -> Error {
    if let rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..) =
        error
    {
        return Error::Corrupt(format!("a column holds what it must not: {error}").into());
    }
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full: free some space",
        Some(ErrorCode::ReadOnly) => "the file or its folder is read-only: make it writable",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program holds the file: end its transaction"
        }
        Some(ErrorCode::CannotOpen) => "the file cannot be opened: check path and permissions",
        // A page that should be there is not.
        Some(ErrorCode::SystemIoFailure) if is_short_read(error) => {
            return Error::Corrupt(
                format!("the file is damaged: it is too short ({error})").into(),
            );
        }
        Some(ErrorCode::SystemIoFailure) => {
            "the disk reports an error: check it, and that it is not full"
        }
        Some(ErrorCode::NotADatabase) => {
            return Error::Corrupt(format!("this is not a database of ours: {error}").into());
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            return Error::Corrupt(format!("the file is damaged: {error}").into());
        }
        _ => "SQLite refused",
    };
    Error::Unavailable(Unavailable {
        applied,
        cause: format!("{advice} ({error})"),
    })
}

fn is_short_read(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}
