//! What the holder of a task can say about it while it runs.

use bytes::Bytes;
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::record::Fields;
use plimsoll_core::store::{Amend, Commit, Log, Write};
use plimsoll_core::task::Progress;
use plimsoll_core::{Name, Result};

use crate::tasks::{Hold, JobLog};

/// Saying something about the task while it runs.
impl Hold {
    /// Says how far the task is. A new attempt begins without progress.
    pub async fn progress(&self, progress: Progress) -> Result<()> {
        let amend = self.amendment();
        let progress = Some(progress);
        self.amend(Amend { progress, ..amend }).await
    }

    /// Keeps what the next attempt should go on from, if this one does not finish.
    pub async fn checkpoint(&self, checkpoint: impl Into<Bytes>) -> Result<()> {
        let amend = self.amendment();
        let checkpoint = Some(checkpoint.into());
        self.amend(Amend {
            checkpoint,
            ..amend
        })
        .await
    }

    /// Moves the task to a stage. If the task has a lifecycle, a move that it does not allow is
    /// refused with `move_not_allowed`; the stage that the task is in already is no move.
    pub async fn stage(&self, stage: Name) -> Result<()> {
        let amend = self.amendment();
        let entered = Some(stage);
        let stage = entered.clone();
        self.amend(Amend { stage, ..amend }).await?;
        self.enter(entered);
        Ok(())
    }

    /// Sets attributes of the task; the others stay. They stay over attempts.
    /// See [`attribute`](super::attribute) for names that are known.
    pub async fn set_attributes(&self, set: Fields) -> Result<()> {
        let amend = self.amendment();
        self.amend(Amend { set, ..amend }).await
    }

    /// Removes attributes of the task.
    pub async fn unset_attributes(&self, unset: Vec<Name>) -> Result<()> {
        let amend = self.amendment();
        self.amend(Amend { unset, ..amend }).await
    }

    /// Appends a line to the log of the task. See [`job_log`](Self::job_log) for many of them.
    pub async fn log(&self, level: Level, message: impl Into<String>) -> Result<()> {
        let line = NewLine::new(self.tasks.engine.ids().line(), level, message);
        self.log_lines(vec![line]).await
    }

    /// Appends lines to the log of the task. A line whose id is there already is left out.
    pub async fn log_lines(&self, lines: Vec<NewLine>) -> Result<()> {
        let holder = self.holder.clone();
        let write = Write::Log(Log { holder, lines });
        self.commit(Commit::of(write)).await.map(drop)
    }

    /// The log of the task, for many lines: they are gathered and stored together. Each has the stage that
    /// the task was in when it was logged, as this hold left it.
    pub fn job_log(&self) -> JobLog {
        JobLog::new(self.clone())
    }

    fn amendment(&self) -> Amend {
        Amend::new(self.holder.clone())
    }

    /// With an id: what others said in between must not be overwritten by a repeat.
    async fn amend(&self, amend: Amend) -> Result<()> {
        let commit = Commit::of(Write::Amend(Box::new(amend)));
        let commit = commit.id(self.tasks.engine.ids().commit());
        self.commit(commit).await.map(drop)
    }
}
