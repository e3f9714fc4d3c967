//! When a worker that cannot run commands gives up: it would claim tasks and give them back for ever.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// So many troubles without a command that ran in between are too many, if they go on for so long:
/// commands beside each other have the same trouble at the same time.
const COUNT_MAX: u32 = 5;
const LASTING_MAX: Duration = Duration::from_secs(5);

/// What a worker could not do, again and again.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    row: Mutex<Option<Row>>,
    too_many: watch::Sender<Option<String>>,
}

/// Troubles without a command that ran in between.
#[derive(Clone, Copy, Debug)]
struct Row {
    count: u32,
    since: Duration,
}

impl Row {
    fn and_now(row: Option<Self>, now: Duration) -> Self {
        let (count, since) = row.map_or((0, now), |row| (row.count, row.since));
        Self {
            count: count.saturating_add(1),
            since,
        }
    }

    fn is_too_long(self, now: Duration) -> bool {
        self.count >= COUNT_MAX && now.saturating_sub(self.since) >= LASTING_MAX
    }
}

impl Troubles {
    /// A command could not be run.
    pub(super) fn met(&self, now: Duration, why: &str) {
        let mut row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        let longer = Row::and_now(*row, now);
        *row = Some(longer);
        if longer.is_too_long(now) {
            self.too_many
                .send_if_modified(|last| last.replace(why.to_owned()).is_none());
        }
    }

    /// A command ran.
    pub(super) fn overcome(&self) {
        *self.row.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits until there are too many.
    pub(super) async fn too_many(&self) {
        let mut heard = self.too_many.subscribe();
        // This is the one who tells.
        heard.wait_for(Option::is_some).await.ok();
    }

    /// The last one, if there were too many.
    pub(super) fn last(&self) -> Option<String> {
        self.too_many.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(troubles: &[u64]) -> bool {
        let all = Troubles::default();
        for second in troubles {
            all.met(Duration::from_secs(*second), "no processes");
        }
        all.last().is_some()
    }

    #[test]
    fn many_troubles_that_go_on_are_too_many() {
        assert!(!after(&[1, 1, 1, 1, 1, 1, 1]));
        assert!(!after(&[1, 3, 5, 9]));
        assert!(!after(&[1, 2, 3, 4, 5]));
        assert!(after(&[1, 2, 3, 4, 6]));
    }

    #[test]
    fn a_command_that_runs_ends_a_row() {
        let troubles = Troubles::default();
        for second in 1..100 {
            troubles.met(Duration::from_secs(second), "no processes");
            if second % 4 == 0 {
                troubles.overcome();
            }
        }
        assert_eq!(troubles.last(), None);
    }
}
