//! Who waits for tasks to end.
//!
//! A task that somebody begins to wait for is looked for in the history first, and read after that:
//! whatever ends after the read is seen there, so there is no gap. A change that ends a task makes it
//! unread again; a read answers. So a task that was made to run again in between goes on being waited
//! for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::change::{Change, Entry, Interest};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::Tasks;
use plimsoll_core::task::Task;
use plimsoll_core::{Error, Ids, Position, Result, Store, StoreExt, TaskId};
use tokio::sync::{Notify, oneshot};

use crate::Engine;
use crate::history::{Follower, Following, POLL};
use crate::spawn::Spawner;
use crate::tasks::Retries;

/// How many tasks are read at once: their payloads and results are held for a moment.
const READ_MAX: usize = 100;
/// Up to how many tasks are asked for by id, so that the store leaves out all others.
const NAMED_MAX: usize = 16;

/// Who waits, shared by them and the one who reads for them.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    waiters: Mutex<Waiters>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiters {
    answered: bool,
    by_task: BTreeMap<TaskId, BTreeMap<u64, oneshot::Sender<Result<Task>>>>,
    /// Not looked for in the history yet.
    fresh: BTreeSet<TaskId>,
    unread: BTreeSet<TaskId>,
    registered: u64,
}

/// One who waits. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Waiter {
    waiting: Arc<Waiting>,
    id: TaskId,
    number: u64,
    pub(super) answer: oneshot::Receiver<Result<Task>>,
}

impl Waiter {
    /// Enters a waiter, and answers from now on if nobody does.
    pub(super) fn register(id: TaskId, engine: &Engine, retries: Retries) -> Self {
        let waiting = engine.waiting();
        let (reply, answer) = oneshot::channel();
        let mut waiters = waiting.waiters();
        // Outside a runtime this panics, before anything has changed.
        let spawner = (!waiters.answered).then(Spawner::current);
        let number = waiters.registered;
        waiters.registered += 1;
        waiters.by_task.entry(id).or_default().insert(number, reply);
        waiters.fresh.insert(id);
        waiters.answered = true;
        drop(waiters);
        if let Some(spawner) = spawner {
            // Its end is told also if it never begins.
            let end = End(Some(waiting.clone()));
            spawner.spawn(answer_all(end, waiting.clone(), engine.clone(), retries));
        }
        engine.tail().look();
        Self {
            waiting: waiting.clone(),
            id,
            number,
            answer,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.waiting.waiters();
        let Some(of_task) = waiters.by_task.get_mut(&self.id) else {
            return;
        };
        of_task.remove(&self.number);
        if of_task.is_empty() {
            waiters.by_task.remove(&self.id);
            waiters.fresh.remove(&self.id);
            waiters.unread.remove(&self.id);
            self.waiting.changed.notify_one();
        }
    }
}

impl Waiting {
    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits. If not, whoever comes next has to start another who answers.
    fn goes_on(&self) -> bool {
        let mut waiters = self.waiters();
        waiters.answered = !waiters.by_task.is_empty();
        waiters.answered
    }

    /// Takes some of what is to be read, and the number of the next waiter: a read answers only
    /// those who came before it.
    fn take_unread(&self) -> (Vec<TaskId>, u64) {
        let mut waiters = self.waiters();
        let ids: Vec<TaskId> = waiters.unread.iter().copied().take(READ_MAX).collect();
        for id in &ids {
            waiters.unread.remove(id);
        }
        (ids, waiters.registered)
    }

    /// Makes these tasks be read, if anybody waits for them.
    fn read_again(&self, ids: impl IntoIterator<Item = TaskId>) {
        let mut waiters = self.waiters();
        for id in ids {
            if waiters.by_task.contains_key(&id) {
                waiters.unread.insert(id);
                self.changed.notify_one();
            }
        }
    }

    /// Makes those be read that are looked for in the history from now on; `all`: everything.
    fn read_fresh(&self, all: bool) {
        let mut waiters = self.waiters();
        let fresh = std::mem::take(&mut waiters.fresh);
        match all {
            true => waiters.unread = waiters.by_task.keys().copied().collect(),
            false => waiters.unread.extend(fresh),
        }
        if !waiters.unread.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Answers those who came before number `before`, unless the task has yet to end.
    fn answer(&self, id: TaskId, task: Result<Option<Task>>, before: u64) {
        let answer = match task {
            Ok(Some(task)) if task.status.is_terminal() => Ok(task),
            Ok(Some(_)) => return,
            Ok(None) => Err(NotFound::Task(id).into()),
            Err(error) => Err(error),
        };
        let mut waiters = self.waiters();
        let Some(mut of_task) = waiters.by_task.remove(&id) else {
            return;
        };
        let later = of_task.split_off(&before);
        if !later.is_empty() {
            waiters.by_task.insert(id, later);
        }
        drop(waiters);
        for reply in of_task.into_values() {
            // Who went away in the meantime does not want to know.
            reply.send(answer.clone()).ok();
        }
    }

    /// Leaves everybody without an answer.
    fn leave(&self) {
        let mut waiters = self.waiters();
        waiters.fresh.clear();
        waiters.unread.clear();
        let left = std::mem::take(&mut waiters.by_task);
        drop(waiters);
        drop(left);
    }

    /// Answers everybody with this error.
    fn fail(&self, error: &Error) {
        let by_task = {
            let mut waiters = self.waiters();
            waiters.fresh.clear();
            waiters.unread.clear();
            std::mem::take(&mut waiters.by_task)
        };
        for reply in by_task.into_values().flat_map(BTreeMap::into_values) {
            reply.send(Err(error.clone())).ok();
        }
    }
}

/// The waiting as one who follows the history, with the patience of whoever waited first.
#[derive(Debug)]
struct Ends {
    waiting: Arc<Waiting>,
    retries: Retries,
    ids: Ids,
    begun: AtomicBool,
    /// Nothing is told any more.
    over: AtomicBool,
}

impl Follower for Ends {
    /// Ends of tasks, of the few that are waited for or of all.
    fn interests(&self) -> Vec<Interest> {
        let ended = |id| Interest::Tasks {
            queue: None,
            kind: None,
            id,
            group: None,
            terminal: true,
        };
        if self.begun.load(Ordering::Relaxed) {
            self.waiting.read_fresh(false);
        }
        let waiters = self.waiting.waiters();
        match waiters.by_task.len() <= NAMED_MAX {
            true => waiters.by_task.keys().map(|id| ended(Some(*id))).collect(),
            false => vec![ended(None)],
        }
    }

    fn poll(&self) -> Duration {
        POLL
    }

    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    fn gives_way(&self) -> bool {
        false
    }

    fn begins(&self, _: Position) {
        self.begun.store(true, Ordering::Relaxed);
        self.waiting.read_fresh(true);
    }

    fn told(&self, entries: &[Entry], _: Position) {
        let changes = entries.iter().flat_map(|entry| &entry.changes);
        self.waiting
            .read_again(changes.filter_map(|change| match change {
                Change::Task(task) if task.status.is_terminal() => Some(task.id),
                Change::Task(_)
                | Change::Put(_)
                | Change::Removed { .. }
                | Change::Group { .. } => None,
            }));
    }

    fn gone(&self) {
        self.begun.store(false, Ordering::Relaxed);
    }

    fn failing(&self, failures: u32, _: &Error) -> Option<Duration> {
        Some(self.retries.delay(failures, self.ids.jitter()))
    }

    fn back(&self) {}

    fn over(&self, error: Option<&Error>) {
        self.over.store(true, Ordering::Relaxed);
        match error {
            Some(error) => self.waiting.fail(error),
            None => self.waiting.leave(),
        }
        self.waiting.changed.notify_one();
    }
}

/// Reads what is unread, and answers, as long as somebody waits.
async fn answer_all(mut end: End, waiting: Arc<Waiting>, engine: Engine, retries: Retries) {
    let mut following: Option<(Arc<Ends>, Following)> = None;
    let mut failures = 0;
    while waiting.goes_on() {
        if following
            .as_ref()
            .is_none_or(|(ends, _)| ends.over.load(Ordering::Relaxed))
        {
            let ends = Arc::new(Ends {
                waiting: waiting.clone(),
                retries,
                ids: engine.ids().clone(),
                begun: AtomicBool::new(false),
                over: AtomicBool::new(false),
            });
            following = Some((ends.clone(), engine.tail().follow(&engine, ends)));
        }
        let (ids, before) = waiting.take_unread();
        if ids.is_empty() {
            waiting.changed.notified().await;
            continue;
        }
        match read(&waiting, engine.store().as_ref(), &ids, before).await {
            Ok(()) => failures = 0,
            Err(Error::Unavailable(_)) => {
                waiting.read_again(ids);
                failures += 1;
                let delay = retries.delay(failures, engine.ids().jitter());
                engine.clock().sleep(delay).await;
            }
            Err(error) => waiting.fail(&error),
        }
    }
    end.0 = None;
}

/// Reads tasks and answers those who came before number `before`.
async fn read(waiting: &Waiting, store: &dyn Store, ids: &[TaskId], before: u64) -> Result<()> {
    match store.tasks(Tasks { ids: ids.to_vec() }).await {
        Ok(tasks) => {
            for (id, task) in ids.iter().zip(tasks) {
                waiting.answer(*id, Ok(task), before);
            }
        }
        // One that cannot be read is the matter of those who wait for it, and of nobody else.
        Err(Error::Corrupt(_)) => {
            for id in ids {
                match store.task(*id).await {
                    Err(Error::Corrupt(why)) => {
                        waiting.answer(*id, Err(Error::Corrupt(why)), before);
                    }
                    task => waiting.answer(*id, Ok(task?), before),
                }
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// When the one who answers goes away while somebody waits, as with its runtime, they are told,
/// and whoever comes next starts another.
struct End(Option<Arc<Waiting>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(waiting) = self.0.take() {
            waiting.leave();
            waiting.waiters().answered = false;
        }
    }
}
