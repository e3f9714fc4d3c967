//! Claims of workers that have nothing to do, left for whoever in this process submits next.
//!
//! The store then makes the task and gives it out in one call: one round trip and one fsync less
//! until its handler begins. A claim that was left is called back, or it is carried: never both, for
//! it would take tasks that nobody knows of.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::store::{
    Claim, Claimed, Commit, Ending, Exchange, Pick, Receipt, Settle, Write,
};
use plimsoll_core::task::{Due, Lane};
use plimsoll_core::{Result, Store};
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

use crate::Engine;
use crate::answer::{unanswered, unheard};
use crate::spawn::Spawner;

/// Where claims are left.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    claims: Vec<LeftClaim>,
    /// How many have been left so far.
    count: u64,
}

/// A claim that goes with the next call.
#[derive(Debug)]
struct LeftClaim {
    number: u64,
    claim: Claim,
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
    /// Leaves a claim.
    pub(crate) fn leave(self: &Arc<Self>, claim: Claim) -> Ticket {
        let (reply, answer) = oneshot::channel();
        let mut shelf = self.shelf();
        shelf.count += 1;
        let number = shelf.count;
        shelf.claims.push(LeftClaim {
            number,
            claim,
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
        let mut shelf = self.shelf();
        if shelf.claims.is_empty() {
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
        let place = (shelf.claims.iter())
            .position(|left| lanes.iter().any(|lane| wanted(&left.claim, lane)))?;
        Some(shelf.claims.remove(place))
    }

    /// Takes a claim back. Whether it was still there.
    fn call_back(&self, number: u64) -> bool {
        let mut shelf = self.shelf();
        let place = shelf.claims.iter().position(|left| left.number == number);
        place.map(|place| shelf.claims.remove(place)).is_some()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Sends it behind a commit. The call goes on if whoever submits does not wait for it: the worker
    /// does. It runs where the submitter does, whose answer must not depend on the worker's runtime.
    async fn carry(self, engine: &Engine, commit: Commit, spawner: Spawner) -> Result<Receipt> {
        let (store, clock) = (engine.store().clone(), engine.clock().clone());
        let (receipt, received) = oneshot::channel();
        let exchange = Exchange {
            commits: vec![commit],
            renew: None,
            claim: Some(self.claim),
        };
        let reply = self.reply;
        let call = async move {
            let sent = clock.monotonic();
            let (commit, claimed) = match store.exchange(exchange).await {
                Ok(mut exchanged) => (
                    exchanged.commits.pop().unwrap_or_else(|| Err(unanswered())),
                    exchanged.claimed.unwrap_or_else(|| Err(unanswered())),
                ),
                Err(error) => (Err(error.clone()), Err(error)),
            };
            // Whoever submits may have gone away, and so may the worker: then nobody knows of what it has
            // claimed.
            receipt.send(commit).ok();
            if let Err(Carried { claimed, .. }) = reply.send(Carried { sent, claimed }) {
                give_back(store.as_ref(), claimed).await;
            }
        };
        spawner.spawn(call.instrument(Span::current()));
        received.await.unwrap_or_else(|_| Err(unheard()))
    }
}

/// Gives tasks back that nobody will work on. What the store does not take comes back with its lease.
async fn give_back(store: &dyn Store, claimed: Result<Claimed>) {
    let holders = claimed.into_iter().flat_map(|claimed| claimed.tasks);
    let releases = (holders.filter_map(|task| task.holder())).map(|holder| {
        let how = Ending::Release { reason: None };
        Commit::of(Write::Settle(Settle { holder, how }))
    });
    let releases: Vec<Commit> = releases.collect();
    if !releases.is_empty() {
        store.commit(releases).await;
    }
}

impl Engine {
    /// Makes a commit, and carries the claim of a worker that waits for what it submits. Outside a
    /// runtime there is nobody who could go on with the call: then the worker is woken as usual.
    pub(crate) async fn commit_carrying(&self, commit: Commit) -> Result<Receipt> {
        let spawner = Spawner::try_current();
        let carrying = spawner.and_then(|spawner| Some((self.handover().take(&commit)?, spawner)));
        match carrying {
            Some((claim, spawner)) => claim.carry(self, commit, spawner).await,
            None => {
                let mut receipts = self.store().commit(vec![commit]).await;
                receipts.pop().unwrap_or_else(|| Err(unanswered()))
            }
        }
    }
}
