//! One partition of a job, which says how far it is.

use std::collections::BTreeMap;
use std::error;
use std::future::Future;
use std::sync::{Arc, Mutex};

use plimsoll_core::{Error, Name, Result};
use tokio::sync::Notify;

use super::coded::status_of;
use super::describe;
use super::info::{Life, Phase};
use super::join::Joined;
use super::over::Over;
use super::read::view::View;
use super::stored::Keys;
use super::write::draft::{Draft, TooLong};
use super::write::known::Known;
use super::write::queue::Queue;
use super::{
    Barrier, FINISHED, Jobs, NewState, Progress, STARTED, Scope, State, SubscribeOptions,
    Subscription, WARNING,
};
use crate::contest::Contest;
use crate::spawn::Spawner;
use crate::telemetry::Quota;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The version that the state has, or had when it was written.
    pub version: u64,
    /// Whether it had been written before, by this event id, so that this time nothing was.
    pub repeated: bool,
}

/// One partition of a job. Cloning it is cheap; clones share the order of their writes.
///
/// A method that writes a state takes its place in the line when it is called, not when its future is
/// first polled, and a future that is dropped keeps nothing from being written: neither its own state nor
/// those behind it. What waits is sent in one call of the store, together with whatever else waits by then.
///
/// A manager must have been made inside a runtime, which sends what waits. It has room for
/// some thousand states that wait: a call for which there is no room is `Unavailable`, with nothing applied.
/// Who awaits each write before the next never sees that.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::{Engine, jobs::{FINISHED, NewState}};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
/// let manager = jobs.join("import-7", 0, 1).await?;
/// let first = manager.set_started(NewState::of("ingest")?);
/// let second = manager.set_finished(NewState::of("ingest")?.message("Completed successfully"));
/// // In whatever order they are awaited.
/// assert_eq!(second.await?.version, 2);
/// assert_eq!(first.await?.version, 1);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Manager(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) jobs: Jobs,
    pub(crate) keys: Keys,
    pub(crate) partition: u32,
    partitions: u32,
    created: bool,
    pub(crate) life: Life,
    pub(crate) floor: u64,
    pub(crate) spawner: Spawner,
    pub(crate) queue: Mutex<Queue>,
    /// What is known of its states; `None`: nothing yet, or nothing any more.
    pub(crate) known: Mutex<Option<Known>>,
    pub(crate) quota: Mutex<Quota>,
    /// Nothing waits to be written.
    pub(crate) idle: Notify,
    view: Arc<View>,
    /// Its subscriptions and barriers are over.
    pub(crate) over: Arc<Over>,
}

impl Manager {
    /// Must be called inside a runtime.
    pub(crate) fn new(jobs: Jobs, keys: Keys, partition: u32, joined: Joined) -> Self {
        let view = View::new(jobs.engine.clone(), keys.clone(), Some(joined.life));
        Self(Arc::new(Inner {
            view: Arc::new(view),
            over: Arc::new(Over::not_yet()),
            idle: Notify::new(),
            jobs,
            keys,
            partition,
            partitions: joined.partitions,
            created: joined.created,
            life: joined.life,
            floor: joined.floor,
            spawner: Spawner::current(),
            queue: Mutex::default(),
            known: Mutex::default(),
            quota: Mutex::default(),
        }))
    }

    /// The name of the job.
    pub fn job(&self) -> &Name {
        &self.0.keys.name
    }

    /// Which partition this is.
    pub fn partition(&self) -> u32 {
        self.0.partition
    }

    /// How many partitions the job has, as is stored.
    pub fn partitions(&self) -> u32 {
        self.0.partitions
    }

    /// Whether this one created the job.
    pub fn created(&self) -> bool {
        self.0.created
    }

    /// Writes a state. One that is meant for another job or partition is `Invalid`, and so is one whose
    /// message or payload is too large. [`job_deleted`](plimsoll_core::Error::code): it was.
    pub fn set_state(
        &self,
        state: NewState,
    ) -> impl Future<Output = Result<Written>> + Send + use<> {
        self.set(state, TooLong::Refused)
    }

    /// Takes a place in the line for a state, unless it is refused.
    fn set(
        &self,
        state: NewState,
        too_long: TooLong,
    ) -> impl Future<Output = Result<Written>> + Send + use<> {
        let inner = &self.0;
        let (engine, keys) = (&inner.jobs.engine, &inner.keys);
        let limits = engine.store().limits();
        let (tag, event_id) = (state.tag.clone(), state.event_id.clone());
        let draft = Draft::check(state, too_long, keys, inner.partition, limits, engine.ids());
        let answer = match draft {
            Ok(draft) => inner.enqueue(draft),
            Err(invalid) => Err(invalid.into()),
        };
        if let Err(error) = &answer {
            inner.not_written(error, &tag, None, event_id.as_ref());
        }
        async move { answer?.await }
    }

    /// Writes that a tag has started: status 1, and `🟢 Started` unless there is another message.
    pub fn set_started(
        &self,
        mut state: NewState,
    ) -> impl Future<Output = Result<Written>> + Send + use<> {
        state.status = STARTED;
        self.set_state(or_message(state, "🟢 Started"))
    }

    /// Writes that a tag is done: the highest status, and `⚫ Finished` unless there is another message.
    pub fn set_finished(
        &self,
        mut state: NewState,
    ) -> impl Future<Output = Result<Written>> + Send + use<> {
        state.status = FINISHED;
        self.set_state(or_message(state, "⚫ Finished"))
    }

    /// Writes an error: status -1, or the one that a [`Coded`](super::Coded) error carries, and the error
    /// after `🔴 ` as the message, which is cut if it is too long.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, jobs::{Coded, NewState}};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
    /// # let manager = jobs.join("import-7", 0, 1).await?;
    /// let error = Coded { status: -40, source: "connection timeout".into() };
    /// manager.set_error(&error, NewState::of("ingest")?).await?;
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn set_error(
        &self,
        error: &(dyn error::Error + 'static),
        mut state: NewState,
    ) -> impl Future<Output = Result<Written>> + Send + use<> {
        state.message = format!("🔴 {error}");
        let writing = match status_of(error) {
            Ok(status) => {
                state.status = status;
                Ok(self.set(state, TooLong::Cut))
            }
            Err(invalid) => {
                let invalid = Error::from(invalid);
                (self.0).not_written(&invalid, &state.tag, None, state.event_id.as_ref());
                Err(invalid)
            }
        };
        async move { writing?.await }
    }

    /// Writes a warning: status -2, and the warning after `🟡 ` as the message, which is cut if it is too
    /// long. Its status is lower than that of an error, and so wins over it.
    pub fn set_warning(
        &self,
        warning: &str,
        mut state: NewState,
    ) -> impl Future<Output = Result<Written>> + Send + use<> {
        state.status = WARNING;
        state.message = format!("🟡 {warning}");
        self.set(state, TooLong::Cut)
    }

    /// The state that speaks for a scope: the one with the lowest status, and of several the one of the
    /// lowest partition. In a tag, a partition that has not said anything counts as not started; in the
    /// whole job, one without any state.
    ///
    /// It is read from memory: what this process has written is in it, what others have written gets there
    /// with the history. The first read of a job loads its states.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, jobs::{NewState, Scope}};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
    /// let manager = jobs.join("import-7", 0, 2).await?;
    /// manager.set_state(NewState::new("ingest", 40)?).await?;
    /// let ingest = manager.get_state(&Scope::all().tag("ingest")?).await?;
    /// assert_eq!((ingest.partition, ingest.status), (1, 0), "it has not begun yet");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn get_state(&self, scope: &Scope) -> Result<State> {
        self.view()?.get_state(scope).await
    }

    /// The states of a scope that exist, in the order of partitions and tags.
    pub async fn states(&self, scope: &Scope) -> Result<Vec<Arc<State>>> {
        self.view()?.states(scope).await
    }

    /// How far each tag is that somebody has said something of.
    pub async fn progress(&self) -> Result<Vec<Progress>> {
        self.view()?.progress().await
    }

    /// Waits until reads show everything that was acknowledged before this call.
    pub async fn refresh(&self) -> Result<()> {
        self.view()?.refresh().await
    }

    /// The states of a scope that exist, and every change from then on. It goes on without this manager,
    /// unless that is [closed](Self::close).
    pub async fn subscribe(&self, scope: Scope, options: SubscribeOptions) -> Result<Subscription> {
        let subscription = self.view()?.subscribe(scope, options).await?;
        Ok(subscription.until(self.0.over.clone()))
    }

    /// Waits until all partitions have at least this status at a tag, which must be above 0.
    pub fn barrier(&self, tag: impl AsRef<str>, status: i32) -> Result<Barrier> {
        let barrier = self.view()?.barrier(tag, status)?;
        Ok(barrier.until(self.0.over.clone()))
    }

    /// Takes no more states, waits until everything that was set is written, and then ends the
    /// subscriptions and barriers of this manager and its clones. Whatever is asked of them afterwards is
    /// `closed`. The store stays open: it belongs to the engine.
    pub async fn close(&self) {
        self.0.drain().await;
    }

    fn view(&self) -> Result<&Arc<View>> {
        match self.0.is_closed() {
            true => Err(Error::Closed),
            false => Ok(&self.0.view),
        }
    }

    /// Says something about the job, besides what is said of it already. Only partition 0 does that; for
    /// the others nothing happens. Answers whether this is partition 0: then it is said now.
    pub async fn describe<N: AsRef<str>, V: Into<String>>(
        &self,
        about: impl IntoIterator<Item = (N, V)>,
    ) -> Result<bool> {
        let about: Result<BTreeMap<_, _>> = (about.into_iter())
            .map(|(name, value)| Ok((Name::for_field("about", name)?, value.into())))
            .collect();
        self.view()?;
        let inner = &self.0;
        let engine = &inner.jobs.engine;
        let about = describe::about(&about?)?;
        describe::fits(&about, engine.store().limits())?;
        if inner.partition != 0 {
            return Ok(false);
        }
        let mut contest = Contest::default();
        loop {
            let job = inner.jobs.read(&inner.keys).await?;
            let open =
                job.filter(|job| job.phase == Phase::Open && Life::of(&job.info) == inner.life);
            match open {
                Some(job)
                    if inner
                        .jobs
                        .describe(&inner.keys, &job, about.clone())
                        .await? =>
                {
                    return Ok(true);
                }
                Some(_) => {}
                None => inner.go_on().await?,
            }
            contest.again(engine).await?;
        }
    }

    /// Deletes the job and all its states: see [`Jobs::delete`]. Only partition 0 does that; for the others
    /// nothing happens, and neither if this job was deleted before. Answers whether something did.
    pub async fn delete_job(&self) -> Result<bool> {
        self.view()?;
        let marked = self.mark_job_deleted().await?;
        if self.0.partition == 0 {
            self.0.jobs.remove_states(&self.0.keys).await?;
        }
        Ok(marked)
    }

    /// Marks the job as deleted: see [`Jobs::mark_deleted`]. Only partition 0 does that; for the others
    /// nothing happens, and neither if this job was deleted before. Answers whether something did.
    pub async fn mark_job_deleted(&self) -> Result<bool> {
        self.view()?;
        match self.0.partition {
            0 => (self.0.jobs).mark(&self.0.keys, Some(&self.0.life)).await,
            _ => Ok(false),
        }
    }
}

fn or_message(mut state: NewState, message: &str) -> NewState {
    if state.message.is_empty() {
        message.clone_into(&mut state.message);
    }
    state
}
