//! The loop of a worker: claims, starts handlers, settles, renews, drains.
//!
//! Everything happens in one future that owns all it needs: dropping it is what a crash would be.
//! At most one exchange (answers out, new tasks in) and one renewal are under way at a time; while
//! they are, answers collect, so that a busy worker batches by itself and an idle one waits for
//! nothing. Where the store writes several things at once, a claim goes beside many answers. What fails because the store is away is repeated as it was until it is answered.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::Sleep;
use plimsoll_core::log::NewLine;
use plimsoll_core::store::Claimed;
use plimsoll_core::task::{Lane, WorkerId};
use plimsoll_core::wake::Wake;
use plimsoll_core::{Error, Name, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::attempt::attempt;
use super::builder::Backoff;
use super::claims::{Claims, LeftClaim};
use super::context::{Cause, Context, Signal};
use super::desk::Desk;
use super::discover::Discovery;
use super::drain::Drain;
use super::exchange::Sent;
use super::lease::Lease;
use super::phase::Phases;
use super::renewal::Renewing;
use super::running::{Attempt, Hold};
use super::settings::Settings;
use super::settle::{Ended, Settling, settle};
use super::stats::{Stats, Summary};
use super::traced::{end, error, traced};
use super::{Answer, Failure, HandlerService, States, Stop};
use crate::Engine;
use crate::handover::Carried;
use crate::spawn::spawn_into;
use crate::telemetry::{AtWork, Quota};

/// What a worker is made of.
pub(super) struct Parts {
    pub(super) engine: Engine,
    pub(super) id: WorkerId,
    pub(super) settings: Settings,
    pub(super) lanes: Vec<Lane>,
    pub(super) services: BTreeMap<Name, HandlerService>,
    /// What works on all other kinds of these queues, if anything does.
    pub(super) rest: Option<(HandlerService, Vec<Name>)>,
    /// How many of a kind may be held at the same time.
    pub(super) limits: BTreeMap<Name, usize>,
    pub(super) backoffs: BTreeMap<Name, Backoff>,
    pub(super) states: Arc<States>,
    pub(super) stats: Stats,
}

/// A call of the store under way.
pub(super) type Flight<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) struct Driver {
    pub(super) parts: Parts,
    pub(super) at_work: AtWork,
    /// Failures that are worth a line.
    failures: Quota,
    pub(super) desk: Desk,
    handlers: JoinSet<(Attempt, (Ended, Vec<NewLine>))>,
    pub(super) claims: Claims,
    /// The exchange under way. What it carries stays on the desk. It is never given up: a claim that
    /// arrives after its own repetition was answered would take tasks that nobody knows of.
    pub(super) sent: Option<Sent>,
    /// The claim under way beside it.
    pub(super) beside: Option<Flight<Result<Claimed>>>,
    pub(super) renewing: Option<Renewing>,
    /// From how many answers on claims go beside them, if they do.
    pub(super) many: Option<usize>,
    /// Whether somebody asked to stop a task since the last renewal was sent.
    pub(super) lease_hint: bool,
    /// No exchange is sent before this, because the store is away.
    pub(super) pause_until: Duration,
    pub(super) troubles: u32,
    pub(super) drain: Option<Drain>,
    pub(super) discovery: Option<Discovery>,
    pub(super) until_empty: bool,
    /// Why the worker cannot go on.
    pub(super) fatal: Option<Error>,
}

impl Driver {
    pub(super) fn new(parts: Parts, until_empty: bool) -> Self {
        let rest = parts.rest.as_ref();
        Self {
            discovery: rest.map(|(_, queues)| Discovery::new(queues.clone(), &parts.lanes)),
            at_work: AtWork::new(parts.engine.telemetry().clone(), &parts.id.name),
            many: (parts.engine.store().capabilities().concurrent_writes)
                .then_some(parts.settings.many_answers),
            parts,
            failures: Quota::default(),
            desk: Desk::default(),
            handlers: JoinSet::new(),
            claims: Claims::new(),
            sent: None,
            beside: None,
            renewing: None,
            lease_hint: false,
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
        let (worker_id, settings) = (self.parts.id.name.clone(), &self.parts.settings);
        let (lanes, concurrency) = (self.parts.lanes.len(), settings.concurrency);
        tracing::info!(%worker_id, lanes, concurrency, "the worker begins");
        let mut hints = store.wakeups();
        let mut timer: Option<(Duration, Sleep)> = None;
        loop {
            let now = clock.monotonic();
            self.woken(&hints.take(), now);
            let told = *stop.borrow_and_update();
            if told != Stop::Go && self.drain.is_none() {
                tracing::info!(%worker_id, running = self.desk.running.len(), "the worker drains");
            }
            let settings = &self.parts.settings;
            Drain::obey(&mut self.drain, told, &mut self.desk, settings, now);
            self.act(now);
            if self.is_over(now) {
                return self.close();
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
                answer = flight(self.beside.as_mut()) => {
                    self.claimed_beside(answer, clock.monotonic());
                }
                carried = carried(self.claims.left.as_mut()) => {
                    self.carried(carried, clock.monotonic());
                }
                answer = flight(self.renewing.as_mut().map(|renewing| &mut renewing.answer)) => {
                    self.renewed(answer, clock.monotonic());
                }
                answer = flight(self.discovery.as_mut().and_then(|one| one.looking.as_mut())) => {
                    self.discovered(answer, clock.monotonic());
                }
                Some(ended) = self.handlers.join_next() => {
                    let mut ended = Some(ended);
                    while let Some(result) = ended {
                        if let Ok((attempt, (how, lines))) = result {
                            self.ended(attempt, how, lines, clock.monotonic());
                        }
                        ended = self.handlers.try_join_next();
                    }
                }
                wake = hints.next() => self.woken(&wake, clock.monotonic()),
                () = flight(sleep) => timer = None,
            }
        }
    }

    /// Does everything that can be done now without waiting.
    fn act(&mut self, now: Duration) {
        let settings = &self.parts.settings;
        self.desk.check(settings, now);
        for hold in self.desk.give_back(self.drain.is_some(), now) {
            let release = Settling::release(&hold.holder, None, hold.renewed);
            self.desk.owe(release);
        }
        self.desk.owe_overdue(now);
        while let Some(hold) = self.desk.next_to_start(&self.parts.settings, now) {
            self.start(hold, now);
        }
        self.parts.stats.running(self.desk.running.len());
        let last_look = self.until_empty && self.desk.is_clear() && self.claims.is_done();
        self.discover(now, last_look);
        self.send(now);
        self.renew(now);
    }

    fn start(&mut self, hold: Hold, now: Duration) {
        let kind = hold.kind();
        let rest = self.parts.rest.as_ref().map(|(service, _)| service);
        let Some(service) = self.parts.services.get(kind).or(rest).cloned() else {
            // Only kinds with a handler are claimed.
            let release = Settling::release(&hold.holder, None, hold.renewed);
            self.desk.owe(release);
            return;
        };
        let backoff = self.parts.backoffs.get(kind).cloned();
        let phases = Phases::open(&self.parts.engine, &hold);
        let (signal, heard) = watch::channel(Signal::default());
        let context = Context::new(
            self.parts.engine.clone(),
            hold.task.clone(),
            hold.holder.clone(),
            Lease {
                trust: hold.trust.clone(),
                signal: heard.clone(),
            },
            self.parts.states.clone(),
            phases.clone(),
        );
        let waited = self.parts.engine.clock().now().since(hold.task.runnable_at);
        self.at_work.started(&hold.task.spec.lane, waited);
        let id = hold.attempt();
        self.desk.started(hold, signal, now, &self.parts.settings);
        self.parts.stats.count(|counters| &counters.started);
        match phases {
            None => spawn_into(&mut self.handlers, async move {
                (id, attempt(service, context, backoff, heard).await)
            }),
            Some(phases) => {
                let telemetry = self.parts.engine.telemetry().clone();
                // A future that is handed around by value would be copied each time.
                let work = Box::pin(attempt(service, context, backoff, heard.clone()));
                spawn_into(&mut self.handlers, async move {
                    (id, traced(telemetry, phases, heard, work).await)
                });
            }
        }
    }

    fn ended(&mut self, attempt: Attempt, mut ended: Ended, lines: Vec<NewLine>, now: Duration) {
        let Some(running) = self.desk.ended(attempt, now) else {
            return;
        };
        // What may not be written is a failure to everybody who is told of it.
        if let Ended::Answered(Answer::Complete(completion), _) = &mut ended
            && let Err(invalid) = self.parts.engine.admit(&mut completion.with)
        {
            ended = Ended::Answered(Answer::Fail(Failure::fatal(invalid.to_string())), None);
        }
        let took = now.saturating_sub(running.since);
        let lane = &running.hold.task.spec.lane;
        self.at_work.ended(lane, end(&ended), took);
        if let Some(error) = error(&ended, running.cut.as_ref())
            && let Some(held_back) = self.failures.admit(now)
        {
            let (job_id, worker_id) = (running.hold.holder.task, &self.parts.id.name);
            tracing::warn!(%job_id, %worker_id, %lane, error, held_back, "an attempt failed");
        }
        if self.parts.limits.contains_key(running.hold.kind()) {
            // Its kind was left out of claims while it was at its limit.
            self.claims.wake();
        }
        if matches!(ended, Ended::Cut) {
            self.parts.stats.count(|counters| &counters.cut);
            if running.cut == Some(Cause::Draining) {
                self.parts.stats.count(|counters| &counters.interrupted);
            }
            if running.lost {
                // There is nothing to give back.
                self.parts.stats.count(|counters| &counters.lost);
                return;
            }
        }
        let lease_over = now >= running.hold.lease_end(&self.parts.settings);
        let ids = self.parts.engine.ids();
        let mut settling = settle(&running, ended, lease_over, ids);
        settling.took = Some(took);
        if !settling.is_overdue() {
            return self.desk.owe(settling.after(lines, ids));
        }
        // Whoever sweeps may be the first to end the attempt: its lines cannot wait for that.
        if !lines.is_empty() {
            let hold = &running.hold;
            let lines = Settling::lines_alone(&hold.holder, lines, hold.renewed);
            self.desk.owe(lines);
        }
        self.desk.owe_at(running.hold.overdue_at(), settling);
    }

    fn woken(&mut self, wake: &Wake, now: Duration) {
        if wake.leases {
            self.hear_of_leases(now);
        }
        if let Some(discovery) = &mut self.discovery {
            let soon = now + self.parts.settings.poll / 4;
            discovery.hear(wake, &mut self.parts.lanes, soon);
        }
        let lanes = &self.parts.lanes;
        if wake.any_lane || lanes.iter().any(|lane| wake.lanes.contains(lane)) {
            self.claims.wake();
        }
    }

    fn next_event(&self, now: Duration) -> Duration {
        let drain = self.drain.map(|drain| drain.next_event(now));
        let look = self.drain.is_none() && self.claims.open.is_none();
        let look = look.then_some(self.claims.look_at);
        let renew = match &self.renewing {
            Some(renewing) => Some(renewing.sent + self.parts.settings.renewal_max()),
            None => self.desk.renew_at(),
        };
        let events = [
            drain,
            look,
            renew,
            Some(self.pause_until),
            self.desk.next_event(),
            self.discovery.as_ref().map(|one| one.look_at),
        ];
        let next = events.into_iter().flatten().filter(|at| *at > now).min();
        next.unwrap_or(now + Duration::from_secs(3_600))
    }

    fn is_over(&self, now: Duration) -> bool {
        if self.fatal.is_some() {
            return true;
        }
        let asks = self.claims.open.is_some() || self.claims.left.is_some();
        let clear = self.desk.is_clear() && self.sent.is_none() && !asks;
        match self.drain {
            Some(drain) => clear || drain.gives_up(now),
            None => {
                let all_seen = self.discovery.as_ref().is_none_or(Discovery::is_done);
                self.until_empty && clear && all_seen && self.claims.is_done()
            }
        }
    }

    /// Counts what is left, which is nothing unless the store is away or a handler never yields.
    fn close(self) -> Result<Summary> {
        let stats = &self.parts.stats;
        let asks = self.claims.open.is_some() || self.claims.left.is_some();
        for _ in 0..self.desk.owed() + usize::from(asks) {
            stats.count(|counters| &counters.unsettled);
        }
        for _ in &self.desk.running {
            stats.count(|counters| &counters.unsettled);
            stats.count(|counters| &counters.cut);
            stats.count(|counters| &counters.interrupted);
        }
        stats.running(0);
        let (worker_id, done) = (&self.parts.id.name, stats.summary());
        let (completed, failed, unsettled) = (done.completed, done.failed, done.unsettled);
        tracing::info!(%worker_id, completed, failed, unsettled, "the worker has ended");
        match self.fatal {
            Some(error) => Err(error),
            None => Ok(done),
        }
    }
}

/// Waits for something that may not be under way.
async fn flight<T>(under_way: Option<&mut Flight<T>>) -> T {
    match under_way {
        Some(answer) => answer.await,
        None => std::future::pending().await,
    }
}

/// Waits until the claim that was left, if there is one, was carried.
async fn carried(left: Option<&mut LeftClaim>) -> Option<Carried> {
    match left {
        Some(left) => left.ticket.carried().await,
        None => std::future::pending().await,
    }
}
