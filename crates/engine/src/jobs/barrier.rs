//! Waiting for all partitions of a job.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::error::{Applied, Conflict, Unavailable};
use plimsoll_core::{Error, Name, Result};

use super::aggregate::Verdict;
use super::cache::Inner;
use super::view::View;
use super::{Scope, State};

/// Waits until every partition of a job has at least some status at a tag, all at one moment, and answers
/// the lowest state then.
///
/// It fails at once when a partition has a negative status at the tag, be it an error or a warning
/// (`Conflict::PartitionFailed`), and when the job is deleted (`Conflict::JobDeleted`).
#[derive(Debug)]
#[must_use = "a barrier waits when it is awaited"]
pub struct Barrier {
    view: Arc<View>,
    tag: Name,
    status: i32,
    within: Option<Duration>,
}

impl Barrier {
    pub(super) fn new(view: Arc<View>, tag: impl AsRef<str>, status: i32) -> Result<Self> {
        Ok(Self {
            view,
            tag: Name::for_field("tag", tag)?,
            status,
            within: None,
        })
    }

    /// Waits so long at most; `Conflict::BarrierNotReached` then says how many partitions are behind.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    async fn wait(self) -> Result<State> {
        let kept = self.view.kept();
        let reached = kept.cache.ask(|inner| self.decide(inner).transpose());
        let Some(within) = self.within else {
            return reached.await;
        };
        let late = self.view.engine().clock().sleep(within);
        tokio::select! {
            biased;
            reached = reached => return reached,
            () = late => {}
        }
        if !kept.cache.serves() {
            return Err(Error::Unavailable(Unavailable {
                applied: Applied::No,
                cause: format!(
                    "the states of job {} were not read in time",
                    self.view.job()
                ),
            }));
        }
        let late = |inner: &Inner| self.decide(inner)?.ok_or_else(|| self.late(inner).into());
        kept.cache.ask(|inner| Some(late(inner))).await
    }

    /// The lowest state, once all partitions are there.
    fn decide(&self, inner: &Inner) -> Result<Option<State>> {
        let tag = Some(self.tag.clone());
        let partition = None;
        inner.fold.check(&Scope { partition, tag })?;
        let state = |partition| inner.fold.state(partition, Some(self.tag.clone()));
        match inner.fold.aggregate().verdict(&self.tag, self.status) {
            Verdict::Reached(partition) => Ok(Some(state(partition))),
            Verdict::Waiting(_) => Ok(None),
            Verdict::Failed(partition) => {
                let state = state(partition);
                Err(Conflict::PartitionFailed {
                    job: state.job,
                    tag: self.tag.clone(),
                    partition,
                    status: state.status,
                    message: state.message,
                }
                .into())
            }
        }
    }

    /// Who is behind.
    fn late(&self, inner: &Inner) -> Conflict {
        let aggregate = inner.fold.aggregate();
        let (status, lowest) = aggregate.of_tag(&self.tag);
        Conflict::BarrierNotReached {
            job: self.view.job().clone(),
            tag: self.tag.clone(),
            wanted: self.status,
            behind: aggregate.behind(&self.tag, self.status),
            partition: lowest.partition(),
            status,
        }
    }
}

impl IntoFuture for Barrier {
    type Output = Result<State>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<State>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}
