//! When to ask the store for tasks, and for which.

use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::store::{Claim, Claimed, Pick};
use plimsoll_core::task::Lane;
use plimsoll_core::{Error, Timestamp};

use super::desk::Desk;
use super::driver::Parts;
use crate::handover::Ticket;

/// A claim that goes with the next task that somebody in this process submits.
#[derive(Debug)]
pub(super) struct LeftClaim {
    open: Open,
    pub(super) ticket: Ticket,
}

/// A claim that has no answer yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) claim: Claim,
    /// When it was sent first.
    pub(super) sent: Duration,
    /// Whether it is on its way.
    under_way: bool,
    /// Whether the store may have answered it. Then it must be repeated as it is, or what it took
    /// would be lost.
    doubtful: bool,
    /// Whether somebody asked to stop a task meanwhile: perhaps one that this claim took.
    pub(super) lease_hint: bool,
    /// Whether something hinted at tasks meanwhile: perhaps after the store has looked.
    woken: bool,
}

impl Open {
    fn new(claim: Claim, sent: Duration) -> Self {
        Self {
            claim,
            sent,
            under_way: false,
            doubtful: false,
            lease_hint: false,
            woken: false,
        }
    }
}

/// When to ask the store for tasks. A *round* asks for every lane once; a claim names as many lanes
/// as the store allows, which is most often all of them.
#[derive(Debug)]
pub(super) struct Claims {
    /// Whether there may be tasks to claim.
    hungry: bool,
    /// When to look even if nothing hints at anything.
    pub(super) look_at: Duration,
    /// Which claim this is, and how many in a row found less than they asked for.
    turn: usize,
    short: usize,
    pub(super) open: Option<Open>,
    /// One that is made when nothing is to be had, and not sent.
    pub(super) left: Option<LeftClaim>,
}

impl Claims {
    pub(super) fn new() -> Self {
        Self {
            hungry: true,
            look_at: Duration::ZERO,
            turn: 0,
            short: 0,
            open: None,
            left: None,
        }
    }

    /// There may be tasks again.
    pub(super) fn wake(&mut self) {
        self.hungry = true;
        self.short = 0;
        if let Some(open) = &mut self.open {
            open.woken = true;
        }
    }

    /// Whether there is nothing to be had and nothing on its way.
    pub(super) fn is_done(&self) -> bool {
        !self.hungry && self.open.is_none()
    }

    /// Somebody asked to stop a task: perhaps one that is being claimed.
    pub(super) fn hear_of_leases(&mut self) {
        let left = self.left.as_mut().map(|left| &mut left.open);
        for open in self.open.iter_mut().chain(left) {
            open.lease_hint = true;
        }
    }

    /// Whether it is time to ask.
    pub(super) fn is_time(&self, now: Duration) -> bool {
        self.hungry || now >= self.look_at
    }

    /// Leaves a claim for whoever submits next, if nothing is to be had now.
    pub(super) fn leave(&mut self, parts: &Parts, desk: &Desk, now: Duration) {
        if self.left.is_none()
            && self.is_done()
            && let Some(claim) = self.next(parts, desk, now)
        {
            let ticket = parts.engine.handover().leave(claim.clone());
            let open = Open::new(claim, now);
            self.left = Some(LeftClaim { open, ticket });
        }
    }

    /// Calls the claim that was left back. `false`: it is under way.
    pub(super) fn call_back(&mut self) -> bool {
        let called = |left: &mut LeftClaim| left.ticket.call_back();
        self.left.take_if(called).is_some()
    }

    /// The claim that was left was sent: from now on it is like any other.
    pub(super) fn carried(&mut self, sent: Option<Duration>) {
        self.open = self.left.take().map(|left| Open {
            sent: sent.unwrap_or(left.open.sent),
            woken: self.hungry,
            ..left.open
        });
    }

    /// The claim that is to be sent now, if there is one.
    pub(super) fn send(&mut self) -> Option<Claim> {
        let open = self.open.as_mut().filter(|open| !open.under_way)?;
        open.under_way = true;
        Some(open.claim.clone())
    }

    /// Opens a claim, if there is none, and there is something to ask for.
    pub(super) fn open(&mut self, parts: &Parts, desk: &Desk, now: Duration) {
        if self.open.is_some() {
            return;
        }
        if !self.hungry && now >= self.look_at {
            self.wake();
        }
        if self.hungry
            && let Some(claim) = self.next(parts, desk, now)
        {
            self.open = Some(Open::new(claim, now));
        }
    }

    fn next(&mut self, parts: &Parts, desk: &Desk, now: Duration) -> Option<Claim> {
        if parts.lanes.is_empty() {
            // A worker that takes any kind has not heard of one yet.
            self.hungry = false;
            self.look_at = now + until_next_look(None, parts);
            return None;
        }
        let limits = parts.engine.store().limits();
        let room = desk.room(&parts.settings, now).min(limits.page_max);
        if room == 0 {
            return None;
        }
        let pages: Vec<&[Lane]> = parts.lanes.chunks(limits.lanes_max).collect();
        for _ in 0..turns(parts) {
            let (page, round) = (self.turn % pages.len(), self.turn / pages.len());
            let (lanes, limit) = desk.ask(pages[page], &parts.limits, room, round);
            if !lanes.is_empty() {
                return Some(Claim {
                    pick: Pick::Next { lanes, limit },
                    worker: parts.id.clone(),
                    lease: parts.settings.lease,
                    request: parts.engine.ids().request(),
                });
            }
            // Every kind of the page is at its limit: something has to end first.
            self.turn += 1;
        }
        None
    }

    /// The call that carried the claim failed.
    pub(super) fn failed(&mut self, error: &Error) {
        let untouched = matches!(
            error,
            Error::Unavailable(Unavailable {
                applied: Applied::No,
                ..
            })
        );
        if let Some(open) = &mut self.open {
            open.doubtful |= !untouched;
            open.under_way = false;
        }
        // A claim that never happened is made anew: what it asked for may be out of date.
        self.open.take_if(|open| !open.doubtful);
    }

    /// The claim was answered.
    pub(super) fn answered(
        &mut self,
        claimed: &Claimed,
        parts: &Parts,
        now: Duration,
    ) -> Option<Open> {
        let open = self.open.take()?;
        let asked = match &open.claim.pick {
            Pick::Next { limit, .. } => *limit,
            Pick::Ids(ids) => ids.len(),
        };
        self.turn = self.turn.wrapping_add(1);
        if claimed.tasks.len() >= asked || open.woken {
            self.hungry = true;
            self.short = 0;
            return Some(open);
        }
        self.short += 1;
        if self.short >= turns(parts) {
            self.hungry = false;
            self.look_at = now + until_next_look(claimed.next_due, parts);
        }
        Some(open)
    }
}

/// How many claims in a row must find too little before there is nothing to be had.
fn turns(parts: &Parts) -> usize {
    let pages = (parts.lanes.len()).div_ceil(parts.engine.store().limits().lanes_max);
    let rounds = if parts.limits.is_empty() { 1 } else { 2 };
    pages.max(1) * rounds
}

/// Whoever promotes what is due hints at it. Where hints of others do not get here, the next task
/// is looked for when it is due; if that has passed, it is about to be promoted.
fn until_next_look(next_due: Option<Timestamp>, parts: &Parts) -> Duration {
    let hinted = parts.engine.store().capabilities().remote_wakeups;
    let poll = parts.settings.idle_poll(hinted);
    match next_due {
        Some(due) if !hinted => {
            let wait = due.since(parts.engine.clock().now());
            wait.clamp(parts.settings.poll / 4, poll)
        }
        Some(_) | None => poll,
    }
}
