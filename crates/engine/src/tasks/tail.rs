//! One tail of the history for all who wait.
//!
//! Each waiter is entered as unread. The tail takes its place in the history first, then reads what
//! is unread, then follows the history from that place: whatever ends after a read is seen there, so
//! there is no gap. A change that ends a task makes it unread again; a read answers. So a task that
//! was made to run again in between goes on being waited for.
//!
//! The tail is woken by the store's hints and looks once a second without any. It starts with the
//! first waiter and ends when nobody waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::change::{Change, Interest};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::{ChangePage, Changes, Start, Tasks};
use plimsoll_core::task::Task;
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Limits, Position, Result, Store, StoreExt, TaskId};
use tokio::sync::{Notify, oneshot};

use crate::Engine;
use crate::spawn::Spawner;
use crate::tasks::Retries;

/// How long the tail waits for a hint.
const POLL: Duration = Duration::from_secs(1);
/// How many tasks are read at once: their payloads and results are held for a moment.
const READ_MAX: usize = 100;
/// How many changes are read at once.
const CHANGES_MAX: usize = 1_000;
/// Up to how many tasks the store is asked for by id, so that it leaves out all others.
const NAMED_MAX: usize = 16;

/// Who waits, shared by them and the one who follows the history for them.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    waiters: Mutex<Waiters>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiters {
    followed: bool,
    by_task: BTreeMap<TaskId, BTreeMap<u64, oneshot::Sender<Result<Task>>>>,
    unread: BTreeSet<TaskId>,
    registered: u64,
}

/// One who waits. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Waiter {
    tail: Arc<Tail>,
    id: TaskId,
    number: u64,
    pub(super) answer: oneshot::Receiver<Result<Task>>,
}

impl Waiter {
    /// Enters a waiter, and follows the history from now on if nobody does.
    pub(super) fn register(
        tail: &Arc<Tail>,
        id: TaskId,
        engine: &Engine,
        retries: Retries,
    ) -> Self {
        let (reply, answer) = oneshot::channel();
        let mut waiters = tail.waiters();
        let number = waiters.registered;
        waiters.registered += 1;
        waiters.by_task.entry(id).or_default().insert(number, reply);
        waiters.unread.insert(id);
        if !waiters.followed {
            waiters.followed = true;
            Spawner::current().spawn(follow(tail.clone(), engine.clone(), retries));
        }
        drop(waiters);
        tail.changed.notify_one();
        Self {
            tail: tail.clone(),
            id,
            number,
            answer,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.tail.waiters();
        let Some(of_task) = waiters.by_task.get_mut(&self.id) else {
            return;
        };
        of_task.remove(&self.number);
        if of_task.is_empty() {
            waiters.by_task.remove(&self.id);
            waiters.unread.remove(&self.id);
            self.tail.changed.notify_one();
        }
    }
}

impl Tail {
    /// Lets the tail look at the store now.
    pub(super) fn look(&self) {
        self.changed.notify_one();
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits. If not, whoever comes next has to start a tail.
    fn goes_on(&self) -> bool {
        let mut waiters = self.waiters();
        waiters.followed = !waiters.by_task.is_empty();
        waiters.followed
    }

    fn is_idle(&self) -> bool {
        self.waiters().by_task.is_empty()
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
            }
        }
    }

    fn read_all_again(&self) {
        let mut waiters = self.waiters();
        waiters.unread = waiters.by_task.keys().copied().collect();
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

    /// Answers everybody with this error.
    fn fail(&self, error: &Error) {
        let by_task = {
            let mut waiters = self.waiters();
            waiters.unread.clear();
            std::mem::take(&mut waiters.by_task)
        };
        for reply in by_task.into_values().flat_map(BTreeMap::into_values) {
            reply.send(Err(error.clone())).ok();
        }
    }

    /// What to read of the history: ends of tasks, of the few that are waited for or of all.
    fn interests(&self, limits: &Limits) -> Vec<Interest> {
        let ended = |id| Interest::Tasks {
            queue: None,
            kind: None,
            id,
            group: None,
            terminal: true,
        };
        let waiters = self.waiters();
        if waiters.by_task.len() <= NAMED_MAX.min(limits.lanes_max) {
            waiters.by_task.keys().map(|id| ended(Some(*id))).collect()
        } else {
            vec![ended(None)]
        }
    }
}

/// Follows the history as long as somebody waits.
async fn follow(tail: Arc<Tail>, engine: Engine, retries: Retries) {
    let mut end = End(Some(tail.clone()));
    let store = engine.store().as_ref();
    let mut hints = store.wakeups();
    let mut place = None;
    let mut failures = 0;
    while tail.goes_on() {
        match turn(&tail, store, &mut place).await {
            Ok(more) => {
                failures = 0;
                if more {
                    continue;
                }
                // In this order, so that a simulation runs the same way again.
                tokio::select! {
                    biased;
                    () = tail.changed.notified() => {}
                    () = told_of_history(&mut hints) => {}
                    () = engine.clock().sleep(POLL) => {}
                }
            }
            Err(Error::NotFound(NotFound::History { .. })) => {
                place = None;
                tail.read_all_again();
            }
            Err(Error::Unavailable(_)) => {
                failures += 1;
                let delay = retries.delay(failures, engine.ids().jitter());
                engine.clock().sleep(delay).await;
            }
            Err(error) => tail.fail(&error),
        }
    }
    end.0 = None;
}

async fn told_of_history(hints: &mut Listener) {
    while !hints.next().await.history {}
}

/// Reads what is unread and one page of history. Answers whether there is more to do at once.
async fn turn(tail: &Tail, store: &dyn Store, place: &mut Option<Position>) -> Result<bool> {
    let limit = CHANGES_MAX.min(store.limits().page_max);
    let from = match *place {
        Some(from) => from,
        None => {
            let start = Start::Newest;
            let interests = Vec::new();
            let newest = store.changes(Changes {
                start,
                interests,
                limit,
            });
            *place.insert(newest.await?.next)
        }
    };
    loop {
        let (ids, before) = tail.take_unread();
        if ids.is_empty() {
            break;
        }
        if let Err(error) = read(tail, store, &ids, before).await {
            tail.read_again(ids);
            return Err(error);
        }
    }
    if tail.is_idle() {
        return Ok(true);
    }
    let page = store.changes(Changes {
        start: Start::After(from),
        interests: tail.interests(store.limits()),
        limit,
    });
    let page = page.await?;
    *place = Some(page.next);
    let more = page.more;
    tail.read_again(changed(page));
    Ok(more || !tail.waiters().unread.is_empty())
}

/// Reads tasks and answers those who came before number `before`.
async fn read(tail: &Tail, store: &dyn Store, ids: &[TaskId], before: u64) -> Result<()> {
    match store.tasks(Tasks { ids: ids.to_vec() }).await {
        Ok(tasks) => {
            for (id, task) in ids.iter().zip(tasks) {
                tail.answer(*id, Ok(task), before);
            }
        }
        // One that cannot be read is the matter of those who wait for it, and of nobody else.
        Err(Error::Corrupt(_)) => {
            for id in ids {
                match store.task(*id).await {
                    Err(Error::Corrupt(why)) => {
                        tail.answer(*id, Err(Error::Corrupt(why)), before);
                    }
                    task => tail.answer(*id, Ok(task?), before),
                }
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn changed(page: ChangePage) -> impl Iterator<Item = TaskId> {
    let changes = page.entries.into_iter().flat_map(|entry| entry.changes);
    changes.filter_map(|change| match change {
        Change::Task(task) => Some(task.id),
        Change::Put(_) | Change::Removed { .. } | Change::Group { .. } => None,
    })
}

/// When the one who follows goes away while somebody waits, as with its runtime, they are told,
/// and whoever comes next starts another.
struct End(Option<Arc<Tail>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(tail) = self.0.take() {
            let mut waiters = tail.waiters();
            let lost = std::mem::take(&mut *waiters);
            waiters.registered = lost.registered;
        }
    }
}
