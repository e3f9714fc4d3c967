//! The loop of a worker: claims, starts handlers, settles, renews, drains.
//!
//! Everything happens in one future that owns all it needs: dropping it is what a crash would be.
//! At most one exchange (answers out, new tasks in) and one renewal are under way at a time; while
//! they are, answers collect, so that a busy worker batches by itself and an idle one waits for
//! nothing. What fails because the store is away is repeated as it was until it is answered.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::clock::Sleep;
use plimsoll_core::store::{
    Claim, Claimed, Ending, Exchange, Exchanged, Outcome, Pick, Receipt, Renew, Renewal, Write,
};
use plimsoll_core::task::{Holder, Lane, Worker as WorkerId};
use plimsoll_core::wake::Wake;
use plimsoll_core::{Error, Name, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::builder::Backoff;
use super::context::{Cause, Context, Signal};
use super::desk::{Attempt, Desk, Hold};
use super::settings::Settings;
use super::settle::{Ended, Settling, instead, release, settle};
use super::stats::{Stats, Summary};
use super::{Answer, HandlerService, States, Stop};
use crate::Engine;
use crate::spawn::spawn_into;

/// What a worker is made of.
pub(super) struct Parts {
    pub(super) engine: Engine,
    pub(super) id: WorkerId,
    pub(super) settings: Settings,
    pub(super) lanes: Vec<Lane>,
    pub(super) services: BTreeMap<Name, HandlerService>,
    /// How many of a kind may be held at the same time.
    pub(super) limits: BTreeMap<Name, usize>,
    pub(super) backoffs: BTreeMap<Name, Backoff>,
    pub(super) states: Arc<States>,
    pub(super) stats: Stats,
}

type Flight<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An exchange under way, and what it carries.
struct Sent {
    settling: Vec<Settling>,
    answer: Flight<Result<Exchanged>>,
}

/// A renewal under way.
struct Renewing {
    holders: Vec<Holder>,
    at: Duration,
    answer: Flight<Result<Vec<Renewal>>>,
}

pub(super) struct Driver {
    parts: Parts,
    desk: Desk,
    handlers: JoinSet<(Attempt, Ended)>,
    sent: Option<Sent>,
    renewing: Option<Renewing>,
    /// A claim that was sent first at this moment and has no answer yet. It is repeated as it is,
    /// or what it took would be lost.
    claiming: Option<(Claim, Duration)>,
    /// Whether there may be tasks to claim.
    hungry: bool,
    look_at: Duration,
    /// Which claim this is, and how many in a row found less than they asked for.
    turn: usize,
    short: usize,
    /// Nothing is sent before this, because the store is away.
    pause_until: Duration,
    troubles: u32,
    drain: Option<Drain>,
    until_empty: bool,
    /// Why the worker cannot go on.
    fatal: Option<Error>,
}

/// A worker that is about to end.
#[derive(Clone, Copy)]
struct Drain {
    soft_at: Duration,
    hard_at: Duration,
    /// When it ends even if the store did not take everything back: leases have run out by then.
    give_up_at: Duration,
    signalled: bool,
    cut: bool,
}

/// How many answers travel together at most.
const SETTLES_MAX: usize = 1_000;
const TROUBLE_FIRST: Duration = Duration::from_millis(50);
const TROUBLE_MAX: Duration = Duration::from_secs(5);

impl Driver {
    pub(super) fn new(parts: Parts, until_empty: bool) -> Self {
        Self {
            parts,
            desk: Desk::default(),
            handlers: JoinSet::new(),
            sent: None,
            renewing: None,
            claiming: None,
            hungry: true,
            look_at: Duration::ZERO,
            turn: 0,
            short: 0,
            pause_until: Duration::ZERO,
            troubles: 0,
            drain: None,
            until_empty,
            fatal: None,
        }
    }

    pub(super) async fn run(mut self, mut stop: watch::Receiver<Stop>) -> Result<Summary> {
        let (store, clock) = (
            self.parts.engine.store().clone(),
            self.parts.engine.clock().clone(),
        );
        let mut hints = store.wakeups();
        let mut timer: Option<(Duration, Sleep)> = None;
        loop {
            let now = clock.monotonic();
            self.woken(&hints.take(), now);
            self.obey(*stop.borrow_and_update(), now);
            self.act(now);
            if self.is_over(now) {
                break;
            }
            let next = self.next_event(now);
            // A sleep is kept as long as it ends early enough: making one is not free.
            if timer
                .as_ref()
                .is_none_or(|(at, _)| next < *at || *at <= now)
            {
                timer = Some((next, clock.sleep(next.saturating_sub(now))));
            }
            let sleep = timer.as_mut().map(|(_, sleep)| sleep);
            tokio::select! {
                biased;
                Ok(()) = stop.changed() => {}
                answer = flight(self.sent.as_mut().map(|sent| &mut sent.answer)) => {
                    self.exchanged(answer, clock.monotonic());
                }
                answer = flight(self.renewing.as_mut().map(|renewing| &mut renewing.answer)) => {
                    self.renewed(answer, clock.monotonic());
                }
                Some(ended) = self.handlers.join_next() => {
                    let mut ended = Some(ended);
                    while let Some(result) = ended {
                        if let Ok((attempt, how)) = result {
                            self.ended(attempt, how, clock.monotonic());
                        }
                        ended = self.handlers.try_join_next();
                    }
                }
                wake = hints.next() => self.woken(&wake, clock.monotonic()),
                () = flight(sleep) => timer = None,
            }
        }
        match self.fatal {
            Some(error) => Err(error),
            None => Ok(self.parts.stats.summary()),
        }
    }

    /// Follows what it was told: to drain, or to stop at once.
    fn obey(&mut self, stop: Stop, now: Duration) {
        let settings = &self.parts.settings;
        if stop != Stop::Go && self.drain.is_none() {
            let soft_at = now + settings.drain_soft;
            let hard_at = soft_at + settings.drain_hard;
            self.drain = Some(Drain {
                soft_at,
                hard_at,
                give_up_at: hard_at + settings.lease,
                signalled: false,
                cut: false,
            });
        }
        if stop == Stop::Now
            && let Some(drain) = &mut self.drain
            && drain.hard_at > now
        {
            drain.soft_at = now;
            drain.hard_at = now;
            drain.give_up_at = now + settings.lease;
        }
        let Some(drain) = &mut self.drain else { return };
        if now >= drain.soft_at && !drain.signalled {
            drain.signalled = true;
            self.desk.stop_all(&Cause::Draining);
        }
        if now >= drain.hard_at && !drain.cut {
            drain.cut = true;
            self.desk.cut_all();
        }
    }

    /// Does everything that can be done now without waiting.
    fn act(&mut self, now: Duration) {
        self.desk.check(&self.parts.settings, now);
        let back = self.desk.give_back(self.drain.is_some(), now);
        let back = back.iter().map(|hold| release(&hold.holder, None));
        self.desk.outbox.extend(back);
        while let Some(hold) = self.desk.next_to_start(&self.parts.settings) {
            self.start(hold, now);
        }
        self.parts.stats.running(self.desk.running.len());
        if now >= self.pause_until {
            self.send(now);
            self.renew(now);
        }
    }

    fn start(&mut self, hold: Hold, now: Duration) {
        let attempt = hold.attempt();
        let Some(service) = self.parts.services.get(&hold.task.spec.lane.kind).cloned() else {
            // Only kinds with a handler are claimed.
            self.desk.outbox.push_back(release(&hold.holder, None));
            return;
        };
        let (signal, mut heard) = watch::channel(Signal::Go);
        let context = Context::new(
            self.parts.engine.clone(),
            hold.task.clone(),
            hold.holder.clone(),
            hold.trust.clone(),
            self.parts.states.clone(),
            heard.clone(),
        );
        self.desk.started(hold, signal, now, &self.parts.settings);
        self.parts.stats.count(|counters| &counters.started);
        let work = async move {
            let answer = AssertUnwindSafe(service.oneshot(context)).catch_unwind();
            let ended = tokio::select! {
                biased;
                answer = answer => match answer {
                    Ok(Ok(answer)) => Ended::Answered(answer),
                    Ok(Err(never)) => match never {},
                    Err(panic) => Ended::Panicked(words(panic.as_ref())),
                },
                _ = heard.wait_for(|signal| *signal == Signal::Cut) => Ended::Cut,
            };
            (attempt, ended)
        };
        spawn_into(&mut self.handlers, work);
    }

    fn ended(&mut self, attempt: Attempt, mut ended: Ended, now: Duration) {
        let Some(running) = self.desk.ended(attempt, now) else {
            return;
        };
        if matches!(ended, Ended::Cut) {
            self.parts.stats.count(|counters| &counters.cut);
            if running.lost {
                // There is nothing to give back.
                self.parts.stats.count(|counters| &counters.refused);
                return;
            }
        }
        if let Ended::Answered(Answer::Fail(failure)) = &mut ended
            && let Some(backoff) = self.parts.backoffs.get(&running.hold.task.spec.lane.kind)
        {
            backoff.apply(&running.hold.task, failure);
        }
        let ids = self.parts.engine.ids();
        let settling = settle(&running.hold.holder, ended, running.cause.as_ref(), ids);
        self.desk.outbox.push_back(settling);
    }

    /// Sends answers out and asks for tasks, if there is anything to send or to ask.
    fn send(&mut self, now: Duration) {
        if self.sent.is_some() {
            return;
        }
        if self.claiming.is_none() {
            self.claiming = self.next_claim(now).map(|claim| (claim, now));
        }
        if self.claiming.is_none() && self.desk.outbox.is_empty() {
            return;
        }
        let settling = self.take_settling();
        let store = self.parts.engine.store().clone();
        let exchange = Exchange {
            commits: settling.iter().map(|one| one.commit.clone()).collect(),
            renew: None,
            claim: self.claiming.as_ref().map(|(claim, _)| claim.clone()),
        };
        self.sent = Some(Sent {
            settling,
            answer: Box::pin(async move { store.exchange(exchange).await }),
        });
    }

    /// Answers to send, as many as one call may carry.
    fn take_settling(&mut self) -> Vec<Settling> {
        let bytes_max = self.parts.engine.store().limits().call_bytes_max;
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(next) = self.desk.outbox.front() {
            bytes += next.commit.size();
            if taken.len() == SETTLES_MAX || (bytes > bytes_max && !taken.is_empty()) {
                break;
            }
            taken.extend(self.desk.outbox.pop_front());
        }
        taken
    }

    fn next_claim(&mut self, now: Duration) -> Option<Claim> {
        if self.drain.is_some() || !(self.hungry || now >= self.look_at) {
            return None;
        }
        let limits = self.parts.engine.store().limits();
        let room = self
            .desk
            .room(&self.parts.settings, now)
            .min(limits.page_max);
        if room == 0 {
            return None;
        }
        let pages: Vec<&[Lane]> = self.parts.lanes.chunks(limits.lanes_max).collect();
        for _ in 0..self.turns() {
            let page = pages[self.turn / 2 % pages.len()];
            let (lanes, limit) = (self.desk).ask(page, &self.parts.limits, room, self.turn);
            if !lanes.is_empty() {
                return Some(Claim {
                    pick: Pick::Next { lanes, limit },
                    worker: self.parts.id.clone(),
                    lease: self.parts.settings.lease,
                    request: self.parts.engine.ids().request(),
                });
            }
            // Every kind of the page is at its limit: something has to end first.
            self.turn += 1;
        }
        None
    }

    /// How many claims in a row must find too little before there is nothing to be had.
    fn turns(&self) -> usize {
        let pages = (self.parts.lanes.len())
            .div_ceil(self.parts.engine.store().limits().lanes_max)
            .max(1);
        if self.parts.limits.is_empty() && pages == 1 {
            1
        } else {
            2 * pages
        }
    }

    fn exchanged(&mut self, answer: Result<Exchanged>, now: Duration) {
        let Some(sent) = self.sent.take() else { return };
        let exchanged = match answer {
            Ok(exchanged) => exchanged,
            Err(error) => {
                for settling in sent.settling.into_iter().rev() {
                    self.desk.outbox.push_front(settling);
                }
                return self.trouble(error, now);
            }
        };
        let mut trouble = None;
        for (settling, answer) in sent.settling.into_iter().zip(exchanged.commits) {
            match answer {
                Ok(receipt) => self.settled(&settling, &receipt),
                Err(error) if error.is_transient() => {
                    self.desk.outbox.push_front(settling);
                    trouble = Some(error);
                }
                Err(error) => self.refused(settling, &error),
            }
        }
        match exchanged.claimed {
            None => {}
            Some(Ok(claimed)) => self.claimed(claimed, now),
            Some(Err(error)) => trouble = Some(error),
        }
        match trouble {
            Some(error) => self.trouble(error, now),
            None => self.troubles = 0,
        }
    }

    /// The store is away, or will not have it.
    fn trouble(&mut self, error: Error, now: Duration) {
        match error {
            Error::Unavailable(_) | Error::Corrupt(_) => {
                let pause = TROUBLE_FIRST * 2_u32.pow(self.troubles.min(7));
                self.troubles += 1;
                let jitter = self.parts.engine.ids().jitter().fraction();
                self.pause_until = now + pause.min(TROUBLE_MAX).mul_f64(1.0 - jitter / 2.0);
                tracing::warn!(%error, "the store is in trouble: trying again");
            }
            Error::Invalid(_)
            | Error::NotFound(_)
            | Error::Conflict(_)
            | Error::LeaseLost(_)
            | Error::Unsupported(_)
            | Error::Closed => {
                tracing::error!(%error, "the worker cannot go on");
                self.claiming = None;
                self.fatal = Some(error);
            }
        }
    }

    fn settled(&mut self, settling: &Settling, receipt: &Receipt) {
        let released = matches!(
            settling.commit.writes.first(),
            Some(Write::Settle(settle)) if matches!(settle.how, Ending::Release { .. })
        );
        if let Some(Outcome::Settled { status, .. } | Outcome::Changed { status, .. }) =
            receipt.outcomes.first()
        {
            self.parts.stats.settled(*status, released);
        }
    }

    fn refused(&mut self, settling: Settling, error: &Error) {
        let task = settling.holder.task;
        match instead(settling, error, self.parts.engine.ids()) {
            Some(settling) => {
                tracing::warn!(%task, %error, "an answer was refused: the task fails");
                self.desk.outbox.push_back(settling);
            }
            None => {
                tracing::warn!(%task, %error, "an answer was refused");
                self.parts.stats.count(|counters| &counters.refused);
            }
        }
    }

    fn claimed(&mut self, claimed: Claimed, now: Duration) {
        let Some((claim, sent_at)) = self.claiming.take() else {
            return;
        };
        let asked = match &claim.pick {
            Pick::Next { limit, .. } => *limit,
            Pick::Ids(ids) => ids.len(),
        };
        self.turn += 1;
        self.short = if claimed.tasks.len() < asked {
            self.short + 1
        } else {
            0
        };
        for (task, error) in &claimed.refused {
            tracing::warn!(%task, %error, "a task cannot be claimed");
        }
        let settings = &self.parts.settings;
        for task in claimed.tasks {
            if let Some(holder) = task.holder() {
                let hold = Hold::new(task, holder, sent_at, settings.lease);
                self.desk.take_in(hold, &self.parts.limits, settings);
            }
        }
        if self.short >= self.turns() {
            self.hungry = false;
            let due = claimed
                .next_due
                .map(|at| at.since(self.parts.engine.clock().now()));
            let wait = due.unwrap_or(settings.poll).min(settings.poll);
            // Whoever promotes what is due tells: looking at once would be too early.
            self.look_at = now + wait.max(Duration::from_millis(10));
        }
    }

    fn renew(&mut self, now: Duration) {
        if self.renewing.is_some() || self.desk.renew_at().is_none_or(|at| at > now) {
            return;
        }
        let store = self.parts.engine.store().clone();
        let holders = self.desk.to_renew(store.limits().leases_max);
        if holders.is_empty() {
            self.desk.plan_renewal(&self.parts.settings, now);
            return;
        }
        let renew = Renew {
            holders: holders.clone(),
            lease: self.parts.settings.lease,
        };
        self.renewing = Some(Renewing {
            holders,
            at: now,
            answer: Box::pin(async move { store.renew(renew).await }),
        });
    }

    fn renewed(&mut self, answer: Result<Vec<Renewal>>, now: Duration) {
        let Some(renewing) = self.renewing.take() else {
            return;
        };
        let lease = self.parts.settings.lease;
        let renewals = match answer {
            Ok(renewals) => renewals,
            Err(error) => {
                tracing::warn!(%error, "leases cannot be renewed: trying again");
                let later = now + lease / 20;
                return self.desk.plan_renewal(&self.parts.settings, later);
            }
        };
        for (holder, renewal) in renewing.holders.into_iter().zip(renewals) {
            let attempt = (holder.task, holder.fence);
            match renewal {
                Renewal::Held { .. } => self.desk.renewed(attempt, renewing.at, lease),
                Renewal::CancelRequested { reason, .. } => {
                    self.desk.renewed(attempt, renewing.at, lease);
                    let cut_at = now + self.parts.settings.cancel_grace;
                    if let Some(hold) = self.desk.cancel(attempt, reason.clone(), cut_at) {
                        let ended = Ended::Answered(Answer::Cancel(reason));
                        let ids = self.parts.engine.ids();
                        let settling = settle(&hold.holder, ended, None, ids);
                        self.desk.outbox.push_back(settling);
                    }
                }
                Renewal::Lost(_) => self.desk.lose(attempt),
            }
        }
        self.desk.plan_renewal(&self.parts.settings, now);
    }

    fn woken(&mut self, wake: &Wake, now: Duration) {
        if wake.leases {
            self.desk.renew_now(now);
        }
        if wake.any_lane
            || self
                .parts
                .lanes
                .iter()
                .any(|lane| wake.lanes.contains(lane))
        {
            self.hungry = true;
            self.short = 0;
        }
    }

    fn next_event(&self, now: Duration) -> Duration {
        let drain = self.drain.map(|drain| {
            if now < drain.soft_at {
                drain.soft_at
            } else if now < drain.hard_at {
                drain.hard_at
            } else {
                drain.give_up_at
            }
        });
        let look = (self.drain.is_none() && self.claiming.is_none()).then_some(self.look_at);
        let pause = (self.pause_until > now).then_some(self.pause_until);
        let renew = (self.renewing.is_none())
            .then(|| self.desk.renew_at())
            .flatten();
        let events = [drain, look, renew, self.desk.next_event()];
        let next = events.into_iter().flatten().filter(|at| *at > now);
        let far = now + Duration::from_secs(3_600);
        next.chain(pause).min().unwrap_or(far)
    }

    fn is_over(&self, now: Duration) -> bool {
        if self.fatal.is_some() {
            return true;
        }
        let clear = self.desk.is_clear() && self.sent.is_none() && self.claiming.is_none();
        match self.drain {
            Some(drain) => clear || now >= drain.give_up_at,
            None => self.until_empty && clear && !self.hungry,
        }
    }
}

/// Waits for something that may not be under way.
async fn flight<T>(under_way: Option<&mut Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match under_way {
        Some(answer) => answer.await,
        None => std::future::pending().await,
    }
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a word".into())
}
