//! Group commit: concurrent callers share one store call.
//!
//! While a group is in flight, callers queue; what has queued by then is the next group. There is
//! no timer: a lone caller is served at once. A caller is answered when its group is. What has
//! been queued is committed, whether or not its caller still waits; what has not been queued when
//! a caller goes away is not. The queue is bounded: when it is full, callers wait for room.
//!
//! A store that merges by itself, as SQLite does, does not need this.

use std::future::Future;
use std::sync::Arc;

use plimsoll_core::decorate::{Around, Committing, Decorated, Method};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::store::{Commit, Receipt};
use plimsoll_core::{Error, Result, Store};
use tokio::sync::{mpsc, oneshot};

use crate::spawn::spawn;

/// How many calls may wait for the group in flight.
const QUEUE_MAX: usize = 4_096;
/// About how many bytes a group may carry.
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Puts group commit in front of a store. Must be called inside a runtime: a task of its own makes
/// the calls, and ends with the last clone of the answer.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_core::{Memory, Namespace, Store};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = Arc::new(Memory::new().open(Namespace::new("orders")?));
/// let merged = plimsoll_engine::group_commit(store);
/// merged.ping().await?;
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
pub fn group_commit(store: Arc<dyn Store>) -> Decorated<GroupCommit> {
    let around = GroupCommit::start(store.clone(), QUEUE_MAX);
    Decorated::new(store, around)
}

/// Merges the commits of concurrent callers.
#[derive(Clone, Debug)]
pub struct GroupCommit {
    queue: mpsc::Sender<Call>,
    commits_max: usize,
}

#[derive(Debug)]
struct Call {
    commits: Vec<Commit>,
    reply: oneshot::Sender<Vec<Result<Receipt>>>,
}

impl Call {
    fn size(&self) -> usize {
        let writes = self.commits.iter().flat_map(|commit| &commit.writes);
        writes.map(|write| write.size()).sum()
    }
}

impl GroupCommit {
    /// Starts the task that makes the calls, with room for `queue_max` that wait.
    pub fn start(store: Arc<dyn Store>, queue_max: usize) -> Self {
        let (queue, calls) = mpsc::channel(queue_max.max(1));
        let commits_max = store.limits().commits_max;
        spawn(drive(store, calls, commits_max));
        Self { queue, commits_max }
    }
}

async fn drive(store: Arc<dyn Store>, mut calls: mpsc::Receiver<Call>, commits_max: usize) {
    let mut left_over = None;
    while let Some(first) = match left_over.take() {
        Some(call) => Some(call),
        None => calls.recv().await,
    } {
        let mut group = vec![first];
        left_over = fill(&mut group, &mut calls, commits_max);
        commit(store.as_ref(), group).await;
    }
}

/// Adds what has queued, up to the limits of a group; the first call that did not fit is answered.
fn fill(
    group: &mut Vec<Call>,
    calls: &mut mpsc::Receiver<Call>,
    commits_max: usize,
) -> Option<Call> {
    let mut commits: usize = group.iter().map(|call| call.commits.len()).sum();
    let mut bytes: usize = group.iter().map(Call::size).sum();
    while let Ok(call) = calls.try_recv() {
        commits += call.commits.len();
        bytes += call.size();
        if commits > commits_max || bytes > GROUP_BYTES_MAX {
            return Some(call);
        }
        group.push(call);
    }
    None
}

async fn commit(store: &dyn Store, group: Vec<Call>) {
    metrics::histogram!("plimsoll_group_commit_calls").record(group.len() as f64);
    let mut merged = Vec::new();
    let mut waiting = Vec::with_capacity(group.len());
    for call in group {
        waiting.push((call.commits.len(), call.reply));
        merged.extend(call.commits);
    }
    let mut results = store.commit(merged).await.into_iter();
    for (count, reply) in waiting {
        // A caller that went away does not want to know.
        reply.send(results.by_ref().take(count).collect()).ok();
    }
}

impl Around for GroupCommit {
    async fn around<T, C, F>(&self, _: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        call().await
    }

    fn take_over(&self, commits: Vec<Commit>) -> Result<Committing, Vec<Commit>> {
        let count = commits.len();
        if count > self.commits_max {
            // Too many for one call: the store says so, and nobody else is to suffer for it.
            return Err(commits);
        }
        let queue = self.queue.clone();
        Ok(Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            if queue.send(Call { commits, reply }).await.is_err() {
                return vec![Err(Error::Closed); count];
            }
            // The task answers every call it takes; it can only vanish with its runtime.
            answer.await.unwrap_or_else(|_| {
                let lost = Error::Unavailable(Unavailable {
                    applied: Applied::Unknown,
                    cause: "group commit ended while the call was under way".into(),
                });
                vec![Err(lost); count]
            })
        }))
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}
