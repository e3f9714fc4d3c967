//! The states that wait to be written, in the order in which they were called.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Result};
use tokio::sync::oneshot;

use super::draft::Draft;
use crate::jobs::manager::{Inner, Written};

/// How many states of a manager may wait.
const WAITING_MAX: usize = 4_096;
/// About how many bytes they may take.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How many states go in one call, if the store allows as many.
const CALL_STATES_MAX: usize = 1_000;
/// About how many bytes go in one call, if the store allows as many.
const CALL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The states that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    calls: VecDeque<Call>,
    bytes: usize,
    /// Whether a task is there that sends them.
    driven: bool,
    /// Takes no more.
    closed: bool,
}

/// A state that waits.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) draft: Draft,
    /// When it was called.
    pub(crate) since: Duration,
    /// As which version it was to be written when that was last decided.
    pub(crate) version: u64,
    /// And by which write.
    pub(crate) nonce: String,
    pub(crate) reply: oneshot::Sender<Result<Written>>,
}

impl Inner {
    /// Takes a place in the line.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        draft: Draft,
    ) -> Result<impl Future<Output = Result<Written>> + Send + use<>> {
        let (reply, answer) = oneshot::channel();
        let call = Call {
            draft,
            since: self.jobs.engine.clock().monotonic(),
            version: 0,
            nonce: String::new(),
            reply,
        };
        let mut queue = self.queue();
        if queue.closed {
            return Err(Error::Closed);
        }
        let bytes = queue.bytes + call.draft.size();
        if queue.calls.len() >= WAITING_MAX || bytes > WAITING_BYTES_MAX {
            let waiting = queue.calls.len();
            return Err(unavailable(
                Applied::No,
                format!("{waiting} states wait to be written already"),
            ));
        }
        queue.bytes = bytes;
        queue.calls.push_back(call);
        if !std::mem::replace(&mut queue.driven, true) {
            drop(queue);
            let manager = self.clone();
            self.spawner.spawn(Driver(manager, false).run());
        }
        // Every state is answered, unless the task that sends it ends early.
        Ok(async move {
            answer.await.unwrap_or_else(|_| {
                let cause = "the runtime ended while a state was under way";
                Err(unavailable(Applied::Unknown, cause.to_owned()))
            })
        })
    }

    /// Takes no more states, and waits until those that wait are written.
    pub(crate) async fn drain(&self) {
        loop {
            let idle = self.idle.notified();
            {
                let mut queue = self.queue();
                queue.closed = true;
                if !queue.driven {
                    self.over.end();
                    return;
                }
            }
            idle.await;
        }
    }

    /// Nothing waits any more. Whoever closed it may have gone away meanwhile.
    fn idle(&self, queue: &Queue) {
        if queue.closed {
            self.over.end();
        }
        self.idle.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue().closed
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// As many from the front as go in one call.
    fn next(&mut self, count_max: usize, bytes_max: usize) -> VecDeque<Call> {
        let mut batch = VecDeque::new();
        let mut bytes = 0;
        while let Some(call) = self.calls.front() {
            bytes += call.draft.size();
            let full = batch.len() >= count_max || bytes > bytes_max;
            if full && !batch.is_empty() {
                break;
            }
            self.bytes = self.bytes.saturating_sub(call.draft.size());
            batch.extend(self.calls.pop_front());
        }
        batch
    }
}

/// Sends what waits, until nothing does. The second says whether it came that far.
struct Driver(Arc<Inner>, bool);

impl Driver {
    async fn run(mut self) {
        while let Some(batch) = self.next() {
            self.0.write(batch).await;
            // Whoever was answered may call again, and goes with those who wait.
            tokio::task::yield_now().await;
        }
    }

    fn next(&mut self) -> Option<VecDeque<Call>> {
        let limits = self.0.jobs.engine.store().limits();
        let count_max = CALL_STATES_MAX.min(limits.commits_max);
        // A state may take several times as many as it is taken for.
        let bytes_max = CALL_BYTES_MAX.min(limits.call_bytes_max / 8);
        let mut queue = self.0.queue();
        let batch = queue.next(count_max, bytes_max);
        queue.driven = !batch.is_empty();
        self.1 = batch.is_empty();
        if !queue.driven {
            self.0.idle(&queue);
        }
        queue.driven.then_some(batch)
    }
}

impl Drop for Driver {
    /// If the runtime ends, whoever waits must hear of it.
    fn drop(&mut self) {
        if !self.1 {
            let mut queue = self.0.queue();
            let closed = queue.closed;
            let abandoned = std::mem::take(&mut *queue);
            queue.closed = closed;
            self.0.idle(&queue);
            drop(queue);
            drop(abandoned);
        }
    }
}

fn unavailable(applied: Applied, cause: String) -> Error {
    Unavailable { applied, cause }.into()
}
