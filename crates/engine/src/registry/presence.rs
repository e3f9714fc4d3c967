//! Keeps a worker's record while it runs.
//!
//! One call a heartbeat, beside the worker's own: what it does never waits for these, and a store
//! that is away is tried again with the next one.

use std::convert::Infallible;
use std::time::Duration;

use plimsoll_core::store::{Commit, Guard, Merge, Outcome, Put, Receipt, Write};
use plimsoll_core::task::WorkerId;
use plimsoll_core::{Error, Key, Result, Revision, StoreExt, Timestamp};
use tokio::sync::watch;

use super::info::{Load, Profile, WorkerStatus, status_field};
use super::key_of;
use crate::Engine;
use crate::telemetry::Heartbeat;
use crate::worker::{Stats, Stop};

/// How long a worker that has ended waits for the store to take note of it.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// What the record says that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    status: WorkerStatus,
    load: Load,
}

/// A worker's presence in the registry.
pub(crate) struct Presence {
    engine: Engine,
    id: WorkerId,
    profile: Profile,
    stats: Stats,
    heartbeat: Duration,
    stop: watch::Receiver<Stop>,
    started_at: Option<Timestamp>,
    /// What the record says, and at which revision, as far as is known.
    written: Option<(Revision, Said)>,
    troubled: bool,
}

impl Presence {
    pub(crate) fn new(
        engine: Engine,
        id: WorkerId,
        profile: Profile,
        stats: Stats,
        heartbeat: Duration,
        stop: watch::Receiver<Stop>,
    ) -> Self {
        Self {
            engine,
            id,
            profile,
            stats,
            heartbeat,
            stop,
            started_at: None,
            written: None,
            troubled: false,
        }
    }

    /// Keeps the record for as long as it is polled.
    pub(crate) async fn keep(&mut self) -> Infallible {
        let clock = self.engine.clock().clone();
        loop {
            let draining = *self.stop.borrow_and_update() != Stop::Go;
            let status = match draining {
                true => WorkerStatus::Draining,
                false => WorkerStatus::Active,
            };
            let late = clock.sleep(self.heartbeat);
            let beat = self.beat(status);
            let done = tokio::select! {
                biased;
                done = beat => Some(done),
                () = late => None,
            };
            self.note(done);
            let next = clock.sleep(self.heartbeat);
            tokio::select! {
                biased;
                Ok(_) = self.stop.wait_for(|stop| *stop != Stop::Go), if !draining => {}
                () = next => {}
            }
        }
    }

    /// Says that the worker has ended, with what it did. Does not wait long for a store that is away.
    pub(crate) async fn leave(mut self) {
        let late = self.engine.clock().sleep(FAREWELL_MAX);
        // Whatever is still under way, or was marked by others: this is the last word.
        self.written = None;
        let farewell = self.beat(WorkerStatus::Offline);
        let done = tokio::select! {
            biased;
            done = farewell => Some(done),
            () = late => None,
        };
        self.note(done);
    }

    /// Writes what has to be written now.
    async fn beat(&mut self, status: WorkerStatus) -> Result<()> {
        let summary = self.stats.summary();
        let said = Said {
            status,
            load: Load {
                current_load: summary.running,
                total_jobs: summary.completed + summary.failed + summary.cancelled,
                failed_jobs: summary.failed,
            },
        };
        let key = key_of(&self.id)?;
        // Until it is answered, nobody knows what the record says.
        let commit = match self.written.take() {
            Some((revision, before)) => heartbeat(&key, revision, &before, &said)?,
            None => self.register(key.clone(), &said).await?,
        };
        let store = self.engine.store().clone();
        let answer = match store.commit_one(commit).await {
            // Somebody marked it as offline, it is gone, or the last answer was lost.
            Err(Error::Conflict(_)) => {
                let anew = self.register(key, &said).await?;
                store.commit_one(anew).await?
            }
            answer => answer?,
        };
        self.written = revision(&answer).map(|revision| (revision, said));
        Ok(())
    }

    async fn register(&mut self, key: Key, said: &Said) -> Result<Commit> {
        let started_at = match self.started_at {
            Some(at) => at,
            None => self.engine.store().ping().await?,
        };
        self.started_at = Some(started_at);
        let profile = &self.profile;
        let fields = profile.fields(&self.id, started_at, said.status, &said.load)?;
        let put = Put::new(key, fields).ttl(said.status.kept());
        Ok(Commit::of(Write::Put(put)))
    }

    /// Says once that the store does not take it, and once that it does again.
    fn note(&mut self, done: Option<Result<()>>) {
        let what = match &done {
            Some(Ok(())) => Heartbeat::Taken,
            Some(Err(_)) => Heartbeat::Refused,
            None => Heartbeat::Unanswered,
        };
        self.engine.telemetry().records.heartbeat(what);
        let worker = &self.id;
        match (done, self.troubled) {
            (Some(Ok(())), true) => tracing::info!(%worker, "registered again"),
            (Some(Err(error)), false) => tracing::warn!(%worker, %error, "cannot be registered"),
            (None, false) => tracing::warn!(%worker, "the store does not answer heartbeats"),
            (Some(Ok(())), false) | (Some(Err(_)) | None, true) => {}
        }
        self.troubled = self.written.is_none();
    }
}

/// What a heartbeat writes: nothing that shows in the history, unless something has changed.
fn heartbeat(key: &Key, revision: Revision, before: &Said, now: &Said) -> Result<Commit> {
    let mut commit = Commit::new().guard(Guard::RecordAt(key.clone(), revision));
    if before != now {
        let change = Merge::new(key.clone())
            .set(status_field(now.status)?)
            .set(now.load.fields()?);
        commit = commit.write(Write::Merge(change));
    }
    Ok(commit.write(Write::Touch(key.clone(), Some(now.status.kept()))))
}

fn revision(receipt: &Receipt) -> Option<Revision> {
    match receipt.outcomes.last()? {
        Outcome::Written { revision, .. } => Some(*revision),
        _ => None,
    }
}
