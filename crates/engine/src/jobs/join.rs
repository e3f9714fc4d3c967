//! Taking part in a job: created by the first who comes, joined by the others.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_core::error::{Invalid, NotFound, Problem};
use plimsoll_core::limits::DURATION_MAX;
use plimsoll_core::record::Fields;
use plimsoll_core::store::{Commit, Guard, Put, Write};
use plimsoll_core::{Name, Result};

use super::describe;
use super::info::{self, Job, Life, Phase};
use super::stored::Keys;
use super::{Jobs, Manager};
use crate::answer::refused_by;
use crate::contest::Contest;

/// How many partitions a job may have.
pub const PARTITIONS_MAX: u32 = 1_000_000;

/// Somebody who is about to take part in a job; [`await`](Self::into_future) it.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::Engine;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
/// let day = Duration::from_secs(86_400);
/// let manager = jobs.join("import-7", 0, 4).retain(day).about("source", "ftp")?.await?;
/// assert!(manager.created());
/// assert_eq!(jobs.get("import-7").await?.unwrap().retain, Some(day));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "nobody takes part before this is awaited"]
pub struct Join {
    jobs: Jobs,
    job: String,
    partition: u32,
    /// How many there are, if it may create the job.
    partitions: Option<u32>,
    retain: Option<Duration>,
    about: BTreeMap<Name, String>,
}

impl Jobs {
    /// Takes part in a job as one of its partitions, counted from 0. The first who comes creates the job
    /// with this many partitions; for all others, the count that is stored is the one that holds, and
    /// [`Manager::partitions`] tells it.
    ///
    /// A job that was deleted is created anew: what is left of it is removed first.
    ///
    /// What is said of the job as a whole, as [`Join::about`] and [`Join::retain`] do, is for partition 0 to say: when it
    /// creates the job, and whenever it joins it. Others may say the same, and change nothing.
    pub fn join(&self, job: impl Into<String>, partition: u32, partitions: u32) -> Join {
        Join {
            partitions: Some(partitions),
            ..self.join_existing(job, partition)
        }
    }

    /// Takes part in a job that somebody else has created. If there is none, or if it was deleted, that is `NotFound`, and
    /// none is created.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
    /// let early = jobs.join_existing("import-7", 1).await;
    /// assert_eq!(early.unwrap_err().code(), "job_not_found");
    /// jobs.join("import-7", 0, 4).await?;
    /// assert_eq!(jobs.join_existing("import-7", 1).await?.partitions(), 4);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn join_existing(&self, job: impl Into<String>, partition: u32) -> Join {
        Join {
            jobs: self.clone(),
            job: job.into(),
            partition,
            partitions: None,
            retain: None,
            about: BTreeMap::new(),
        }
    }
}

impl Join {
    /// The job is kept for this long after all its partitions have finished, whatever the
    /// [retention](crate::Retention) of the namespace says. Only partition 0 says that.
    pub fn retain(mut self, retain: Duration) -> Self {
        self.retain = Some(retain);
        self
    }

    /// Says this about the job, besides what is said of it already. Only partition 0 does.
    pub fn about(
        mut self,
        name: impl AsRef<str>,
        value: impl Into<String>,
    ) -> Result<Self, Invalid> {
        let name = Name::for_field("about", name)?;
        self.about.insert(name, value.into());
        Ok(self)
    }

    async fn join(self) -> Result<Manager> {
        let keys = Keys::of(Name::for_field("job", &self.job)?)?;
        self.check()?;
        let mut contest = Contest::default();
        loop {
            let job = self.jobs.read(&keys).await?;
            let there = (job.as_ref()).filter(|job| job.phase != Phase::Deleted);
            let partitions = match (there, self.partitions) {
                (Some(job), _) => job.info.partitions,
                (None, Some(partitions)) => partitions,
                (None, None) => return Err(NotFound::Job(keys.name).into()),
            };
            // Nothing is written for a partition that there cannot be.
            below(self.partition, partitions)?;
            let joined = match job {
                None => self.create(&keys, partitions, None).await?,
                Some(job) => match job.phase {
                    Phase::Open => {
                        let described = self.jobs.describe(&keys, &job, self.said()?).await?;
                        described.then(|| Joined::to(&job))
                    }
                    Phase::Closing => {
                        self.jobs.move_to(&keys, &job, Phase::Open).await?;
                        None
                    }
                    Phase::Deleted if !job.expires => {
                        self.jobs.remove_states(&keys).await?;
                        None
                    }
                    Phase::Deleted => self.create(&keys, partitions, Some(&job)).await?,
                },
            };
            if let Some(joined) = joined {
                return Ok(Manager::new(self.jobs, keys, self.partition, joined));
            }
            contest.again(&self.jobs.engine).await?;
        }
    }

    fn check(&self) -> Result<(), Invalid> {
        let between = |field, value: String, min: &str, max: String| {
            let min = min.to_owned();
            Err(Invalid::new(field, Problem::OutOfRange { value, min, max }))
        };
        if let Some(partitions) = self.partitions
            && !(1..=PARTITIONS_MAX).contains(&partitions)
        {
            let (value, max) = (partitions.to_string(), PARTITIONS_MAX.to_string());
            return between("partitions", value, "1", max);
        }
        match self.retain {
            Some(retain) if retain > DURATION_MAX => between(
                "retain",
                format!("{retain:?}"),
                "0ns",
                format!("{DURATION_MAX:?}"),
            ),
            Some(_) | None => {
                let said = describe::said(self.retain, &self.about)?;
                describe::fits(&said, self.jobs.engine.store().limits())
            }
        }
    }

    /// What is said of the job as a whole: nothing, unless this is partition 0.
    fn said(&self) -> Result<Fields, Invalid> {
        match self.partition {
            0 => describe::said(self.retain, &self.about),
            _ => Ok(Fields::new()),
        }
    }

    /// Creates the job, after the one before, unless somebody was faster.
    async fn create(
        &self,
        keys: &Keys,
        partitions: u32,
        before: Option<&Job>,
    ) -> Result<Option<Joined>> {
        let engine = &self.jobs.engine;
        let now = self.jobs.patiently(|| engine.store().ping()).await?;
        let (as_seen, life, floor) = match before {
            Some(job) => (
                Guard::RecordAt(keys.job.clone(), job.revision),
                Life::of(&job.info).next(now),
                job.floor,
            ),
            None => (Guard::RecordAbsent(keys.job.clone()), Life::first(now), 0),
        };
        let mut fields = info::created(partitions, &life, floor)?;
        fields.extend(self.said()?);
        describe::fits(&fields, engine.store().limits())?;
        let put = Put::new(keys.job.clone(), fields);
        let commit = Commit::of(Write::Put(put))
            .guard(as_seen)
            .id(engine.ids().commit());
        match self.jobs.commit(commit).await {
            Ok(_) => Ok(Some(Joined {
                partitions,
                life,
                floor,
                created: true,
            })),
            Err(error) if refused_by(&error).is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl IntoFuture for Join {
    type Output = Result<Manager>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.join())
    }
}

/// What somebody who joins is told.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) partitions: u32,
    pub(crate) life: Life,
    pub(crate) floor: u64,
    pub(crate) created: bool,
}

impl Joined {
    /// Somebody else created it.
    fn to(job: &Job) -> Self {
        Self {
            partitions: job.info.partitions,
            life: Life::of(&job.info),
            floor: job.floor,
            created: false,
        }
    }
}

/// That there is such a partition.
fn below(partition: u32, partitions: u32) -> Result<(), Invalid> {
    if partition < partitions {
        return Ok(());
    }
    let problem = Problem::OutOfRange {
        value: partition.to_string(),
        min: "0".to_owned(),
        max: (partitions - 1).to_string(),
    };
    Err(Invalid::new("partition", problem))
}
