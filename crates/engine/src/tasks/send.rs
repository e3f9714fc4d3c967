//! How commits get to the store: one, or any number of them.

use std::future::Future;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::store::{Commit, Outcome, Receipt};
use plimsoll_core::{Error, Result};

use crate::answer::{first, unanswered};
use crate::retries::{Patience, worse};
use crate::tasks::Tasks;

/// How many commits go in one call, if the store allows as many. A store holds its lock or its
/// transaction for that long.
const CALL_COMMITS_MAX: usize = 1_000;
/// About how many bytes go in one call, if the store allows as many.
const CALL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Commits for one call, each with its place among all answers.
#[derive(Default)]
struct Call {
    commits: Vec<(usize, Commit)>,
    bytes: usize,
}

impl Tasks {
    fn patience(&self) -> Patience<'_> {
        self.retries.patience(&self.engine)
    }

    /// Makes a call that is safe to repeat until the store answers, or patience ends.
    pub(crate) async fn patiently<T, F>(&self, call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.retries.patiently(&self.engine, call).await
    }

    /// Makes one commit, which must be safe to repeat.
    pub(crate) async fn commit(&self, mut commit: Commit) -> Result<Receipt> {
        let (engine, telemetry) = (&self.engine, self.engine.telemetry());
        telemetry.carry(&mut commit.writes);
        let receipt = (self.patiently(|| engine.commit_carrying(commit.clone()))).await?;
        telemetry.committed(&commit, &receipt);
        Ok(receipt)
    }

    /// Makes a commit with one write and an id: a repeat answers what the first one did.
    pub(super) async fn commit_once(&self, commit: Commit) -> Result<Outcome> {
        let receipt = self.commit(commit.id(self.engine.ids().commit())).await?;
        first(receipt)
    }

    /// Makes commits that are each safe to repeat, however many, in calls that the store takes,
    /// and answers for each in order. Holds no more than one call of them at a time.
    pub(crate) async fn commit_all(
        &self,
        commits: impl Iterator<Item = Result<Commit>> + Send,
    ) -> Vec<Result<Receipt>> {
        let limits = self.store().limits();
        let count_max = CALL_COMMITS_MAX.min(limits.commits_max);
        let bytes_max = CALL_BYTES_MAX.min(limits.call_bytes_max);
        let mut answers = Vec::new();
        let mut down = None;
        let mut call = Call::default();
        for commit in commits {
            let commit = match commit {
                Ok(mut commit) => {
                    self.engine.telemetry().carry(&mut commit.writes);
                    commit
                }
                Err(error) => {
                    answers.push(Err(error));
                    continue;
                }
            };
            let size = commit.size();
            let full = call.commits.len() >= count_max || call.bytes + size > bytes_max;
            if full && !call.commits.is_empty() {
                let full = std::mem::take(&mut call);
                self.send(full.commits, &mut answers, &mut down).await;
            }
            call.bytes += size;
            call.commits.push((answers.len(), commit));
            answers.push(Err(unanswered()));
        }
        self.send(call.commits, &mut answers, &mut down).await;
        answers
    }

    /// Makes one call, and repeats it for the commits that had no answer. Once that was in vain,
    /// nothing more is sent: whoever has a million commits is not to wait a million times.
    async fn send(
        &self,
        mut call: Vec<(usize, Commit)>,
        answers: &mut [Result<Receipt>],
        down: &mut Option<Unavailable>,
    ) {
        if let Some(error) = down {
            for (place, _) in call {
                answers[place] = Err(error.clone().into());
            }
            return;
        }
        let mut patience = self.patience();
        while !call.is_empty() {
            let commits = call.iter().map(|(_, commit)| commit.clone()).collect();
            let results = self.store().commit(commits).await;
            let mut lost = Vec::new();
            for ((place, commit), result) in call.into_iter().zip(results) {
                let answer = &mut answers[place];
                let result = match result {
                    Err(Error::Unavailable(error)) => {
                        lost.push((place, commit));
                        Err(after(answer, error).into())
                    }
                    result => {
                        if let Ok(receipt) = &result {
                            self.engine.telemetry().committed(&commit, receipt);
                        }
                        result
                    }
                };
                *answer = result;
            }
            call = lost;
            if !call.is_empty() && !patience.bears().await {
                *down = Some(Unavailable {
                    applied: Applied::No,
                    cause: "not sent: the store did not answer the call before".into(),
                });
                return;
            }
        }
    }
}

/// What is known of a commit after one more try without an answer.
fn after(before: &Result<Receipt>, error: Unavailable) -> Unavailable {
    match before {
        Err(Error::Unavailable(before)) => Unavailable {
            applied: worse(before.applied, error.applied),
            ..error
        },
        Ok(_) | Err(_) => error,
    }
}
