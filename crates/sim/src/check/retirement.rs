//! Jobs that nobody deletes go only when they are over, and for long enough.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_engine::jobs::FINISHED;

use super::Checker;
use super::states::{JobModel, Said};
use crate::actors::housekeeping::retention;
use crate::profile::Profile;

/// How long jobs are kept where nobody deletes them, and one clock says since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeping {
    /// After all of a job has finished.
    finished: Duration,
    /// When nobody writes to one that has not.
    silent: Duration,
}

impl Keeping {
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let retention = retention(profile);
        let alone = !profile.deleter && profile.jumps.is_empty();
        alone.then_some(Self {
            finished: retention.jobs.unwrap_or(Duration::MAX),
            silent: retention.silent_jobs.unwrap_or(Duration::MAX),
        })
    }

    /// Whether a job that was created then may go now.
    fn is_over(self, job: &JobModel, created_at: i64, now: Timestamp) -> bool {
        let all_since = |age| {
            job.present()
                .all(|state| state.at <= now.saturating_minus(age))
        };
        let is_old = created_at <= now.saturating_minus(self.silent).as_micros();
        match has_finished(job) {
            true => all_since(self.finished),
            false => is_old && all_since(self.silent),
        }
    }
}

fn has_finished(job: &JobModel) -> bool {
    let states: Vec<&Said> = job.present().collect();
    let speaks = |partition| states.iter().any(|state| state.slot.0 == partition);
    (0..job.partitions).all(speaks) && states.iter().all(|state| state.status == FINISHED)
}

impl Checker {
    /// A job is marked as deleted.
    pub(super) fn look_at_end(&mut self, name: &str, created_at: i64, now: Timestamp) {
        let Some(keeping) = self.jobs_kept else {
            return;
        };
        match has_finished(self.job(name)) {
            true => self.figures.jobs_finished += 1,
            false => self.figures.jobs_silent += 1,
        }
        if !keeping.is_over(self.job(name), created_at, now) {
            self.blame("retirement", format!("{name} is deleted before it is over"));
        }
    }
}
