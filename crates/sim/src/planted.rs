//! Bugs on purpose: each must be caught, or the checkers are not worth much.

use std::sync::Arc;

use clap::ValueEnum;
use futures::FutureExt;
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::store::{Claim, Commit, Ending, Settle, Tasks, Write};
use plimsoll_core::task::Task;
use plimsoll_core::{Ids, Store, TaskId};

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Planted {
    /// A settle is taken from whoever sends it, whatever its fence.
    FencelessSettle,
    /// A repeated claim is taken for a new one.
    ForgottenRequest,
    /// A worker that is told to drain ends at once, and gives nothing back.
    DroppingDrain,
    /// A lease that ran out costs nothing: the task is released, and nothing is counted.
    FreeExpiry,
}

impl Planted {
    /// What the store sees instead of these commits.
    pub(crate) fn commits(self, commits: Vec<Commit>, store: &Arc<MemoryStore>) -> Vec<Commit> {
        let one = |mut commit: Commit| {
            for write in &mut commit.writes {
                self.spoil(write, store);
            }
            commit
        };
        commits.into_iter().map(one).collect()
    }

    fn spoil(self, write: &mut Write, store: &Arc<MemoryStore>) {
        match (self, &mut *write) {
            (Self::FencelessSettle, Write::Settle(settle)) => {
                let task = row(settle.holder.task, store);
                if let Some(holder) = task.and_then(|task| task.holder()) {
                    settle.holder = holder;
                }
            }
            (Self::FreeExpiry, Write::Expire(expire)) => {
                let task = row(expire.task, store).filter(|task| task.fence == expire.fence);
                if let Some(holder) = task.and_then(|task| task.holder()) {
                    let how = Ending::Release { reason: None };
                    *write = Write::Settle(Settle { holder, how });
                }
            }
            _ => {}
        }
    }

    /// What the store sees instead of this claim.
    pub(crate) fn claim(self, mut claim: Claim, ids: &Ids) -> Claim {
        if self == Self::ForgottenRequest {
            claim.request = ids.request();
        }
        claim
    }
}

fn row(id: TaskId, store: &Arc<MemoryStore>) -> Option<Task> {
    let rows = store.tasks(Tasks { ids: vec![id] }).now_or_never()?;
    rows.ok()?.into_iter().next().flatten()
}
