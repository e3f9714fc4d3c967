//! Who looks at a job is told that it is gone, or that there never was one, only where that is so.

use plimsoll_core::error::{Conflict, NotFound};
use plimsoll_core::{Error, Position};

use super::Checker;
use super::states::JobModel;

/// What a reader of a job relies on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// Whatever it is told now was so after this, or is.
    pub(super) since: Position,
    /// The job was there then.
    there: bool,
    /// Somebody had created it by then.
    ever: bool,
}

impl Sight {
    /// Of one who has found the job, and knows of everything up to here.
    pub(crate) fn found(since: Position) -> Self {
        Self {
            since,
            there: true,
            ever: true,
        }
    }

    /// Of the same reader, who was not refused.
    pub(crate) fn goes_on(self) -> Self {
        Self::found(self.since)
    }
}

impl Checker {
    /// Somebody is about to look at a job.
    pub(crate) fn looks(&self, name: &str) -> Sight {
        let job = self.states.jobs.get(name);
        Sight {
            since: self.newest(),
            there: job.is_some_and(JobModel::is_alive),
            ever: job.is_some_and(JobModel::was_created),
        }
    }

    /// It was refused.
    pub(crate) fn refused(&mut self, name: &str, sight: Sight, error: &Error) {
        if let Some(wrong) = wrongly_refused(self.states.jobs.get(name), sight, error) {
            self.blame("sight", format!("{name}: {wrong}"));
        }
    }
}

/// What is wrong with what a reader was refused by.
pub(super) fn wrongly_refused(
    job: Option<&JobModel>,
    sight: Sight,
    error: &Error,
) -> Option<String> {
    let right = match error {
        Error::Conflict(conflict) if matches!(**conflict, Conflict::JobDeleted { .. }) => {
            let ended = job.is_some_and(|job| job.ended_after(sight.since));
            ended || (sight.ever && !sight.there)
        }
        // The mark of a deleted job stays for longer than any run lasts.
        Error::NotFound(NotFound::Job(_)) => !sight.ever,
        Error::Unavailable(_) => true,
        _ => false,
    };
    (!right).then(|| format!("{error}, which is not so since {}", sight.since))
}
