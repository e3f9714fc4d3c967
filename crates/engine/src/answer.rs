//! Reads what a store answered.

use plimsoll_core::error::{Applied, Conflict, Unavailable};
use plimsoll_core::store::{Outcome, Receipt};
use plimsoll_core::{Error, Result};

/// The outcome of the only write of a commit.
pub(crate) fn first(receipt: Receipt) -> Result<Outcome> {
    receipt.outcomes.into_iter().next().ok_or_else(unanswered)
}

/// An answer without what was asked for.
pub(crate) fn unanswered() -> Error {
    Error::Corrupt("the store did not answer what was asked".into())
}

/// A call that ended without an answer.
pub(crate) fn unheard() -> Error {
    Error::Unavailable(Unavailable {
        applied: Applied::Unknown,
        cause: "the call ended while it was under way".into(),
    })
}

/// Which guard of a commit did not hold, if that is what is wrong.
pub(crate) fn refused_by(error: &Error) -> Option<usize> {
    match error {
        Error::Conflict(conflict) => match **conflict {
            Conflict::Guard { index, .. } => Some(index),
            _ => None,
        },
        _ => None,
    }
}
