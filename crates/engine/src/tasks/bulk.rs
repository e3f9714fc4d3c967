//! One verb for many tasks.
//!
//! A bulk verb goes through what its selector finds page by page and acts on each task in a commit
//! of its own, guarded by the revision that it was found at: a task that changes in between is read
//! again, and left alone if it does not match any more. So retrying failed tasks never takes one
//! away from a worker that has it by then.
//!
//! It ends although others go on submitting, and although the verb changes what the selector finds:
//! only tasks count that were submitted before it began, by the store's clock, and no page goes back.

use std::time::Duration;

use plimsoll_core::error::Conflict;
use plimsoll_core::ids::Revision;
use plimsoll_core::store::{
    self, Cancel, Commit, Guard, List, Outcome, Receipt, Retry, Selector, TaskFilter, Write,
};
use plimsoll_core::task::{Priority, Task};
use plimsoll_core::{Error, Result, TaskId};

use crate::answer::first;
use crate::tasks::Tasks;

/// How many refusals, and how many tasks of a dry run, are named.
const NAMED_MAX: usize = 100;
/// How often a task is read again that changes under the verb's hands.
const ROUNDS_MAX: u32 = 5;

/// Many tasks, chosen by an indexed selector and a filter, and what to do to each of them.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace, store::{Selector, TaskFilter}, task::{Lane, Status}};
/// # use plimsoll_engine::{Engine, Tasks};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
/// # let tasks = Tasks::new(Engine::new(store));
/// for n in 0..3 {
///     tasks.submit(tasks.json("mail", "send", &n)?).await?;
/// }
/// let pending = Selector::Lane(Lane::new("mail", "send")?, Status::Pending);
/// let bulk = tasks.bulk(pending, TaskFilter::default());
/// assert_eq!(bulk.dry_run().await?.matched, 3);
/// assert_eq!(bulk.cancel(Some("wrong list".into())).await?.changed, 3);
/// assert_eq!(bulk.dry_run().await?.matched, 0);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Bulk {
    tasks: Tasks,
    selector: Selector,
    filter: TaskFilter,
}

/// What a bulk verb would act on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// How many tasks match.
    pub matched: u64,
    /// The first hundred of them.
    pub sample: Vec<TaskId>,
}

/// What to do to each task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// See [`Tasks::cancel`].
    Cancel {
        /// Why.
        reason: Option<String>,
    },
    /// See [`Tasks::retry_with`].
    Retry {
        /// Also those that have failed as often as they may.
        force: bool,
    },
    /// Removes what has ended; the others are refused.
    Delete,
    /// Changes how urgent it is.
    Prioritise(Priority),
}

impl Verb {
    fn write(&self, task: TaskId) -> Write {
        match self {
            Self::Cancel { reason } => Write::Cancel(Cancel {
                task,
                reason: reason.clone(),
            }),
            Self::Retry { force } => Write::Retry(Retry {
                task,
                force: *force,
                delay: Duration::ZERO,
            }),
            Self::Delete => Write::DeleteTask(task),
            Self::Prioritise(priority) => Write::Prioritise(task, *priority),
        }
    }
}

/// What a bulk verb did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// How many tasks matched when the verb came to them.
    pub matched: u64,
    /// Of these, how many it changed.
    pub changed: u64,
    /// How many were that way already.
    pub already: u64,
    /// The first hundred that it was refused for, and why. [`refusals`](Self::refusals) counts all.
    pub refused: Vec<(TaskId, Error)>,
}

impl Report {
    /// How many tasks the verb was refused for.
    pub fn refusals(&self) -> u64 {
        self.matched - self.changed - self.already
    }

    fn refuse(&mut self, id: TaskId, error: Error) {
        self.matched += 1;
        if self.refused.len() < NAMED_MAX {
            self.refused.push((id, error));
        }
    }

    fn take(&mut self, id: TaskId, answer: Result<Receipt>) {
        match answer.and_then(first) {
            Ok(Outcome::Already { .. }) => {
                self.matched += 1;
                self.already += 1;
            }
            Ok(_) => {
                self.matched += 1;
                self.changed += 1;
            }
            Err(error) => self.refuse(id, error),
        }
    }
}

impl Tasks {
    /// Many tasks, to do something to each of them.
    pub fn bulk(&self, selector: Selector, filter: TaskFilter) -> Bulk {
        Bulk {
            tasks: self.clone(),
            selector,
            filter,
        }
    }
}

impl Bulk {
    /// Counts what would be acted on, and changes nothing.
    pub async fn dry_run(&self) -> Result<DryRun> {
        let mut found = DryRun::default();
        let mut next = Some(self.begin().await?);
        while let Some(list) = next {
            let page = self.tasks.list(list.clone()).await?;
            found.matched += page.rows.len() as u64;
            let room = NAMED_MAX - found.sample.len();
            (found.sample).extend(page.rows.iter().take(room).map(Task::id));
            next = page.next.map(|cursor| List {
                cursor: Some(cursor),
                ..list
            });
        }
        Ok(found)
    }

    /// Cancels each: see [`Tasks::cancel`].
    pub async fn cancel(&self, reason: Option<String>) -> Result<Report> {
        self.all(Verb::Cancel { reason }).await
    }

    /// Makes each run again: see [`Tasks::retry_with`].
    pub async fn retry(&self, force: bool) -> Result<Report> {
        self.all(Verb::Retry { force }).await
    }

    /// Removes each that has ended; the others are refused.
    pub async fn delete(&self) -> Result<Report> {
        self.all(Verb::Delete).await
    }

    /// Changes how urgent each is.
    pub async fn prioritise(&self, priority: Priority) -> Result<Report> {
        self.all(Verb::Prioritise(priority)).await
    }

    async fn all(&self, verb: Verb) -> Result<Report> {
        let mut report = Report::default();
        self.act(&verb, &mut report).await?;
        Ok(report)
    }

    /// Does it to each, and adds what it did to a report. When this breaks off, the report still says
    /// what was done until then; to begin again is safe.
    pub async fn act(&self, verb: &Verb, report: &mut Report) -> Result<()> {
        let mut next = Some(self.begin().await?);
        while let Some(list) = next {
            let page = self.tasks.list(list.clone()).await?;
            // Payloads are not needed any more.
            let found = page.rows.into_iter().map(at).collect();
            self.act_on(found, &list.filter, verb, report).await?;
            next = page.next.map(|cursor| List {
                cursor: Some(cursor),
                ..list
            });
        }
        Ok(())
    }

    /// Acts on the tasks of one page.
    async fn act_on(
        &self,
        mut found: Vec<(TaskId, Revision)>,
        filter: &TaskFilter,
        verb: &Verb,
        report: &mut Report,
    ) -> Result<()> {
        let ids = self.tasks.engine.ids();
        for _ in 0..ROUNDS_MAX {
            let commits = found.iter().map(|(id, revision)| {
                let guard = Guard::TaskAt(*id, *revision);
                Ok(Commit::of(verb.write(*id)).guard(guard).id(ids.commit()))
            });
            let answers = self.tasks.commit_all(commits).await;
            let mut moved = Vec::new();
            for ((id, _), answer) in found.into_iter().zip(answers) {
                match answer {
                    Err(Error::Conflict(why)) if matches!(*why, Conflict::Guard { .. }) => {
                        moved.push(id);
                    }
                    answer => report.take(id, answer),
                }
            }
            if moved.is_empty() {
                return Ok(());
            }
            found = self.still_matching(moved, filter).await?;
        }
        for (id, _) in found {
            let attempts = ROUNDS_MAX;
            report.refuse(id, Conflict::Contended { attempts }.into());
        }
        Ok(())
    }

    async fn still_matching(
        &self,
        ids: Vec<TaskId>,
        filter: &TaskFilter,
    ) -> Result<Vec<(TaskId, Revision)>> {
        let store = self.tasks.store();
        let read = || store.tasks(store::Tasks { ids: ids.clone() });
        let tasks = self.tasks.patiently(read).await?;
        let matching = tasks.into_iter().flatten();
        let matching = matching.filter(|task| self.selects(task) && filter.matches(task));
        Ok(matching.map(at).collect())
    }

    fn selects(&self, task: &Task) -> bool {
        match &self.selector {
            Selector::Lane(lane, status) => task.spec.lane == *lane && task.status == *status,
            Selector::Group(group) => task.spec.group.as_ref() == Some(group),
            Selector::Owner(owner) => task.spec.owner.as_ref() == Some(owner),
            Selector::Key(prefix) => {
                let key = task.spec.key.as_ref();
                key.is_some_and(|(key, _)| prefix.matches(key.as_str()))
            }
            // It has changed since it was listed: the time it is kept for may have begun anew.
            Selector::KeptFor(..) => false,
        }
    }

    /// The first page of what was submitted up to now.
    async fn begin(&self) -> Result<List> {
        let store = self.tasks.store();
        let now = self.tasks.patiently(|| store.ping()).await?;
        let after_now = now.saturating_plus(Duration::from_micros(1));
        let before = self.filter.created_before;
        let filter = TaskFilter {
            created_before: Some(before.map_or(after_now, |before| before.min(after_now))),
            ..self.filter.clone()
        };
        let list = List::new(self.selector.clone(), self.tasks.page());
        Ok(List { filter, ..list })
    }
}

fn at(task: Task) -> (TaskId, Revision) {
    (task.id(), task.revision)
}
