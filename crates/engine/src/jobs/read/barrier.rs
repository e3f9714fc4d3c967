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
use crate::jobs::over::Over;
use crate::jobs::{Scope, State};

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
    /// Its manager is closed.
    over: Option<Arc<Over>>,
}

impl Barrier {
    pub(crate) fn new(view: Arc<View>, tag: impl AsRef<str>, status: i32) -> Result<Self> {
        Ok(Self {
            view,
            tag: Name::for_field("tag", tag)?,
            status,
            within: None,
            over: None,
        })
    }

    /// Ends as soon as this says so.
    pub(crate) fn until(mut self, over: Arc<Over>) -> Self {
        self.over = Some(over);
        self
    }

    /// Waits so long at most; `Conflict::BarrierNotReached` then says how many partitions are behind.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    async fn wait(self) -> Result<State> {
        let reached = async {
            let kept = self.view.ready().await?;
            kept.cache.ask(|inner| self.decide(inner).transpose()).await
        };
        let late = async {
            match self.within {
                Some(within) => self.view.engine().clock().sleep(within).await,
                None => std::future::pending().await,
            }
        };
        let over = async {
            match &self.over {
                Some(over) => over.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = over => return Err(Error::Closed),
            reached = reached => return reached,
            () = late => {}
        }
        let unread = || {
            let job = self.view.job();
            Error::Unavailable(Unavailable {
                applied: Applied::No,
                cause: format!("the states of job {job} were not read in time"),
            })
        };
        let late = |inner: &Inner| match self.decide(inner)? {
            Some(reached) => Ok(reached),
            None => match self.late(inner) {
                Some(late) => Err(late.into()),
                None => Err(unread()),
            },
        };
        let kept = self.view.kept();
        kept.cache.now(late).unwrap_or_else(|| Err(unread()))
    }

    /// The lowest state, once all partitions are there.
    fn decide(&self, inner: &Inner) -> Result<Option<State>> {
        let tag = Some(self.tag.clone());
        let partition = None;
        inner.fold.check(&Scope { partition, tag })?;
        let state = |partition| inner.fold.state(partition, Some(self.tag.clone()));
        match inner.fold.aggregate().verdict(&self.tag, self.status) {
            Verdict::Reached(partition) => match inner.fold.lowest_told(&self.tag) {
                None => Ok(Some(state(partition))),
                // The others may have moved before this process wrote what is not told yet.
                Some(told) => Ok((told.status >= self.status).then_some(told)),
            },
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

    /// Who is behind, if anybody is.
    fn late(&self, inner: &Inner) -> Option<Conflict> {
        let aggregate = inner.fold.aggregate();
        let (status, lowest) = aggregate.of_tag(&self.tag);
        let behind = aggregate.behind(&self.tag, self.status);
        (behind > 0).then(|| Conflict::BarrierNotReached {
            job: self.view.job().clone(),
            tag: self.tag.clone(),
            wanted: self.status,
            behind,
            partition: lowest.partition(),
            status,
        })
    }
}

impl IntoFuture for Barrier {
    type Output = Result<State>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<State>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}
