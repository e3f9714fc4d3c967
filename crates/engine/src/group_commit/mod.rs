//! Group commit: concurrent callers share one store call.
//!
//! While groups are in flight, the next one fills: commits of any caller, renewals of one lease
//! duration, and one claim, sent as one `commit`, `renew` or `exchange`. Nobody waits for others to come: a lone
//! caller is served at once. A caller is answered when its group is. What has a place in a group is
//! sent, whether or not its caller still waits; what waits for room when its caller goes away is
//! not.
//!
//! Where several may be in flight, `pace.rs` finds out whether one at a time answers more callers. One that takes
//! long keeps nobody from going beside it.
//!
//! The port takes one claim a call, so claims cannot be merged with each other, and as many store
//! calls as there are claims are needed anyway. The rest can ride on them. Hence:
//!
//! - A claim takes the place in the next group if one is waiting and its place is free. That saves
//!   a store call and waits for the group in flight at most. Otherwise it goes at once, by itself,
//!   beside whatever is in flight. It never opens a group, so nobody waits for it either.
//! - An exchange that claims or renews, and a renewal, join the next group or open it; if they do
//!   not fit, they go at once as they are. So whatever selects, once it has room, waits for one
//!   group at most, however long the queue is, and workers that settle and claim at the same time
//!   do not take turns.
//! - Commits alone join the first group with room, or open one at the end of the queue.
//!
//! Memory is bounded: a call with commits takes room for itself and for its bytes before it is
//! placed, and gives it back when it is answered. Without room, its caller waits. A claim or a
//! renewal alone needs none, so that no lease is lost behind a full queue: it is in the next group,
//! which takes only so many, or with its caller.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `plimsoll_engine_group_calls` | histogram: callers that shared a store call | `method` |
//!
//! A store that merges by itself, as SQLite does, does not need this.

mod group;
mod pace;
mod store;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{Either, select};
use plimsoll_core::clock::{Clock, Sleep, SystemClock};
use plimsoll_core::store::{Exchange, Exchanged};
use plimsoll_core::{Error, Result, Store};
use tokio::sync::{Semaphore, oneshot};

use self::group::{Call, Group, Room, Verb, send};
use self::pace::{PATIENCE, Pace};
use crate::answer::unheard;
use crate::spawn::Spawner;

/// Puts group commit in front of a store. Must be called inside a runtime: what is merged is sent
/// by a task of its own there.
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
pub fn group_commit(store: Arc<dyn Store>) -> GroupCommit {
    GroupCommit::new(store, Bounds::default(), Arc::new(SystemClock::new()))
}

/// How much may be in the queue and in flight together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Calls with commits.
    pub calls_max: u32,
    /// About how many bytes they carry. A call that is larger goes when there is no other.
    pub bytes_max: u32,
    /// How many groups may be in flight at the same time: more than one where the store works on
    /// several at once. One at a time is tried now and then, and kept while it answers more callers.
    pub in_flight_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            calls_max: 4_096,
            bytes_max: 64 * 1024 * 1024,
            in_flight_max: 1,
        }
    }
}

/// A store that merges what concurrent callers ask of another. Clones share the queue.
#[derive(Clone, Debug)]
pub struct GroupCommit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    queue: Mutex<Queue>,
    bounds: Bounds,
    clock: Arc<dyn Clock>,
    calls: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    spawner: Spawner,
}

#[derive(Debug)]
struct Queue {
    /// What is to be sent, the next group first.
    groups: VecDeque<Group>,
    /// How many tasks are there that send them, and how many of them wait for an answer that is overdue.
    drivers: usize,
    overdue: usize,
    pace: Pace,
}

impl Queue {
    /// How many may be in flight.
    fn allowed(&self) -> usize {
        self.pace.allowed(self.overdue)
    }
}

impl GroupCommit {
    /// Group commit within these bounds. The clock tells how fast groups are answered. Must be called inside a
    /// runtime, one in which the clock can sleep if several groups may be in flight.
    pub fn new(store: Arc<dyn Store>, bounds: Bounds, clock: Arc<dyn Clock>) -> Self {
        let bounds = Bounds {
            calls_max: bounds.calls_max.max(1),
            bytes_max: bounds.bytes_max.max(1),
            in_flight_max: bounds.in_flight_max.max(1),
        };
        let queue = Queue {
            groups: VecDeque::new(),
            drivers: 0,
            overdue: 0,
            pace: Pace::new(bounds.in_flight_max),
        };
        let shared = Shared {
            store,
            queue: Mutex::new(queue),
            bounds,
            clock,
            calls: semaphore(bounds.calls_max),
            bytes: semaphore(bounds.bytes_max),
            spawner: Spawner::current(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    async fn call(&self, verb: Verb, exchange: Exchange) -> Result<Exchanged> {
        let (reply, answer) = oneshot::channel();
        let mut call = Call::new(verb, exchange, reply);
        if !call.exchange.commits.is_empty() {
            call.room = Some(self.shared.room(call.bytes).await?);
        }
        if let Err(call) = self.place(call) {
            return send(self.shared.store.as_ref(), call.verb, call.exchange, 1).await;
        }
        // Every call with a place is answered, unless the task that sends it ends early.
        answer.await.unwrap_or_else(|_| Err(unheard()))
    }

    /// Gives a call a place in a group, or hands it back to go by itself.
    fn place(&self, call: Box<Call>) -> Result<(), Box<Call>> {
        let limits = self.shared.store.limits();
        let mut queue = self.shared.queue();
        // Commits can wait for any group; what selects takes the next one or none.
        let within_reach = if call.selects() { 1 } else { usize::MAX };
        let mut groups = queue.groups.iter_mut().take(within_reach);
        if let Some(group) = groups.find(|group| group.has_room_for(&call, limits)) {
            group.add(*call);
            return Ok(());
        }
        if call.only_claims() || (call.selects() && !queue.groups.is_empty()) {
            return Err(call);
        }
        queue.groups.push_back(Group::of(*call));
        if queue.drivers == 0 && queue.pace.has_a_choice() {
            queue.pace.sent_alone(self.shared.clock.monotonic());
        }
        self.shared.drive(queue);
        Ok(())
    }
}

impl Shared {
    async fn room(&self, bytes: usize) -> Result<Room> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes = bytes.min(self.bounds.bytes_max);
        // The semaphores are never closed.
        let closed = |_| Error::Closed;
        Ok(Room {
            _call: (self.calls.clone().acquire_owned().await).map_err(closed)?,
            _bytes: (self.bytes.clone().acquire_many_owned(bytes).await).map_err(closed)?,
        })
    }

    /// Sends what waits, if more may be in flight.
    fn drive(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        if !queue.groups.is_empty() && queue.drivers < queue.allowed() {
            queue.drivers += 1;
            drop(queue);
            let driver = Driver {
                shared: self.clone(),
                done: false,
                overdue: false,
            };
            self.spawner.spawn(driver.run());
        }
    }

    /// Ends when a group has taken long, if that matters.
    fn patience(&self) -> Option<Sleep> {
        let matters = self.queue().pace.has_a_choice();
        matters.then(|| self.clock.sleep(PATIENCE))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends one group after another, until the queue is empty or others are enough.
struct Driver {
    shared: Arc<Shared>,
    done: bool,
    /// Whether the answer that it waits for is overdue.
    overdue: bool,
}

impl Driver {
    async fn run(mut self) {
        let shared = self.shared.clone();
        while let Some(group) = self.next() {
            let sending = pin!(group.send(shared.store.as_ref()));
            let callers = match shared.patience() {
                None => sending.await,
                Some(patience) => match select(sending, patience).await {
                    Either::Left((callers, _)) => callers,
                    Either::Right(((), sending)) => {
                        self.make_room();
                        sending.await
                    }
                },
            };
            self.answered(callers);
            // Whoever was answered may call again. Taking them in makes one group of two that
            // would take turns.
            tokio::task::yield_now().await;
        }
    }

    /// Lets others go beside a group whose answer is overdue.
    fn make_room(&mut self) {
        let mut queue = self.shared.queue();
        self.overdue = true;
        queue.overdue += 1;
        self.shared.drive(queue);
    }

    /// Takes note of a group that was answered.
    fn answered(&mut self, callers: usize) {
        let mut queue = self.shared.queue();
        queue.overdue -= usize::from(std::mem::take(&mut self.overdue));
        if queue.pace.has_a_choice() {
            let now = self.shared.clock.monotonic();
            queue.pace.answered(now, callers);
        }
    }

    fn next(&mut self) -> Option<Group> {
        let mut queue = self.shared.queue();
        // Whoever is one too many leaves the rest to the others.
        let next = match queue.drivers <= queue.allowed() {
            true => queue.groups.pop_front(),
            false => None,
        };
        self.done = next.is_none();
        queue.drivers -= usize::from(self.done);
        next
    }
}

impl Drop for Driver {
    /// If the runtime ends or the store panics, whoever waits must hear of it, and the next caller
    /// must find a queue that can be driven again.
    fn drop(&mut self) {
        if !self.done {
            let mut queue = self.shared.queue();
            queue.drivers -= 1;
            queue.overdue -= usize::from(self.overdue);
            let abandoned = std::mem::take(&mut queue.groups);
            drop(queue);
            drop(abandoned);
        }
    }
}

fn semaphore(permits: u32) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits as usize))
}
