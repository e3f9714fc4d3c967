//! What a worker holds and what it owes: tasks that wait to be started, tasks at work, and answers
//! on their way to the store. Nothing in here waits or asks anybody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use plimsoll_core::Name;
use plimsoll_core::store::Commit;
use plimsoll_core::task::{Holder, Lane};
use tokio::sync::watch;

use super::context::{Cause, Signal};
use super::running::{Attempt, Hold, Running, attempt_of};
use super::settings::{Pace, Settings, UNSTARTED_MAX};
use super::settle::Settling;

/// What a worker holds and owes.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// Claimed, not started, in the order in which they should run.
    waiting: VecDeque<Hold>,
    pub(super) running: BTreeMap<Attempt, Running>,
    /// Answers that have not been sent.
    outbox: VecDeque<Settling>,
    /// Answers that have been sent, but not taken yet.
    in_flight: Vec<Settling>,
    /// Attempts that took too long, and when to tell the store.
    overdue: Vec<(Duration, Settling)>,
    /// How many of each kind are held.
    held: BTreeMap<Name, usize>,
    pace: Pace,
    /// When a running task may next need a word.
    check_at: Option<Duration>,
    /// When to renew leases next: perhaps too early.
    renew_at: Option<Duration>,
}

impl Desk {
    /// How many more tasks to claim.
    pub(super) fn room(&self, settings: &Settings, now: Duration) -> usize {
        if self.outbox.len() >= settings.owed_max() {
            return 0;
        }
        let free = settings.concurrency.saturating_sub(self.running.len());
        let ages = (self.running.values()).map(|running| now.saturating_sub(running.since));
        let ahead = settings.prefetch(self.pace.expected(ages));
        (free.saturating_add(ahead)).saturating_sub(self.waiting.len())
    }

    /// Which of these lanes to claim from, and how many, so that no kind exceeds its limit. Every
    /// other round is for the kinds with the most room alone, which would otherwise wait for the
    /// others.
    pub(super) fn ask(
        &self,
        lanes: &[Lane],
        limits: &BTreeMap<Name, usize>,
        room: usize,
        round: usize,
    ) -> (Vec<Lane>, usize) {
        let left = |lane: &Lane| match limits.get(&lane.kind) {
            Some(limit) => {
                let held = self.held.get(&lane.kind).copied().unwrap_or(0);
                limit.saturating_sub(held).min(room)
            }
            None => room,
        };
        let widest = lanes.iter().map(left).max().unwrap_or(0);
        let narrowest = if round % 2 == 1 { widest } else { 1 };
        let (mut most, mut chosen) = (room, Vec::new());
        for lane in lanes {
            let left = left(lane);
            if left > 0 && left >= narrowest {
                most = most.min(left);
                chosen.push(lane.clone());
            }
        }
        (chosen, most)
    }

    pub(super) fn take_in(&mut self, hold: Hold, settings: &Settings) {
        sooner(&mut self.renew_at, hold.renewed + settings.renew_after());
        match self.held.get_mut(hold.kind()) {
            Some(held) => *held += 1,
            None => drop(self.held.insert(hold.kind().clone(), 1)),
        }
        self.waiting.push_back(hold);
    }

    fn let_go(&mut self, hold: &Hold) {
        if let Some(held) = self.held.get_mut(hold.kind()) {
            *held = held.saturating_sub(1);
        }
    }

    /// The next task to start, if there is a place for it.
    pub(super) fn next_to_start(&mut self, settings: &Settings, now: Duration) -> Option<Hold> {
        // Answers that cannot be delivered must not pile up.
        if self.outbox.len() >= settings.owed_max() || self.running.len() >= settings.concurrency {
            return None;
        }
        let next = self.waiting.iter().position(|hold| !hold.is_overdue(now))?;
        let fresh = self.waiting[next].is_fresh(settings, now);
        fresh.then(|| self.waiting.remove(next)).flatten()
    }

    pub(super) fn started(
        &mut self,
        hold: Hold,
        signal: watch::Sender<Signal>,
        now: Duration,
        settings: &Settings,
    ) {
        let running = Running::new(hold, signal, now);
        let (stop, cut) = (running.stop_at(settings).0, running.cut_at(settings).0);
        sooner(&mut self.check_at, stop.min(cut));
        self.running.insert(running.hold.attempt(), running);
    }

    pub(super) fn ended(&mut self, attempt: Attempt, now: Duration) -> Option<Running> {
        let running = self.running.remove(&attempt)?;
        self.let_go(&running.hold);
        self.pace.took(now.saturating_sub(running.since));
        // Whatever the handler left behind does not hold the task any more.
        running.hold.trust.set(Duration::ZERO);
        Some(running)
    }

    /// Tasks that wait and should not any more: all of them, or those that wait for too long, or
    /// that nobody could finish in time.
    pub(super) fn give_back(&mut self, all: bool, now: Duration) -> Vec<Hold> {
        let late = |hold: &mut Hold| {
            all || now.saturating_sub(hold.arrived) >= UNSTARTED_MAX || hold.is_overdue(now)
        };
        let mut back = Vec::new();
        // The front has waited for the longest.
        while let Some(hold) = self.waiting.pop_front_if(late) {
            self.let_go(&hold);
            back.push(hold);
        }
        back
    }

    /// Owes the store an answer.
    pub(super) fn owe(&mut self, settling: Settling) {
        self.outbox.push_back(settling);
    }

    /// Answers to send, as many as one call may carry.
    pub(super) fn send(&mut self, most: usize, bytes_max: usize) -> Vec<Commit> {
        let mut bytes = 0;
        while let Some(next) = self.outbox.front() {
            bytes += next.commit.size();
            let first = self.in_flight.is_empty();
            if self.in_flight.len() >= most || (bytes > bytes_max && !first) {
                break;
            }
            self.in_flight.extend(self.outbox.pop_front());
        }
        let commits = self.in_flight.iter().map(|one| one.commit.clone());
        commits.collect()
    }

    /// How many answers the call under way carries.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What the answered call carried.
    pub(super) fn delivered(&mut self) -> Vec<Settling> {
        std::mem::take(&mut self.in_flight)
    }

    /// The call failed: what it carried is sent again, first.
    pub(super) fn undelivered(&mut self) {
        for settling in self.delivered().into_iter().rev() {
            self.outbox.push_front(settling);
        }
    }

    /// How many answers there are to send.
    pub(super) fn owes(&self) -> usize {
        self.outbox.len()
    }

    /// Tells the store at this moment that an attempt took too long.
    pub(super) fn owe_at(&mut self, at: Duration, settling: Settling) {
        self.overdue.push((at, settling));
    }

    /// Puts what is to be told by now to the answers.
    pub(super) fn owe_overdue(&mut self, now: Duration) {
        let due = self.overdue.extract_if(.., |(at, _)| *at <= now);
        self.outbox.extend(due.map(|(_, settling)| settling));
    }

    /// The leases to renew: all, because a renewal also tells who is to stop. Also of answers that
    /// the store has not taken yet: nobody else should begin with those.
    pub(super) fn to_renew(&self, most: usize) -> Vec<Holder> {
        let mut leases: Vec<(Duration, &Holder)> = self.leases().collect();
        if leases.len() > most {
            leases.sort_by_key(|(renewed, _)| *renewed);
            leases.truncate(most);
        }
        leases
            .into_iter()
            .map(|(_, holder)| holder.clone())
            .collect()
    }

    fn leases(&self) -> impl Iterator<Item = (Duration, &Holder)> {
        // A handler that was dropped but does not yield must not keep its task from others.
        let running = (self.running.values()).filter(|one| !one.lost && one.cut.is_none());
        let holds = (self.waiting.iter()).chain(running.map(|running| &running.hold));
        let answers = self.outbox.iter().chain(&self.in_flight);
        let answers = answers.filter(|owed| !owed.lost);
        holds
            .map(|hold| (hold.renewed, &hold.holder))
            .chain(answers.map(|owed| (owed.renewed, &owed.holder)))
    }

    /// When to renew leases next, as far as is known: perhaps too early.
    pub(super) fn renew_at(&self) -> Option<Duration> {
        self.renew_at
    }

    /// Finds out when to renew leases next. At the earliest then, which is after a failure.
    pub(super) fn plan_renewal(&mut self, settings: &Settings, earliest: Duration) {
        let next = self.leases().map(|(renewed, _)| renewed).min();
        self.renew_at = next.map(|renewed| (renewed + settings.renew_after()).max(earliest));
    }

    /// Somebody may have asked to stop a task: a renewal tells.
    pub(super) fn renew_now(&mut self, now: Duration) {
        sooner(&mut self.renew_at, now);
    }

    /// These leases go on, by a call sent at this moment.
    pub(super) fn renewed(
        &mut self,
        attempts: &BTreeSet<Attempt>,
        sent: Duration,
        settings: &Settings,
    ) {
        for attempt in attempts {
            if let Some(running) = self.running.get_mut(attempt) {
                running.renew(sent, settings);
                sooner(&mut self.check_at, running.stop_at(settings).0);
            }
        }
        for hold in &mut self.waiting {
            if attempts.contains(&hold.attempt()) {
                hold.renew(sent, settings);
            }
        }
        for owed in self.outbox.iter_mut().chain(&mut self.in_flight) {
            if attempts.contains(&attempt_of(&owed.holder)) {
                owed.renewed = sent;
            }
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
            running.cancel(reason, cut_at);
            sooner(&mut self.check_at, cut_at);
            return None;
        }
        self.take_waiting(attempt)
    }

    /// The store says that this worker does not hold a task any more.
    pub(super) fn lose(&mut self, attempt: Attempt) {
        match self.running.get_mut(&attempt) {
            Some(running) => running.lose(),
            None => drop(self.take_waiting(attempt)),
        }
        for owed in self.outbox.iter_mut().chain(&mut self.in_flight) {
            owed.lost |= attempt_of(&owed.holder) == attempt;
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

    pub(super) fn cut_all(&mut self, cause: &Cause) {
        for running in self.running.values_mut() {
            running.cut(cause.clone());
        }
    }

    /// Stops and drops the handlers whose time has come.
    pub(super) fn check(&mut self, settings: &Settings, now: Duration) {
        if self.check_at.is_none_or(|at| at > now) {
            return;
        }
        self.check_at = None;
        for running in self.running.values_mut() {
            if running.cut.is_some() {
                continue;
            }
            let (cut_at, why) = running.cut_at(settings);
            let (stop_at, cause) = running.stop_at(settings);
            if now >= cut_at {
                running.cut(why);
                continue;
            }
            if now >= stop_at {
                running.stop(cause);
            }
            let at = if now < stop_at { stop_at } else { cut_at };
            sooner(&mut self.check_at, at.min(cut_at));
        }
    }

    /// When something in here needs a look.
    pub(super) fn next_event(&self) -> Option<Duration> {
        let unstarted = (self.waiting.front()).map(|hold| hold.arrived + UNSTARTED_MAX);
        let overdue = self.overdue.iter().map(|(at, _)| *at);
        (self.check_at.into_iter())
            .chain(unstarted)
            .chain(overdue)
            .min()
    }

    /// How many answers the store has not taken.
    pub(super) fn owed(&self) -> usize {
        self.outbox.len() + self.in_flight.len() + self.overdue.len()
    }

    /// Whether nothing is held or owed.
    pub(super) fn is_clear(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.owed() == 0
    }
}

fn sooner(at: &mut Option<Duration>, then: Duration) {
    *at = Some(at.map_or(then, |at| at.min(then)));
}
