//! Processes that must soon be gone: those of a worker that is gone itself, and those of a worker
//! that woke up and has lost their tasks.

use std::time::Duration;

use plimsoll::store::Tasks;
use plimsoll::task::Status;
use plimsoll::{Result, Store};

use super::processes::{Process, marked};
use super::stage::GONE_WITHIN;

/// Processes that must soon be gone.
pub(super) struct Suspects {
    mark: String,
    list: Vec<Suspect>,
    /// How many there have been.
    pub(super) seen: u64,
}

struct Suspect {
    process: Process,
    by: Duration,
    /// Its worker has to end it, and can only while it is not frozen again.
    needs_its_worker: bool,
}

impl Suspects {
    pub(super) fn new(mark: &str) -> Self {
        Self {
            mark: mark.into(),
            list: Vec::new(),
            seen: 0,
        }
    }

    /// What a worker that is about to be killed has started, or what one has left that has ended:
    /// its guards have to see to it.
    pub(super) fn left_by(&mut self, worker: &str, now: Duration) {
        let mut left = marked(&self.mark);
        left.retain(|process| process.is_of(worker));
        self.add(left, now, false);
    }

    /// What a worker that wakes up has started for tasks that it has lost.
    pub(super) async fn lost_by(
        &mut self,
        worker: &str,
        store: &dyn Store,
        now: Duration,
    ) -> Result<()> {
        let mut lost = Vec::new();
        for process in marked(&self.mark) {
            if process.is_of(worker) && is_lost(&process, store).await? {
                lost.push(process);
            }
        }
        self.add(lost, now, true);
        Ok(())
    }

    fn add(&mut self, processes: Vec<Process>, now: Duration, needs_its_worker: bool) {
        for process in processes {
            if self
                .list
                .iter()
                .any(|known| known.process.is_same(&process))
            {
                continue;
            }
            self.seen += 1;
            self.list.push(Suspect {
                process,
                by: now + GONE_WITHIN,
                needs_its_worker,
            });
        }
    }

    /// A worker is frozen: it can end nothing until it wakes up.
    pub(super) fn excuse(&mut self, worker: &str) {
        self.list
            .retain(|suspect| !(suspect.needs_its_worker && suspect.process.is_of(worker)));
    }

    /// Those who should be gone and are not.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<Process> {
        let there = marked(&self.mark);
        let is_there = |process: &Process| there.iter().any(|other| other.is_same(process));
        self.list.retain(|suspect| is_there(&suspect.process));
        let (overdue, list) = std::mem::take(&mut self.list)
            .into_iter()
            .partition::<Vec<_>, _>(|suspect| suspect.by <= now);
        self.list = list;
        overdue.into_iter().map(|suspect| suspect.process).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Whether the task of a process has been given to others, or has ended.
async fn is_lost(process: &Process, store: &dyn Store) -> Result<bool> {
    let Some(errand) = &process.errand else {
        return Ok(false);
    };
    let ids = vec![errand.task];
    let found = store.tasks(Tasks { ids }).await?;
    let holds = |task: &plimsoll::task::Task| {
        task.status == Status::Claimed && task.fence.get() == errand.fence
    };
    Ok(!found.iter().flatten().any(holds))
}
