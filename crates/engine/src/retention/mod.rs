//! How long things are kept once they are over.

mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::store::Compact;
use plimsoll_core::task::Status;

pub use stored::StoredRetention;

const DAY: Duration = Duration::from_secs(86_400);

/// How long things are kept once they are over. What is `None`, or a status that is not named, is
/// kept for ever.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_core::task::Status;
/// use plimsoll_engine::Retention;
/// let mut retention = Retention::default();
/// // Somebody will want to look at these.
/// retention.tasks.remove(&Status::Failed);
/// // These are of no interest to anybody.
/// retention.archive.remove(&Status::Cancelled);
/// retention.history = Some(Duration::from_secs(3_600));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Finished tasks, with their keys and logs.
    pub tasks: BTreeMap<Status, Duration>,
    /// Which of these go to the [archive](crate::archive) then; the others are removed.
    pub archive: BTreeSet<Status>,
    /// Whether the archive is somewhere else: sweepers without a [`Sink`](crate::archive::Sink) leave
    /// what goes there to those that have one.
    pub elsewhere: bool,
    /// How long the archive keeps them; `None`: for ever.
    pub archived: Option<Duration>,
    /// Jobs whose partitions have all finished, unless they were created with a time of their own.
    pub jobs: Option<Duration>,
    /// Jobs that have not finished, and that nobody has set a state of for this long: those that failed, or were left
    /// alone. Longer than any step of theirs takes, and a second at least. To join or to describe a job sets no state.
    pub silent_jobs: Option<Duration>,
    /// Groups that have drained.
    pub groups: Option<Duration>,
    /// History: readers who come back later than this take a fresh snapshot.
    pub history: Option<Duration>,
    /// Lines of logs, also of tasks that are still active.
    pub logs: Option<Duration>,
}

impl Default for Retention {
    /// Finished tasks for 30 days, and in the archive for a year; groups for 30 days, history for a
    /// week, logs as long as their tasks, jobs for ever.
    fn default() -> Self {
        let finished = Status::ALL.into_iter().filter(|to| to.is_terminal());
        Self {
            tasks: (finished.clone().map(|status| (status, 30 * DAY))).collect(),
            archive: finished.collect(),
            elsewhere: false,
            archived: Some(365 * DAY),
            jobs: None,
            silent_jobs: None,
            groups: Some(30 * DAY),
            history: Some(7 * DAY),
            logs: None,
        }
    }
}

impl Retention {
    /// The same, but nothing goes to the archive: what was kept long enough is removed.
    pub fn without_archive(mut self) -> Self {
        self.archive.clear();
        self
    }

    /// Keeps everything for ever, but for what calls are remembered by.
    pub fn forever() -> Self {
        Self {
            tasks: BTreeMap::new(),
            archive: BTreeSet::new(),
            elsewhere: false,
            archived: None,
            jobs: None,
            silent_jobs: None,
            groups: None,
            history: None,
            logs: None,
        }
    }

    /// Which finished tasks go to the archive, and when.
    pub(crate) fn to_archive(&self) -> impl Iterator<Item = (Status, Duration)> {
        let tasks = self.tasks.iter().map(|(status, age)| (*status, *age));
        tasks.filter(|(status, _)| self.archive.contains(status))
    }

    /// One step of bounded size, which removes what does not go to the archive.
    pub(crate) fn step(&self, limit: usize) -> Compact {
        let mut tasks = self.tasks.clone();
        tasks.retain(|status, _| !self.archive.contains(status));
        Compact {
            tasks,
            groups: self.groups,
            history: self.history,
            logs: self.logs,
            limit,
        }
    }
}
