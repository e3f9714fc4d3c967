//! Deleting jobs.
//!
//! First the job is marked: from then on, nothing can be written to it. Then its states go, in commits of
//! bounded size, each of which leaves their highest version with the mark. At last the mark itself is made
//! to expire. Whoever comes after a crash goes on from there.

use std::time::Duration;

use plimsoll_core::error::Problem;
use plimsoll_core::record::Record;
use plimsoll_core::store::{Commit, Merge, Outcome, Scan, Write};
use plimsoll_core::{CommitId, Invalid, Name, Result, Revision, Timestamp};

use super::Jobs;
use super::describe;
use super::info::{self, FLOOR, Job, Life, Phase};
use super::stored::{Keys, VERSION};
use crate::answer::refused_by;
use crate::contest::Contest;
use crate::fields::Reader;

/// How long it is remembered that a job was deleted, and how far its versions went: a job of this name that
/// is created within this time goes on from there.
const REMEMBERED: Duration = Duration::from_secs(30 * 86_400);

/// What a step of a removal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// There may be more to remove.
    Some,
    /// Nothing is left.
    All,
}

impl Jobs {
    /// Deletes a job and all its states. From the first moment on, whoever still writes to it is refused:
    /// `job_deleted`. Answers whether there was a job to be deleted; after an [unknown](plimsoll_core::Error::Unavailable) outcome that may
    /// be no, because the first call has deleted it.
    ///
    /// The job may be created again. Versions go on growing then, unless that is more than 30 days later.
    ///
    /// A job whose record cannot be read (`Corrupt`) is deleted like any other.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, jobs::NewState};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
    /// let before = jobs.join("import", 0, 1).await?;
    /// before.set_started(NewState::of("ingest")?).await?;
    /// assert!(jobs.delete("import").await?);
    ///
    /// let again = jobs.join("import", 0, 1).await?;
    /// assert_eq!(again.set_started(NewState::of("ingest")?).await?.version, 2);
    /// let late = before.set_finished(NewState::of("ingest")?).await;
    /// assert_eq!(late.unwrap_err().code(), "job_deleted");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn delete(&self, job: impl AsRef<str>) -> Result<bool> {
        let keys = Keys::of(Name::for_field("job", job)?)?;
        let marked = self.mark(&keys, None).await?;
        self.remove_states(&keys).await?;
        Ok(marked)
    }

    /// Marks a job as deleted, so that nothing can be written to it any more, and leaves its states to the
    /// [sweeper](crate::Sweeper). Answers whether there was a job to be deleted, as [`delete`](Self::delete) does.
    pub async fn mark_deleted(&self, job: impl AsRef<str>) -> Result<bool> {
        let keys = Keys::of(Name::for_field("job", job)?)?;
        self.mark(&keys, None).await
    }

    /// Marks a job as deleted, if it is there, and in this life.
    pub(crate) async fn mark(&self, keys: &Keys, only: Option<&Life>) -> Result<bool> {
        let mut contest = Contest::default();
        loop {
            let Some(record) = self.record(keys).await? else {
                return Ok(false);
            };
            let marked = match Job::read(&record) {
                Ok(job) => {
                    let meant = only.is_none_or(|only| *only == Life::of(&job.info));
                    if job.phase == Phase::Deleted || !meant {
                        return Ok(false);
                    }
                    self.move_to(keys, &job, Phase::Deleted).await?
                }
                // Which life it is in cannot be told. Who goes by the name means what is there.
                Err(_) if only.is_none() => {
                    let delete = |now, id| info::unreadable_deleted(keys, &record, now, id);
                    self.if_as_seen(delete).await?
                }
                Err(error) => return Err(error),
            };
            if marked.is_some() {
                return Ok(true);
            }
            contest.again(&self.engine).await?;
        }
    }

    /// Brings a job into another phase. Answers its revision then; `None`: it is not as it was read.
    pub(crate) async fn move_to(
        &self,
        keys: &Keys,
        job: &Job,
        to: Phase,
    ) -> Result<Option<Revision>> {
        let limits = self.engine.store().limits();
        // A former program may have said more of it than leaves room for a deletion.
        let bare = to == Phase::Deleted && describe::fits(&describe::all(job)?, limits).is_err();
        let change = |now, id| match bare {
            true => job.bare_deleted(keys, now, id),
            false => job.moved(keys, to, now, id),
        };
        self.if_as_seen(change).await
    }

    /// Changes the record of a job, by a commit that is refused unless it is as it was read.
    async fn if_as_seen(
        &self,
        change: impl FnOnce(Timestamp, CommitId) -> Result<Commit, Invalid>,
    ) -> Result<Option<Revision>> {
        let now = self.patiently(|| self.engine.store().ping()).await?;
        let id = self.engine.ids().commit();
        match self.commit(change(now, id)?).await {
            Ok(receipt) => crate::locks::written(&receipt).map(Some),
            Err(error) if refused_by(&error).is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the states of a job that was deleted. If it was not, or is there again, nothing happens.
    pub(crate) async fn remove_states(&self, keys: &Keys) -> Result<()> {
        let mut count = 0;
        while self.remove_some(keys, &mut count).await? == Removed::Some {
            // Whoever shares this thread, or the store, gets its turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Removes a page of them, and counts those that this call has removed.
    pub(crate) async fn remove_some(&self, keys: &Keys, count: &mut u64) -> Result<Removed> {
        let store = self.engine.store();
        let Some(job) = self.read(keys).await? else {
            return Ok(Removed::All);
        };
        if job.phase != Phase::Deleted || job.expires {
            return Ok(Removed::All);
        }
        let guards = Life::of(&job.info).guards(keys, Phase::Deleted)?;
        // One write of each commit is for the job.
        let chunk = store.limits().commit_writes_max.saturating_sub(1);
        if chunk == 0 {
            let problem = Problem::Contradiction("a commit must have room for two writes".into());
            return Err(Invalid::new("commit_writes_max", problem).into());
        }
        let page = Scan::new(keys.states.clone(), store.limits().page_max);
        let states = self.scan(page).await?.rows;
        let mut commits: Vec<Commit> = Vec::new();
        for states in states.chunks(chunk) {
            commits.push(removal(keys, states)?);
        }
        if commits.is_empty() {
            let expire = Write::Touch(keys.job.clone(), Some(REMEMBERED));
            commits.push(Commit::of(expire));
        }
        for mut commit in commits {
            commit.guards.extend(guards.clone());
            match self.commit(commit.id(self.engine.ids().commit())).await {
                Ok(receipt) => {
                    let removed =
                        |outcome: &&Outcome| **outcome == Outcome::Removed { existed: true };
                    *count += receipt.outcomes.iter().filter(removed).count() as u64;
                }
                // Somebody else was faster, and the job may be there again.
                Err(error) if refused_by(&error).is_some() => return Ok(Removed::All),
                Err(error) => return Err(error),
            }
        }
        Ok(match states.is_empty() {
            true => Removed::All,
            false => Removed::Some,
        })
    }
}

/// Removes these states, and keeps how far their versions went.
fn removal(keys: &Keys, states: &[Record]) -> Result<Commit, Invalid> {
    // What cannot be read has no version that anybody could have seen.
    let versions = (states.iter()).filter_map(|state| Reader(state).number::<i64>(VERSION).ok());
    let floor = versions.max().unwrap_or(0);
    let raise = Merge::new(keys.job.clone()).raise(Name::new(FLOOR)?, floor);
    let mut commit = Commit::of(Write::Merge(raise));
    let keys = states.iter().map(|state| state.key.clone());
    commit.writes.extend(keys.map(Write::Delete));
    Ok(commit)
}
