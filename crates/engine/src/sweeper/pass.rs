//! One pass over everything that time brings about, each part of bounded size and on its own: what
//! goes wrong in one keeps nothing from the others.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::store::{Commit, Compacted, Swept};
use plimsoll_core::{Error, StoreExt};
use serde::Serialize;

use super::Sweeper;
use crate::Tasks;
use crate::archive::Mover;
use crate::registry::{WorkerInfo, WorkerStatus, Workers, offline, was_marked};

/// How many pages of the registry a pass looks through.
const ROLLS_MAX: usize = 100;

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
    /// What was removed because it was kept long enough.
    pub removed: Compacted,
    /// What could not be done. Each is tried again with the next pass.
    pub troubles: Vec<Trouble>,
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
    pub error: Error,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Due => "due",
            Part::Workers => "workers",
            Part::Archive => "archive",
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

impl Pass {
    /// Whether there was nothing to do.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the store was closed.
    pub fn is_closed(&self) -> bool {
        self.troubles
            .iter()
            .any(|trouble| trouble.error == Error::Closed)
    }

    pub(super) fn trouble(&mut self, part: Part, what: Option<String>, error: Error) {
        self.troubles.push(Trouble { part, what, error });
    }

    pub(super) fn swept(&mut self, swept: Swept) {
        self.promoted += swept.promoted;
        self.expired += swept.expired;
        self.failed += swept.failed;
        self.cancelled += swept.cancelled;
        self.records += swept.records;
        self.groups += swept.groups;
        self.more |= swept.more;
        for error in swept.errors {
            self.trouble(Part::Due, None, error);
        }
    }

    fn removed(&mut self, done: Compacted) {
        self.removed.tasks += done.tasks;
        self.removed.groups += done.groups;
        self.removed.entries += done.entries;
        self.removed.lines += done.lines;
        self.removed.remembered += done.remembered;
        self.removed.more = done.more;
        self.more |= done.more;
    }

    /// Takes in what another pass did after this one.
    pub(super) fn then(&mut self, next: Self) {
        self.promoted += next.promoted;
        self.expired += next.expired;
        self.failed += next.failed;
        self.cancelled += next.cancelled;
        self.records += next.records;
        self.groups += next.groups;
        self.offline += next.offline;
        self.archived += next.archived;
        self.removed(next.removed);
        self.troubles = next.troubles;
        self.more = next.more;
    }
}

impl Sweeper {
    /// One pass of bounded size over everything: promotes what is due, ends what ran out, marks
    /// workers as offline that nobody has heard of, archives and removes what was kept long enough.
    /// Any number may run at once.
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
        match self.sweep_once().await {
            Ok(swept) => pass.swept(swept),
            Err(error) => pass.trouble(Part::Due, None, error),
        }
        self.mark_stale(&mut pass).await;
        self.archive(&mut pass).await;
        self.remove(&mut pass).await;
        pass
    }

    /// Passes until nothing is left to do now, or what is left cannot be done.
    pub async fn pass_all(&self) -> Pass {
        let mut all = self.pass().await;
        while all.more && all.troubles.is_empty() {
            tokio::task::yield_now().await;
            all.then(self.pass().await);
        }
        all
    }

    /// Marks workers as offline that nobody has heard of. One that is heard of meanwhile is left.
    pub(super) async fn mark_stale(&self, pass: &mut Pass) {
        let workers = Workers::new(self.engine.clone());
        let mut cursor = None;
        for _ in 0..ROLLS_MAX {
            let roll = match workers.running(cursor).await {
                Ok(roll) => roll,
                Err(error) => return pass.trouble(Part::Workers, None, error),
            };
            for error in roll.unreadable {
                pass.trouble(Part::Workers, None, error);
            }
            let mut stale = roll.workers;
            stale.retain(|worker| worker.status == WorkerStatus::Offline);
            self.mark(&stale, pass).await;
            cursor = roll.next;
            if cursor.is_none() {
                return;
            }
        }
    }

    async fn mark(&self, stale: &[WorkerInfo], pass: &mut Pass) {
        if stale.is_empty() {
            return;
        }
        let commits = stale.iter().map(offline);
        let commits = commits.map(|commit| Ok::<Commit, Error>(commit?));
        let tasks = Tasks::new(self.engine.clone());
        let answers = tasks.commit_all(commits).await;
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

    pub(super) async fn archive(&self, pass: &mut Pass) {
        let mover = Mover {
            engine: &self.engine,
            sink: self.sink.as_ref(),
            ttl: self.retention.archived,
            limit: self.limit,
        };
        for (status, age) in self.retention.to_archive() {
            let moved = match mover.step(status, age).await {
                Ok(moved) => moved,
                Err(error) => {
                    pass.trouble(Part::Archive, None, error);
                    continue;
                }
            };
            let records = &self.engine.telemetry().records;
            records.archived(moved.tasks, moved.left.len());
            pass.archived += moved.tasks;
            pass.more |= moved.more;
            for (task, error) in moved.left {
                pass.trouble(Part::Archive, Some(format!("task {task}")), error);
            }
        }
    }

    pub(super) async fn remove(&self, pass: &mut Pass) {
        let step = self.retention.step(self.limit);
        match self.engine.store().compact(step).await {
            Ok(done) => {
                self.engine.telemetry().compacted(&done);
                pass.removed(done);
            }
            Err(error) => pass.trouble(Part::Retention, None, error),
        }
    }

    /// One pass of bounded size over what is due alone.
    pub async fn sweep_once(&self) -> plimsoll_core::Result<Swept> {
        let swept = (self.engine.store())
            .sweep(self.limit, self.engine.ids())
            .await;
        self.engine.telemetry().swept(swept.as_ref().ok());
        swept
    }
}
