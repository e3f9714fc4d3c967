//! Writes states: decides what to commit, commits it, and decides anew what others got in the way of.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{MutexGuard, PoisonError};

use plimsoll_core::error::{Applied, Conflict, Unavailable};
use plimsoll_core::store::{Commit, Outcome, Receipt};
use plimsoll_core::{Error, Result, Revision, Timestamp};

use super::known::Known;
use super::plan::{Planner, Verdict};
use super::queue::Call;
use crate::answer::{first, refused_by, unanswered};
use crate::contest::Contest;
use crate::jobs::info::{JOB_GUARDS, Job, Life, Phase};
use crate::jobs::manager::{Inner, Written};
use crate::jobs::stored::Own;

/// What somebody does whose write was refused because the job may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoOn {
    /// It was deleted, whatever has its name now.
    Not,
    /// A sweeper is about to delete it. It is opened again first.
    Reopen,
    /// It may be written again.
    Now,
}

/// Decides that, from what the job is now.
fn go_on(job: Option<&Job>, mine: &Life) -> GoOn {
    match job {
        Some(job) if Life::of(&job.info) == *mine => match job.phase {
            Phase::Open => GoOn::Now,
            Phase::Closing => GoOn::Reopen,
            Phase::Deleted => GoOn::Not,
        },
        Some(_) | None => GoOn::Not,
    }
}

impl Inner {
    /// Writes states in their order, and answers each.
    pub(crate) async fn write(&self, mut calls: VecDeque<Call>) {
        let mut contest = Contest::default();
        while !calls.is_empty() {
            let count = calls.len();
            let done = self.round(&mut calls).await;
            let done = match done {
                // Somebody was in the way of the first that is left.
                Ok(()) if calls.len() == count => {
                    if let Err(error) = contest.again(&self.jobs.engine).await {
                        self.give_up(&mut calls, &error);
                        contest.turn_to_next();
                    }
                    Ok(())
                }
                done => {
                    contest.won();
                    done
                }
            };
            if let Err(error) = done {
                for call in calls.drain(..) {
                    self.answer(call, Err(error.clone()));
                }
            }
        }
    }

    /// Answers the first that is left, and all others of its tag.
    fn give_up(&self, calls: &mut VecDeque<Call>, error: &Error) {
        let Some(tag) = calls.front().map(|call| call.draft.tag.clone()) else {
            return;
        };
        for call in std::mem::take(calls) {
            match call.draft.tag == tag {
                true => self.answer(call, Err(error.clone())),
                false => calls.push_back(call),
            }
        }
    }

    /// Commits what waits, and answers it up to the first state that must be decided anew. An error is the
    /// answer for all that are left.
    async fn round(&self, calls: &mut VecDeque<Call>) -> Result<()> {
        let known = self.known().take();
        let mut known = match known {
            Some(known) => known,
            None => {
                let seen = |owns| self.seen(owns);
                let known = Known::read(&self.jobs, &self.keys, self.partition, seen);
                known.await?
            }
        };
        self.look_again(&mut known, calls).await?;
        let (verdicts, commits) = self.plan(&known, calls)?;
        let receipts = match commits.is_empty() {
            true => Vec::new(),
            false => self.send(commits).await?,
        };
        let open = match receipts.first() {
            // All behind the first are bound to it, and are decided anew as well.
            Some(Err(error)) if is_of_the_job(error) => {
                self.go_on().await?;
                *self.known() = Some(known);
                return Ok(());
            }
            // It failed before anybody has looked whether the job may be written.
            Some(Err(error)) if refused_by(error).is_none() => match writes(&verdicts) {
                true => false,
                false => return Err(error.clone()),
            },
            Some(_) | None => true,
        };
        let mut receipts = receipts.into_iter();
        let (mut owns, mut answers) = (Vec::new(), Vec::new());
        let (mut refused, mut undecided) = (None, Vec::new());
        for verdict in verdicts {
            let Some(call) = calls.pop_front() else {
                break;
            };
            let answer = match verdict {
                Err(error) => Err(error),
                Ok(Verdict::Repeat(_)) if !open => {
                    undecided.push(call);
                    continue;
                }
                Ok(Verdict::Repeat(version)) => Ok(Written {
                    version,
                    repeated: true,
                }),
                Ok(Verdict::Write(version)) => {
                    let receipt = receipts.next().unwrap_or_else(|| Err(unanswered()));
                    match receipt.and_then(written) {
                        Ok(written) => {
                            let (keys, draft) = (&self.keys, &call.draft);
                            known.wrote(draft, version, call.nonce.clone());
                            let own = Own::written(keys, self.partition, draft, version, written);
                            owns.extend(own);
                            let repeated = false;
                            Ok(Written { version, repeated })
                        }
                        Err(error) => {
                            // What follows was planned as if this had been written.
                            refused = Some((call, error));
                            break;
                        }
                    }
                }
            };
            answers.push((call, answer));
        }
        // Together, and before anybody knows that it was written.
        self.seen(owns);
        for (call, answer) in answers {
            self.answer(call, answer);
        }
        if let Some((call, error)) = refused {
            self.refused(call, error, calls, &mut known).await?;
        }
        for call in undecided.into_iter().rev() {
            calls.push_front(call);
        }
        *self.known() = Some(known);
        Ok(())
    }

    /// Reads once more what could not be read, if it is to be written: somebody may have mended it.
    async fn look_again(&self, known: &mut Known, calls: &VecDeque<Call>) -> Result<()> {
        let states: BTreeMap<_, _> = (calls.iter())
            .filter(|call| known.is_unreadable(&call.draft.tag))
            .map(|call| (call.draft.tag.clone(), call.draft.key.clone()))
            .collect();
        for (tag, key) in states {
            let own = known.look_at(&self.jobs, &self.keys, &tag, &key).await?;
            self.seen(own.into_iter().collect());
        }
        Ok(())
    }

    /// Answers a state that was refused; or puts it back, if that is because others were faster.
    async fn refused(
        &self,
        call: Call,
        error: Error,
        calls: &mut VecDeque<Call>,
        known: &mut Known,
    ) -> Result<()> {
        if refused_by(&error).is_none() {
            self.answer(call, Err(error));
            return Ok(());
        }
        let (tag, key) = (call.draft.tag.clone(), call.draft.key.clone());
        calls.push_front(call);
        match is_of_the_job(&error) {
            true => self.go_on().await,
            false => {
                let own = known.look_at(&self.jobs, &self.keys, &tag, &key).await?;
                self.seen(own.into_iter().collect());
                Ok(())
            }
        }
    }

    /// Those in this process who read the job are to see what this one has written or read: a write whose
    /// answer was lost may be in it.
    fn seen(&self, owns: Vec<Own>) {
        let views = self.jobs.engine.views();
        views.wrote(&self.keys.name, &self.life, owns);
    }

    /// What becomes of each, and the commits for it. Repeats have none: that the job may be written is said by those
    /// of the others, or by one for all of them.
    fn plan(
        &self,
        known: &Known,
        calls: &mut VecDeque<Call>,
    ) -> Result<(Vec<Result<Verdict>>, Vec<Commit>)> {
        let ids = self.jobs.engine.ids();
        let mut planner = Planner::new(&self.keys, &self.life, self.floor, known, ids);
        let mut commits = Vec::new();
        let verdicts = calls.iter_mut().map(|call| {
            let (verdict, commit) = planner.next(call)?;
            commits.extend(commit);
            Ok(verdict)
        });
        let verdicts: Vec<_> = verdicts.collect();
        if commits.is_empty() && verdicts.iter().any(Result::is_ok) {
            commits.push(planner.question()?);
        }
        Ok((verdicts, commits))
    }

    /// Makes these commits in one call, and the same call again while an answer is lost.
    async fn send(&self, commits: Vec<Commit>) -> Result<Vec<Result<Receipt>>> {
        let store = self.jobs.engine.store();
        let call = || async {
            let answers = store.commit(commits.clone()).await;
            match lost(&answers) {
                Some(error) => Err(error.into()),
                None => Ok(answers),
            }
        };
        self.jobs.patiently(call).await
    }

    /// Makes sure that the job may be written, after it was refused.
    pub(crate) async fn go_on(&self) -> Result<()> {
        let job = self.jobs.read(&self.keys).await?;
        match (go_on(job.as_ref(), &self.life), job) {
            (GoOn::Reopen, Some(job)) => {
                // If somebody was faster, the next try tells.
                let opened = self.jobs.move_to(&self.keys, &job, Phase::Open).await;
                opened.map(drop)
            }
            (GoOn::Now, _) => Ok(()),
            (GoOn::Not | GoOn::Reopen, _) => {
                let job = self.keys.name.clone();
                Err(Conflict::JobDeleted { job }.into())
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it was refused because the job may not be written.
fn is_of_the_job(error: &Error) -> bool {
    refused_by(error).is_some_and(|guard| guard < JOB_GUARDS)
}

/// Whether anything is written.
fn writes(verdicts: &[Result<Verdict>]) -> bool {
    let write = |verdict: &Result<Verdict>| matches!(verdict, Ok(Verdict::Write(_)));
    verdicts.iter().any(write)
}

/// That an answer of a call was lost, and whether anything of it may have taken effect.
fn lost(answers: &[Result<Receipt>]) -> Option<Unavailable> {
    let lost = |answer: &Result<Receipt>| match answer {
        Err(Error::Unavailable(error)) => Some(error.clone()),
        Ok(_) | Err(_) => None,
    };
    let error = answers.iter().find_map(lost)?;
    let surely = answers
        .iter()
        .filter_map(lost)
        .all(|error| error.applied == Applied::No)
        && answers.iter().all(Result::is_err);
    let applied = match surely {
        true => Applied::No,
        false => Applied::Unknown,
    };
    Some(Unavailable { applied, ..error })
}

/// At which revision a state was written, and when.
fn written(receipt: Receipt) -> Result<(Revision, Timestamp)> {
    match first(receipt)? {
        Outcome::Written {
            revision,
            modified_at,
            ..
        } => Ok((revision, modified_at)),
        _ => Err(unanswered()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_core::{Invalid, Name};

    use super::*;
    use crate::jobs::JobInfo;

    fn job(generation: u64, created_at: Timestamp, phase: Phase) -> Result<Job, Invalid> {
        let info = JobInfo {
            name: Name::new("import")?,
            partitions: 1,
            created_at,
            generation,
            deleted_at: None,
            retain: None,
            about: BTreeMap::new(),
        };
        let revision = Revision::new(1);
        let (floor, expires) = (0, false);
        Ok(Job {
            info,
            phase,
            floor,
            revision,
            expires,
        })
    }

    #[test]
    fn only_who_belongs_to_the_life_of_a_job_that_was_not_deleted_goes_on() -> Result<(), Invalid> {
        let at = |micros| Timestamp::from_micros(micros);
        let mine = Life {
            generation: 2,
            created_at: at(5)?,
        };
        assert_eq!(go_on(None, &mine), GoOn::Not);
        let phases = [
            (Phase::Open, GoOn::Now),
            (Phase::Closing, GoOn::Reopen),
            (Phase::Deleted, GoOn::Not),
        ];
        for (phase, expected) in phases {
            for generation in 1..=3 {
                for micros in 4..=6 {
                    let job = job(generation, at(micros)?, phase)?;
                    let same = (generation, micros) == (2, 5);
                    let expected = if same { expected } else { GoOn::Not };
                    assert_eq!(go_on(Some(&job), &mine), expected);
                }
            }
        }
        Ok(())
    }
}
