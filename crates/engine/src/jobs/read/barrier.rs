//! Waiting for all partitions of a job.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::error::{Applied, Conflict, Problem, Unavailable};
use plimsoll_core::{Error, Invalid, Name, Result};

use super::aims::{Aim, Goal};
use super::cache::{Cache, Inner};
use super::view::View;
use crate::jobs::over::Over;
use crate::jobs::{FINISHED, NOT_STARTED, STARTED, State};

/// Waits until every partition of a job has at least some status at a tag, all at one moment, and answers
/// the lowest state then.
///
/// It fails at once when a partition has a negative status at the tag, be it an error or a warning
/// (`Conflict::PartitionFailed`), and when the job is deleted (`Conflict::JobDeleted`). To wait for partitions that
/// warn, say [`despite_warnings`](Self::despite_warnings).
///
/// From when it is first polled and the states are in memory, it goes by every change that is told, also by one that the
/// next takes back at once. An error that this process writes counts as soon as it is written. Where the history was not
/// kept for as long as this process was cut off from it, the states are read anew, and it goes on with what is there then.
#[derive(Debug)]
#[must_use = "a barrier waits when it is awaited"]
pub struct Barrier {
    view: Arc<View>,
    tag: Name,
    goal: Goal,
    within: Option<Duration>,
    /// Its manager is closed.
    over: Option<Arc<Over>>,
}

impl Barrier {
    pub(crate) fn new(view: Arc<View>, tag: impl AsRef<str>, status: i32) -> Result<Self> {
        if status <= NOT_STARTED {
            let problem = Problem::OutOfRange {
                value: status.to_string(),
                min: STARTED.to_string(),
                max: FINISHED.to_string(),
            };
            return Err(Invalid::new("status", problem).into());
        }
        Ok(Self {
            view,
            tag: Name::for_field("tag", tag)?,
            goal: Goal {
                status,
                despite_warnings: false,
            },
            within: None,
            over: None,
        })
    }

    /// Ends as soon as this says so.
    pub(crate) fn until(mut self, over: Arc<Over>) -> Self {
        self.over = Some(over);
        self
    }

    /// Waits so long at most; `Conflict::BarrierNotReached` then says how many partitions are behind. It is `Unavailable` if
    /// the states could not be read until then, or the history had not told yet that all were there.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// A partition with a [warning](crate::jobs::WARNING) has not failed: it is waited for like one that is behind.
    pub fn despite_warnings(mut self) -> Self {
        self.goal.despite_warnings = true;
        self
    }

    async fn wait(self) -> Result<State> {
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
        let begin = async {
            let kept = self.view.ready().await?;
            let aim = kept.cache.aim(&self.tag, self.goal).await?;
            Ok::<_, Error>((kept, aim))
        };
        let (mut late, mut over) = (pin!(late), pin!(over));
        let (kept, aim) = tokio::select! {
            biased;
            () = &mut over => return Err(Error::Closed),
            begun = begin => begun?,
            () = &mut late => return Err(self.unread()),
        };
        tokio::select! {
            biased;
            () = over => Err(Error::Closed),
            decided = aim.decided() => decided,
            () = late => self.late(&kept.cache, &aim),
        }
    }

    /// Why it is not reached yet: who is behind, or that nobody knows.
    fn late(&self, cache: &Cache, aim: &Aim) -> Result<State> {
        let behind = |inner: &Inner| {
            // Under the lock: it may have been decided since it was asked.
            if let Some(decision) = aim.decision() {
                return decision;
            }
            let aggregate = inner.fold.aggregate();
            let (status, lowest) = aggregate.of_tag(&self.tag);
            match aggregate.behind(&self.tag, self.goal.status) {
                // What this process has written is not told yet.
                0 => Err(self.untold()),
                behind => Err(Error::from(Conflict::BarrierNotReached {
                    job: self.view.job().clone(),
                    tag: self.tag.clone(),
                    wanted: self.goal.status,
                    behind,
                    partition: lowest.partition(),
                    status,
                })),
            }
        };
        let late = aim.decision().or_else(|| cache.now(behind));
        late.unwrap_or_else(|| Err(self.unread()))
    }

    fn unread(&self) -> Error {
        let job = self.view.job();
        unavailable(format!("the states of job {job} were not read in time"))
    }

    fn untold(&self) -> Error {
        let (job, tag) = (self.view.job(), &self.tag);
        unavailable(format!(
            "all partitions of job {job} were there at {tag}, but the history had not told so in time"
        ))
    }
}

fn unavailable(cause: String) -> Error {
    Error::Unavailable(Unavailable {
        applied: Applied::No,
        cause,
    })
}

impl IntoFuture for Barrier {
    type Output = Result<State>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<State>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}
