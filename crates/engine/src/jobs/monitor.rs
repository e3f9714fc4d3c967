//! Looking at a job from outside.

use std::sync::Arc;

use plimsoll_core::change::Interest;
use plimsoll_core::error::{Conflict, NotFound};
use plimsoll_core::{Error, Name, Prefix, Result};

use super::read::aggregate::Progress;
use super::read::view::View;
use super::stored::Keys;
use super::{Barrier, Jobs, Scope, State, SubscribeOptions, Subscription};
use crate::Engine;

/// Reads the states of a job without being a part of it. Cloning it is cheap.
///
/// Reads are answered from memory, which the history keeps up to date; [`refresh`](Self::refresh)
/// makes sure of it. The first one loads the states.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::{Engine, jobs::NewState};
/// use plimsoll_engine::jobs::{FINISHED, Scope, StateEvent, SubscribeOptions};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
/// # jobs.join("import", 0, 1).await?.set_finished(NewState::of("load")?).await?;
/// let monitor = jobs.monitor("import").await?;
/// // Where does the job stand?
/// assert!(monitor.get_state(&Scope::all()).await?.is_finished());
/// // Let all partitions get there.
/// monitor.barrier("load", FINISHED)?.await?;
/// // Tell me of every change.
/// let mut events = monitor.subscribe(Scope::all(), SubscribeOptions::default()).await?;
/// while let Some(event) = events.next().await {
///     match event? {
///         StateEvent::State(state) => println!("{} {}", state.message, state.is_replay()),
///         StateEvent::ReplayComplete { .. } => break,
///         StateEvent::Restarted => println!("some changes may be missing"),
///     }
/// }
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Monitor {
    view: Arc<View>,
}

impl Jobs {
    /// Looks at this job without being a part of it. `NotFound::Job`, if there is none;
    /// `Conflict::JobDeleted`, if it was deleted.
    pub async fn monitor(&self, job: impl AsRef<str>) -> Result<Monitor> {
        Monitor::open(&self.engine, job).await
    }

    /// Looks at this job as soon as there is one: while there is none, or it was deleted, this waits for
    /// whoever creates it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
    /// let looking = jobs.monitor_when_created("import");
    /// let (monitor, manager) = tokio::join!(looking, jobs.join("import", 0, 4));
    /// assert_eq!(monitor?.partitions().await?, manager?.partitions());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn monitor_when_created(&self, job: impl AsRef<str>) -> Result<Monitor> {
        let keys = Keys::of(Name::for_field("job", job)?)?;
        let interest = Interest::Records(Prefix::new(keys.job.as_str())?);
        let mut watch = self.engine.history().watch(interest.clone()).await?;
        loop {
            match self.monitor(&keys.name).await {
                Err(Error::NotFound(NotFound::Job(_))) => {}
                Err(Error::Conflict(conflict))
                    if matches!(*conflict, Conflict::JobDeleted { .. }) => {}
                done => return done,
            }
            match watch.next().await {
                // Whatever was missed, the next look shows it.
                Err(Error::NotFound(NotFound::History { .. })) => {
                    watch = self.engine.history().watch(interest.clone()).await?;
                }
                seen => drop(seen?),
            }
        }
    }
}

impl Monitor {
    async fn open(engine: &Engine, job: impl AsRef<str>) -> Result<Self> {
        let keys = Keys::of(Name::for_field("job", job)?)?;
        let view = Arc::new(View::new(engine.clone(), keys, None));
        view.partitions().await?;
        Ok(Self { view })
    }

    /// The job.
    pub fn job(&self) -> &Name {
        self.view.job()
    }

    /// How many partitions it has.
    pub async fn partitions(&self) -> Result<u32> {
        self.view.partitions().await
    }

    /// The state that speaks for a scope: the one with the lowest status, and of several the one of the
    /// lowest partition. In a tag, a partition that has not said anything counts as not started; in the
    /// whole job, one without any state.
    pub async fn get_state(&self, scope: &Scope) -> Result<State> {
        self.view.get_state(scope).await
    }

    /// The states of a scope that exist, in the order of partitions and tags.
    pub async fn states(&self, scope: &Scope) -> Result<Vec<Arc<State>>> {
        self.view.states(scope).await
    }

    /// How far each tag is that somebody has said something of.
    pub async fn progress(&self) -> Result<Vec<Progress>> {
        self.view.progress().await
    }

    /// Waits until reads show everything that was acknowledged before this call.
    pub async fn refresh(&self) -> Result<()> {
        self.view.refresh().await
    }

    /// The states of a scope that exist, and every change from then on.
    pub async fn subscribe(&self, scope: Scope, options: SubscribeOptions) -> Result<Subscription> {
        self.view.subscribe(scope, options).await
    }

    /// Waits until all partitions have at least this status at a tag, which must be above 0.
    pub fn barrier(&self, tag: impl AsRef<str>, status: i32) -> Result<Barrier> {
        self.view.barrier(tag, status)
    }
}
