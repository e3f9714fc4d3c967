//! Claims of workers that have nothing to do, left for whoever in this process submits next.
//!
//! The store then makes the task and gives it out in one call: one round trip and one fsync less
//! until its handler begins. A claim that was left is called back, or it is carried: never both, for
//! it would take tasks that nobody knows of.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::store::{Claim, Claimed, Commit, Exchange, Pick, Receipt, Write};
use plimsoll_core::task::{Due, Lane};
use plimsoll_core::{Error, Result};
use tokio::sync::oneshot;

use crate::Engine;
use crate::answer::unanswered;
use crate::spawn::Spawner;

/// Where claims are left.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    claims: Vec<LeftClaim>,
    /// How many have been left so far.
    count: u64,
}

/// A claim that goes with the next call.
struct LeftClaim {
    number: u64,
    claim: Claim,
    /// The runtime of its worker.
    spawner: Spawner,
    reply: oneshot::Sender<Carried>,
}

/// What became of a claim that was carried.
#[derive(Debug)]
pub(crate) struct Carried {
    /// When it was sent.
    pub(crate) sent: Duration,
    pub(crate) claimed: Result<Claimed>,
}

/// A claim that was left. Dropping it calls it back.
#[derive(Debug)]
pub(crate) struct Ticket {
    handover: Arc<Handover>,
    number: u64,
    answer: oneshot::Receiver<Carried>,
}

impl Handover {
    /// Leaves a claim. Must be called inside a runtime.
    pub(crate) fn leave(self: &Arc<Self>, claim: Claim) -> Ticket {
        let (reply, answer) = oneshot::channel();
        let mut left = self.left();
        left.count += 1;
        let number = left.count;
        left.claims.push(LeftClaim {
            number,
            claim,
            spawner: Spawner::current(),
            reply,
        });
        Ticket {
            handover: self.clone(),
            number,
            answer,
        }
    }

    /// The claim that has been left for the longest among those that a commit may have something for.
    fn take(&self, commit: &Commit) -> Option<LeftClaim> {
        let mut left = self.left();
        if left.claims.is_empty() {
            return None;
        }
        let wanted = |claim: &Claim, lane: &Lane| match &claim.pick {
            Pick::Next { lanes, .. } => lanes.contains(lane),
            Pick::Ids(_) => false,
        };
        let now = |write: &Write| match write {
            Write::Submit(task) if task.due == Due::Now => Some(task.lane.clone()),
            _ => None,
        };
        let lanes: Vec<Lane> = commit.writes.iter().filter_map(now).collect();
        let place = (left.claims.iter())
            .position(|left| lanes.iter().any(|lane| wanted(&left.claim, lane)))?;
        Some(left.claims.remove(place))
    }

    /// Takes a claim back. Whether it was still there.
    fn call_back(&self, number: u64) -> bool {
        let mut left = self.left();
        let place = left.claims.iter().position(|left| left.number == number);
        place.map(|place| left.claims.remove(place)).is_some()
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Calls the claim back. `false`: it is under way, and will be answered.
    pub(crate) fn call_back(&self) -> bool {
        self.handover.call_back(self.number)
    }

    /// Waits until it was carried.
    pub(crate) async fn carried(&mut self) -> Option<Carried> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.call_back();
    }
}

impl LeftClaim {
    /// Sends it behind a commit. The call goes on if whoever submits does not wait for it.
    async fn carry(self, engine: &Engine, commit: Commit) -> Result<Receipt> {
        let (store, clock) = (engine.store().clone(), engine.clock().clone());
        let (receipt, received) = oneshot::channel();
        let exchange = Exchange {
            commits: vec![commit],
            renew: None,
            claim: Some(self.claim),
        };
        let reply = self.reply;
        self.spawner.spawn(async move {
            let sent = clock.monotonic();
            let (commit, claimed) = match store.exchange(exchange).await {
                Ok(mut exchanged) => (
                    exchanged.commits.pop().unwrap_or_else(|| Err(unanswered())),
                    exchanged.claimed.unwrap_or_else(|| Err(unanswered())),
                ),
                Err(error) => (Err(error.clone()), Err(error)),
            };
            // Either may have gone away. What a worker has claimed then comes back with its lease.
            reply.send(Carried { sent, claimed }).ok();
            receipt.send(commit).ok();
        });
        received.await.unwrap_or_else(|_| Err(unheard()))
    }
}

impl fmt::Debug for LeftClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeftClaim").field(&self.claim).finish()
    }
}

impl Engine {
    /// Makes a commit, and carries the claim of a worker that waits for what it submits.
    pub(crate) async fn commit_carrying(&self, commit: Commit) -> Result<Receipt> {
        match self.handover().take(&commit) {
            Some(claim) => claim.carry(self, commit).await,
            None => {
                let mut receipts = self.store().commit(vec![commit]).await;
                receipts.pop().unwrap_or_else(|| Err(unanswered()))
            }
        }
    }
}

/// The call ended without an answer.
pub(crate) fn unheard() -> Error {
    Error::Unavailable(Unavailable {
        applied: Applied::Unknown,
        cause: "the runtime ended while the call was under way".into(),
    })
}
