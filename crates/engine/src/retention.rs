//! How long things are kept once they are over.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::store::Compact;
use plimsoll_core::task::Status;

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
/// retention.history = Some(Duration::from_secs(3_600));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Finished tasks, with their keys and logs.
    pub tasks: BTreeMap<Status, Duration>,
    /// Groups that have drained.
    pub groups: Option<Duration>,
    /// History: readers who come back later than this take a fresh snapshot.
    pub history: Option<Duration>,
    /// Lines of logs, also of tasks that are still active.
    pub logs: Option<Duration>,
}

impl Default for Retention {
    /// Finished tasks and groups for 30 days, history for a week, logs as long as their tasks.
    fn default() -> Self {
        let finished = Status::ALL
            .into_iter()
            .filter(|status| status.is_terminal());
        Self {
            tasks: finished.map(|status| (status, 30 * DAY)).collect(),
            groups: Some(30 * DAY),
            history: Some(7 * DAY),
            logs: None,
        }
    }
}

impl Retention {
    /// Keeps everything for ever, but for what calls are remembered by.
    pub fn forever() -> Self {
        Self {
            tasks: BTreeMap::new(),
            groups: None,
            history: None,
            logs: None,
        }
    }

    /// One step of bounded size.
    pub(crate) fn step(&self, limit: usize) -> Compact {
        Compact {
            tasks: self.tasks.clone(),
            groups: self.groups,
            history: self.history,
            logs: self.logs,
            limit,
        }
    }
}
