//! Errors with a status of their own.

use std::error::Error;
use std::fmt;

use plimsoll_core::error::{Invalid, Problem};

use super::state::ERROR;

/// An error that says which status [`set_error`](super::Manager::set_error) writes for it. It may be
/// anywhere in the chain of sources of the error that is given there. It shows as what it wraps.
///
/// ```
/// use plimsoll_engine::jobs::Coded;
/// let error = Coded { status: -40, source: "connection timeout".into() };
/// assert_eq!(error.to_string(), "connection timeout");
/// ```
#[derive(Debug)]
pub struct Coded {
    /// The status, which must be negative.
    pub status: i32,
    /// What went wrong.
    pub source: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for Coded {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// The status for an error: the one that it, or what it comes from, carries.
pub(crate) fn status_of(error: &(dyn Error + 'static)) -> Result<i32, Invalid> {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    let mut coded = chain.filter_map(|error| error.downcast_ref::<Coded>());
    match coded.next().map_or(ERROR, |coded| coded.status) {
        status if status < 0 => Ok(status),
        status => {
            let problem = Problem::OutOfRange {
                value: status.to_string(),
                min: i32::MIN.to_string(),
                max: ERROR.to_string(),
            };
            Err(Invalid::new("status", problem))
        }
    }
}
