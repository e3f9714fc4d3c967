//! What a worker holds and what it owes: tasks that wait to be started, tasks at work, and answers
//! on their way to the store. Nothing in here waits or asks anybody.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::task::{Holder, Lane, Task};
use plimsoll_core::{Fence, Name, TaskId};
use tokio::sync::watch;

use super::context::{Cause, Signal, Trust};
use super::settings::{Pace, Settings, UNSTARTED_MAX};
use super::settle::Settling;

/// One claim of one task. A worker may hold a task again while a handler that lost it winds down.
pub(super) type Attempt = (TaskId, Fence);

/// A claimed task.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) task: Task,
    pub(super) holder: Holder,
    pub(super) trust: Arc<Trust>,
    /// When the attempt ends, whatever its lease.
    pub(super) deadline: Option<Duration>,
    /// When it was claimed or renewed last.
    pub(super) renewed: Duration,
    pub(super) claimed: Duration,
}

impl Hold {
    /// A task that was claimed by a call sent at this moment.
    pub(super) fn new(task: Task, holder: Holder, sent: Duration, lease: Duration) -> Self {
        let deadline = task.spec.attempt_timeout.map(|timeout| sent + timeout);
        let hold = Self {
            task,
            holder,
            trust: Arc::new(Trust::new(Duration::ZERO)),
            deadline,
            renewed: sent,
            claimed: sent,
        };
        hold.renewed_at(sent, lease);
        hold
    }

    fn renewed_at(&self, sent: Duration, lease: Duration) {
        let until = sent + lease;
        self.trust
            .extend(self.deadline.map_or(until, |deadline| deadline.min(until)));
    }

    pub(super) fn attempt(&self) -> Attempt {
        (self.holder.task, self.holder.fence)
    }

    fn kind(&self) -> &Name {
        &self.task.spec.lane.kind
    }
}

/// A task at work.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) hold: Hold,
    pub(super) since: Duration,
    pub(super) signal: watch::Sender<Signal>,
    /// Why it was asked to stop.
    pub(super) cause: Option<Cause>,
    /// When it is dropped although its lease goes on.
    cut_at: Option<Duration>,
    /// The store said that somebody else has it, or nobody.
    pub(super) lost: bool,
}

impl Running {
    /// Asks the handler to stop, unless it was asked before.
    fn stop(&mut self, cause: Cause) {
        if self.cause.is_none() {
            self.cause = Some(cause.clone());
            self.signal.send_replace(Signal::Stop(cause));
        }
    }

    /// When to ask it to stop, and when to drop it.
    fn ends(&self, settings: &Settings) -> (Duration, Cause, Duration) {
        let until = self.hold.trust.until();
        let (mut stop, mut cause) = (
            until.saturating_sub(settings.stop_margin()),
            Cause::LeaseLost,
        );
        let mut cut = until.saturating_sub(settings.cut_margin());
        if let Some(deadline) = self.hold.deadline {
            let timeout = deadline.saturating_sub(self.hold.claimed);
            let warn = deadline.saturating_sub((timeout / 10).min(Duration::from_secs(1)));
            if deadline <= until {
                // The lease cannot be renewed past the deadline: that is no loss.
                (stop, cause, cut) = (warn, Cause::Deadline, deadline);
            }
        }
        (stop, cause, self.cut_at.map_or(cut, |at| at.min(cut)))
    }
}

/// What a worker holds and owes.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// Claimed, not started, in the order in which they should run.
    pub(super) waiting: VecDeque<Hold>,
    pub(super) running: BTreeMap<Attempt, Running>,
    /// Answers that have not been sent.
    pub(super) outbox: VecDeque<Settling>,
    /// How many of each kind that has a limit are held.
    held: BTreeMap<Name, usize>,
    pub(super) pace: Pace,
    /// When a running task may next need a word.
    check_at: Option<Duration>,
    renew_at: Option<Duration>,
}

impl Desk {
    /// How many more tasks to claim.
    pub(super) fn room(&self, settings: &Settings, now: Duration) -> usize {
        let free = settings.concurrency.saturating_sub(self.running.len());
        let ages = (self.running.values()).map(|running| now.saturating_sub(running.since));
        let ahead = settings.prefetch(self.pace.expected(ages));
        (free + ahead).saturating_sub(self.waiting.len())
    }

    /// Which of these lanes to claim from, and how many, so that no kind exceeds its limit. Every
    /// other turn is for kinds without a limit alone, which would otherwise wait for the others.
    pub(super) fn ask(
        &self,
        lanes: &[Lane],
        limits: &BTreeMap<Name, usize>,
        room: usize,
        turn: usize,
    ) -> (Vec<Lane>, usize) {
        let left = |lane: &Lane| {
            let limit = limits.get(&lane.kind)?;
            Some(limit.saturating_sub(self.held.get(&lane.kind).copied().unwrap_or(0)))
        };
        let tight = lanes.iter().filter_map(left).any(|left| left < room);
        let unlimited_only =
            tight && turn % 2 == 1 && lanes.iter().any(|lane| left(lane).is_none());
        let mut most = room;
        let mut chosen = Vec::new();
        for lane in lanes {
            match left(lane) {
                None => chosen.push(lane.clone()),
                Some(0) => {}
                Some(_) if unlimited_only => {}
                Some(left) => {
                    most = most.min(left);
                    chosen.push(lane.clone());
                }
            }
        }
        (chosen, most)
    }

    pub(super) fn take_in(
        &mut self,
        hold: Hold,
        limits: &BTreeMap<Name, usize>,
        settings: &Settings,
    ) {
        let renew = hold.renewed + settings.renew_after();
        self.renew_at = self.renew_at.into_iter().chain([renew]).min();
        if limits.contains_key(hold.kind()) {
            *self.held.entry(hold.kind().clone()).or_default() += 1;
        }
        self.waiting.push_back(hold);
    }

    fn let_go(&mut self, hold: &Hold) {
        if let Some(held) = self.held.get_mut(hold.kind()) {
            *held = held.saturating_sub(1);
        }
    }

    /// The next task to start, if there is a place for it.
    pub(super) fn next_to_start(&mut self, settings: &Settings) -> Option<Hold> {
        // Answers that cannot be delivered must not pile up.
        let owed = self.outbox.len() < settings.concurrency * 4 + 1_024;
        if owed && self.running.len() < settings.concurrency {
            return self.waiting.pop_front();
        }
        None
    }

    pub(super) fn started(
        &mut self,
        hold: Hold,
        signal: watch::Sender<Signal>,
        now: Duration,
        settings: &Settings,
    ) {
        let running = Running {
            hold,
            since: now,
            signal,
            cause: None,
            cut_at: None,
            lost: false,
        };
        let (stop, _, cut) = running.ends(settings);
        self.check_by(stop.min(cut));
        self.running.insert(running.hold.attempt(), running);
    }

    pub(super) fn ended(&mut self, attempt: Attempt, now: Duration) -> Option<Running> {
        let running = self.running.remove(&attempt)?;
        self.let_go(&running.hold);
        self.pace.took(now.saturating_sub(running.since));
        Some(running)
    }

    /// Tasks that wait and should not any more: all of them, or those that wait for too long.
    pub(super) fn give_back(&mut self, all: bool, now: Duration) -> Vec<Hold> {
        let mut back = Vec::new();
        // The front has waited for the longest.
        while let Some(hold) = self
            .waiting
            .pop_front_if(|hold| all || now.saturating_sub(hold.claimed) >= UNSTARTED_MAX)
        {
            self.let_go(&hold);
            back.push(hold);
        }
        back
    }

    /// The leases to renew: all, because a renewal also tells who is to stop.
    pub(super) fn to_renew(&self, most: usize) -> Vec<Holder> {
        let running = self.running.values().filter(|running| !running.lost);
        let mut holds: Vec<&Hold> = (self.waiting.iter())
            .chain(running.map(|running| &running.hold))
            .collect();
        if holds.len() > most {
            holds.sort_by_key(|hold| hold.renewed);
            holds.truncate(most);
        }
        holds.into_iter().map(|hold| hold.holder.clone()).collect()
    }

    /// When to renew leases next, as far as is known: perhaps too early.
    pub(super) fn renew_at(&self) -> Option<Duration> {
        self.renew_at
    }

    /// Finds out when to renew leases next. At the earliest then, which is after a failure.
    pub(super) fn plan_renewal(&mut self, settings: &Settings, earliest: Duration) {
        let running = self.running.values().filter(|running| !running.lost);
        self.renew_at = (self
            .waiting
            .iter()
            .chain(running.map(|running| &running.hold)))
        .map(|hold| hold.renewed + settings.renew_after())
        .min()
        .map(|at| at.max(earliest));
    }

    /// Somebody may have asked to stop a task: the next renewal tells.
    pub(super) fn renew_now(&mut self, now: Duration) {
        if !self.waiting.is_empty() || !self.running.is_empty() {
            self.renew_at = Some(now);
        }
    }

    /// A lease goes on, by a call sent at this moment.
    pub(super) fn renewed(&mut self, attempt: Attempt, sent: Duration, lease: Duration) {
        let running = self
            .running
            .get_mut(&attempt)
            .map(|running| &mut running.hold);
        let waiting = self
            .waiting
            .iter_mut()
            .find(|hold| hold.attempt() == attempt);
        if let Some(hold) = running.or(waiting) {
            hold.renewed = sent;
            hold.renewed_at(sent, lease);
        }
    }

    /// Somebody asked to stop a task. If it has not been started, it is handed back to be settled.
    pub(super) fn cancel(
        &mut self,
        attempt: Attempt,
        reason: Option<String>,
        cut_at: Duration,
    ) -> Option<Hold> {
        if let Some(running) = self.running.get_mut(&attempt) {
            if running.cause.is_none() {
                running.cut_at = Some(cut_at);
            }
            running.stop(Cause::Cancelled { reason });
            self.check_by(cut_at);
            return None;
        }
        self.take_waiting(attempt)
    }

    /// The store says that this worker does not hold a task any more.
    pub(super) fn lose(&mut self, attempt: Attempt) {
        match self.running.get_mut(&attempt) {
            Some(running) => {
                running.lost = true;
                running.stop(Cause::LeaseLost);
            }
            None => drop(self.take_waiting(attempt)),
        }
    }

    fn take_waiting(&mut self, attempt: Attempt) -> Option<Hold> {
        let place = (self.waiting.iter()).position(|hold| hold.attempt() == attempt)?;
        let hold = self.waiting.remove(place)?;
        self.let_go(&hold);
        Some(hold)
    }

    pub(super) fn stop_all(&mut self, cause: &Cause) {
        for running in self.running.values_mut() {
            running.stop(cause.clone());
        }
    }

    pub(super) fn cut_all(&mut self) {
        for running in self.running.values_mut() {
            running.signal.send_replace(Signal::Cut);
        }
    }

    /// Stops and drops the handlers whose time has come.
    pub(super) fn check(&mut self, settings: &Settings, now: Duration) {
        if self.check_at.is_none_or(|at| at > now) {
            return;
        }
        let mut next = None;
        for running in self.running.values_mut() {
            let (stop, cause, cut) = running.ends(settings);
            if now >= cut {
                running.stop(cause);
                running.signal.send_replace(Signal::Cut);
                continue;
            }
            if now >= stop {
                running.stop(cause);
            }
            let at = if running.cause.is_some() { cut } else { stop };
            next = next.into_iter().chain([at]).min();
        }
        self.check_at = next;
    }

    fn check_by(&mut self, at: Duration) {
        self.check_at = self.check_at.into_iter().chain([at]).min();
    }

    /// When something in here needs a look.
    pub(super) fn next_event(&self) -> Option<Duration> {
        let unstarted = self
            .waiting
            .front()
            .map(|hold| hold.claimed + UNSTARTED_MAX);
        self.check_at.into_iter().chain(unstarted).min()
    }

    /// Whether nothing is held or owed.
    pub(super) fn is_clear(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.outbox.is_empty()
    }
}
