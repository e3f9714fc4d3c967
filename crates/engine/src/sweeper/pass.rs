//! One pass over everything that time brings about, each part of bounded size and on its own: what
//! goes wrong in one keeps nothing from the others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Commit, Compacted, Cursor, Swept};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Result, StoreExt};
use serde::Serialize;

use super::Sweeper;
use crate::Retention;
use crate::archive::{Mover, Place};
use crate::jobs::{Ages, Retired, Rounds};
use crate::registry::{WorkerInfo, WorkerStatus, Workers, offline, was_marked};

/// How many pages of the registry a pass looks through.
const ROLLS_MAX: usize = 100;
/// How many troubles of each part are told. The others are counted.
const TOLD_MAX: usize = 10;

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Scheduled tasks that were made runnable.
    pub promoted: u64,
    /// Attempts that were ended because their time ran out.
    pub expired: u64,
    /// Of these, after which the task has failed for good.
    pub failed: u64,
    /// Of these, after which the task is cancelled, as somebody had asked for.
    pub cancelled: u64,
    /// Records that expired.
    pub records: u64,
    /// Groups that were tallied.
    pub groups: u64,
    /// Workers that were marked as offline.
    pub offline: u64,
    /// Tasks that went to the archive.
    pub archived: u64,
    /// Jobs that were deleted because they had been over for long enough.
    pub jobs: u64,
    /// States of jobs that were removed, of those that were marked as deleted too.
    pub states: u64,
    /// What was removed because it was kept long enough.
    pub removed: Compacted,
    /// What could not be done, the first ten of each part. Each is tried again as soon as passes come by it again: with
    /// the next one, unless a list is longer than what one looks at.
    pub troubles: Vec<Trouble>,
    /// How much more could not be done.
    pub untold: u64,
    /// Whether there is more to do now.
    pub more: bool,
}

/// A part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Tasks that are due, leases that ran out, records that expired.
    Due,
    /// Workers that nobody has heard of.
    Workers,
    /// Tasks that go to the archive.
    Archive,
    /// Jobs that are over, or were marked as deleted.
    Jobs,
    /// What is removed.
    Retention,
}

/// Something that a pass could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In which part.
    pub part: Part,
    /// With what, if the error does not say that.
    pub what: Option<String>,
    /// Why.
    pub error: Reason,
}

/// Why a pass could not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The store says so.
    Store(Error),
    /// The sink of the archive says so, or does not answer.
    Sink(String),
}

impl Reason {
    /// For programs: the code of the store's error, or `sink`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Sink(_) => "sink",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Sink(why) => write!(f, "the sink: {why}"),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Due => "due",
            Part::Workers => "workers",
            Part::Archive => "archive",
            Part::Jobs => "jobs",
            Part::Retention => "retention",
        };
        match &self.what {
            Some(what) => write!(f, "{part}: {what}: {}", self.error),
            None => write!(f, "{part}: {}", self.error),
        }
    }
}

/// Hears what passes did.
#[derive(Clone)]
pub(super) struct Observer(pub(super) Arc<dyn Fn(&Pass) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Part {
    /// All of them, in the order of a pass.
    pub const ALL: [Self; 5] = [
        Self::Due,
        Self::Workers,
        Self::Archive,
        Self::Jobs,
        Self::Retention,
    ];
}

impl From<Swept> for Pass {
    fn from(swept: Swept) -> Self {
        let mut pass = Self {
            promoted: swept.promoted,
            expired: swept.expired,
            failed: swept.failed,
            cancelled: swept.cancelled,
            records: swept.records,
            groups: swept.groups,
            more: swept.more,
            ..Self::default()
        };
        for error in swept.errors {
            pass.trouble(Part::Due, None, error);
        }
        pass
    }
}

impl Pass {
    /// Whether there was nothing to do.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the store was closed.
    pub fn is_closed(&self) -> bool {
        let closed = Reason::Store(Error::Closed);
        self.troubles.iter().any(|trouble| trouble.error == closed)
    }

    /// Whether another pass over this part right now would get more done. What is stuck can wait.
    fn goes_on(&self, part: Part) -> bool {
        if part == Part::Jobs {
            // Its walk goes on behind those that are kept, and comes to an end.
            return self.more && !self.is_closed();
        }
        let removed = &self.removed;
        let decided = self.promoted + self.expired + self.records + self.groups;
        let tidied = removed.tasks + removed.groups + removed.entries + removed.lines;
        let all = [
            decided,
            self.offline,
            self.archived,
            self.jobs + self.states,
            tidied,
            removed.remembered,
        ];
        self.more && all.iter().any(|count| *count > 0) && !self.is_closed()
    }

    pub(super) fn trouble(&mut self, part: Part, what: Option<String>, error: Error) {
        self.tell(Trouble {
            part,
            what,
            error: Reason::Store(error),
        });
    }

    fn tell(&mut self, trouble: Trouble) {
        let told = (self.troubles.iter()).filter(|told| told.part == trouble.part);
        let closes = trouble.error == Reason::Store(Error::Closed) && !self.is_closed();
        match told.count() < TOLD_MAX || closes {
            true => self.troubles.push(trouble),
            false => self.untold += 1,
        }
    }

    /// Takes in what another pass did.
    pub(super) fn add(&mut self, other: Self) {
        self.promoted += other.promoted;
        self.expired += other.expired;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.records += other.records;
        self.groups += other.groups;
        self.offline += other.offline;
        self.archived += other.archived;
        self.jobs += other.jobs;
        self.states += other.states;
        self.removed.tasks += other.removed.tasks;
        self.removed.groups += other.removed.groups;
        self.removed.entries += other.removed.entries;
        self.removed.lines += other.removed.lines;
        self.removed.remembered += other.removed.remembered;
        self.removed.more |= other.removed.more;
        (other.troubles.into_iter()).for_each(|trouble| self.tell(trouble));
        self.untold += other.untold;
        self.more |= other.more;
    }

    /// Takes in what another pass did after this one: what that has left is what is left.
    pub(super) fn then(&mut self, next: Self) {
        (self.more, self.removed.more) = (false, false);
        self.add(next);
    }
}

/// Where walks through long lists go on, so that what is stuck does not hide what is behind it.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// In the tasks that go to the archive; `None`: the end was reached in this round.
    archive: BTreeMap<(Status, Duration), Place>,
    workers: Option<Cursor>,
    jobs: Rounds,
}

impl Places {
    /// What was walked to its end is walked from its beginning.
    fn go_on(&mut self) {
        self.archive.retain(|_, place| place.is_some());
    }
}

impl Sweeper {
    /// One pass of bounded size over everything: promotes what is due, ends what ran out, marks
    /// workers as offline that nobody has heard of, archives and removes what was kept long enough, jobs
    /// that are over among it. Any number may run at once. The next one of this sweeper goes on where this one ends in long
    /// lists, so that what stays does not hide what is behind it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Sweeper};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
    /// let pass = Sweeper::new(engine).pass().await;
    /// assert_eq!((pass.promoted, pass.offline, pass.archived), (0, 0, 0));
    /// assert!(pass.troubles.is_empty());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn pass(&self) -> Pass {
        let mut pass = Pass::default();
        // Another one at the same time begins anew.
        let mut places = std::mem::take(&mut *self.places());
        places.go_on();
        for part in Part::ALL {
            pass.add(self.part(part, &mut places).await);
        }
        *self.places() = places;
        pass
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes until nothing is left to do now, or what is left cannot be done.
    pub async fn pass_all(&self) -> Pass {
        let mut pass = Pass::default();
        for part in Part::ALL {
            pass.add(self.part_all(part, &mut Places::default()).await);
        }
        pass
    }

    /// Does a part as long as it gets something done, or further.
    pub(super) async fn part_all(&self, part: Part, places: &mut Places) -> Pass {
        places.go_on();
        let mut all = Pass::default();
        loop {
            let pass = self.part(part, places).await;
            let again = pass.goes_on(part);
            all.then(pass);
            if !again {
                return all;
            }
            // Whoever shares this thread, or the store, gets its turn.
            tokio::task::yield_now().await;
        }
    }

    async fn part(&self, part: Part, places: &mut Places) -> Pass {
        let mut pass = Pass::default();
        let done = match part {
            Part::Due => self.sweep_once().await.map(|swept| pass.add(swept.into())),
            Part::Workers => self.mark_stale(places, &mut pass).await,
            Part::Archive => self.archive(places, &mut pass).await,
            Part::Jobs => self.retire(places, &mut pass).await,
            Part::Retention => self.remove(&mut pass).await,
        };
        if let Err(error) = done {
            pass.trouble(part, None, error);
        }
        pass
    }

    /// Marks workers as offline that nobody has heard of. One that is heard of meanwhile is left.
    async fn mark_stale(&self, places: &mut Places, pass: &mut Pass) -> Result<()> {
        let workers = Workers::new(self.engine.clone());
        for _ in 0..ROLLS_MAX {
            let roll = workers.running(places.workers.clone()).await?;
            for error in roll.unreadable {
                pass.trouble(Part::Workers, None, error);
            }
            let mut stale = roll.workers;
            stale.retain(|worker| worker.status == WorkerStatus::Offline);
            self.mark(&stale, pass).await;
            places.workers = roll.next;
            if places.workers.is_none() {
                return Ok(());
            }
        }
        pass.more = true;
        Ok(())
    }

    async fn mark(&self, stale: &[WorkerInfo], pass: &mut Pass) {
        if stale.is_empty() {
            return;
        }
        let commits = stale.iter().map(offline);
        let commits = commits.map(|commit| Ok::<Commit, Error>(commit?));
        let answers = self.engine.tasks().commit_all(commits).await;
        let mut offline = 0;
        for (worker, answer) in stale.iter().zip(answers) {
            match was_marked(answer.map(drop)) {
                Ok(marked) => offline += u64::from(marked),
                Err(error) => pass.trouble(Part::Workers, Some(worker.id.to_string()), error),
            }
        }
        pass.offline += offline;
        self.engine.telemetry().marked_offline(offline);
    }

    /// How long things are kept: as this sweeper was told, or else everybody.
    async fn keeping(&self) -> Result<Retention> {
        match &self.retention {
            Some(retention) => {
                retention.check(self.engine.store().limits())?;
                Ok(retention.clone())
            }
            None => Ok(self.engine.retention().get().await?.unwrap_or_default()),
        }
    }

    async fn archive(&self, places: &mut Places, pass: &mut Pass) -> Result<()> {
        let retention = self.keeping().await?;
        if retention.elsewhere && self.sink.is_none() {
            return Ok(());
        }
        let mover = Mover {
            engine: &self.engine,
            sink: self.sink.as_ref(),
            ttl: retention.archived,
            limit: self.limit,
        };
        for (status, age) in retention.to_archive() {
            let mut place = match places.archive.get(&(status, age)) {
                Some(None) => continue,
                place => place.cloned().flatten(),
            };
            let moved = match mover.step(status, age, &mut place).await {
                Ok(moved) => moved,
                Err(error) => {
                    pass.trouble(Part::Archive, None, error);
                    continue;
                }
            };
            let records = &self.engine.telemetry().records;
            records.archived(moved.tasks, moved.left.len());
            places.archive.insert((status, age), place);
            pass.archived += moved.tasks;
            pass.more |= moved.more;
            for (task, error) in moved.left {
                let (part, what) = (Part::Archive, Some(format!("task {task}")));
                pass.tell(Trouble { part, what, error });
            }
        }
        Ok(())
    }

    /// Deletes jobs that have been over for long enough, and removes what is left of those that were deleted.
    async fn retire(&self, places: &mut Places, pass: &mut Pass) -> Result<()> {
        let keeping = self.keeping().await?;
        let ages = Ages {
            finished: keeping.jobs,
            silent: keeping.silent_jobs,
        };
        let mut retired = Retired::default();
        let jobs = self.engine.jobs();
        let done = jobs.retire(&mut places.jobs, ages, &mut retired).await;
        pass.jobs += retired.jobs;
        pass.states += retired.states;
        pass.more |= retired.more;
        for (job, error) in retired.troubles {
            pass.trouble(Part::Jobs, Some(format!("job {job}")), error);
        }
        done
    }

    async fn remove(&self, pass: &mut Pass) -> Result<()> {
        let step = self.keeping().await?.step(self.limit);
        let removed = self.engine.store().compact(step).await?;
        self.engine.telemetry().compacted(&removed);
        let more = removed.more;
        pass.add(Pass {
            removed,
            more,
            ..Pass::default()
        });
        Ok(())
    }

    /// One pass of bounded size over what is due alone.
    pub async fn sweep_once(&self) -> Result<Swept> {
        let swept = (self.engine.store())
            .sweep(self.limit, self.engine.ids())
            .await;
        self.engine.telemetry().swept(swept.as_ref().ok());
        swept
    }
}
