//! Answers out, new tasks in: one call at a time, repeated until it is answered.

use std::time::Duration;

use plimsoll_core::store::{Claimed, Exchange, Exchanged, Outcome, Receipt};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Result};

use super::driver::Driver;
use super::patience;
use super::running::Hold;
use super::settle::{Settling, instead};
use crate::handover::{Carried, unheard};

/// How many answers travel together at most.
const SETTLES_MAX: usize = 1_000;
/// The store did not think yet that an attempt took too long: it is told again after this.
const TELL_AGAIN: Duration = Duration::from_millis(100);

impl Driver {
    /// Sends answers out and asks for tasks, if there is anything to send or to ask.
    pub(super) fn send(&mut self, now: Duration) {
        if self.sent.is_some() || now < self.pause_until {
            return;
        }
        let (drains, owes) = (self.drain.is_some(), self.desk.owes());
        let busy = drains || owes || self.claims.is_time(now);
        if self.claims.left.is_some() && !(busy && self.claims.call_back()) {
            return;
        }
        if !drains {
            self.claims.open(&self.parts, &self.desk, now);
        }
        if self.claims.open.is_none() && !owes {
            if !drains && !self.until_empty {
                self.claims.leave(&self.parts, &self.desk, now);
            }
            return;
        }
        let store = self.parts.engine.store().clone();
        let limits = store.limits();
        let most = SETTLES_MAX.min(limits.commits_max);
        let exchange = Exchange {
            commits: self.desk.send(most, limits.call_bytes_max),
            renew: None,
            claim: self.claims.open.as_ref().map(|open| open.claim.clone()),
        };
        self.sent = Some(Box::pin(async move { store.exchange(exchange).await }));
    }

    pub(super) fn exchanged(&mut self, answer: Result<Exchanged>, now: Duration) {
        self.sent = None;
        let exchanged = match answer {
            Ok(exchanged) => exchanged,
            Err(error) => {
                self.desk.undelivered();
                self.claims.failed(&error);
                return self.trouble(error, now);
            }
        };
        if exchanged.commits.len() != self.desk.in_flight() {
            self.desk.undelivered();
            let wrong = "the store did not answer every commit";
            return self.trouble(Error::Corrupt(wrong.into()), now);
        }
        let mut trouble = None;
        for (settling, answer) in (self.desk.delivered().into_iter()).zip(exchanged.commits) {
            match answer {
                Ok(receipt) => self.settled(settling, &receipt, now),
                Err(error) if patience::is_passing(&error) || error == Error::Closed => {
                    self.desk.owe(settling);
                    trouble = Some(error);
                }
                Err(error) => self.refused(&settling, &error),
            }
        }
        match exchanged.claimed {
            None => {}
            Some(Ok(claimed)) => self.claimed(claimed, now),
            Some(Err(error)) => {
                self.claims.failed(&error);
                trouble = Some(error);
            }
        }
        match trouble {
            Some(error) => self.trouble(error, now),
            None => self.calm(),
        }
    }

    /// Somebody who submitted has carried the claim that was left.
    pub(super) fn carried(&mut self, carried: Option<Carried>, now: Duration) {
        self.claims.carried(carried.as_ref().map(|carried| carried.sent));
        match carried.map_or_else(|| Err(unheard()), |carried| carried.claimed) {
            Ok(claimed) => {
                self.claimed(claimed, now);
                self.calm();
            }
            Err(error) => {
                self.claims.failed(&error);
                self.trouble(error, now);
            }
        }
    }

    /// The store answers.
    fn calm(&mut self) {
        if std::mem::take(&mut self.troubles) > 0 {
            tracing::info!(worker_id = %self.parts.id.name, "the store answers again");
        }
    }

    /// The store is away, or will not have it.
    fn trouble(&mut self, error: Error, now: Duration) {
        if patience::is_passing(&error) || matches!(error, Error::Corrupt(_)) {
            // A store that stays away is worth fewer and fewer lines.
            if self.troubles.saturating_add(1).is_power_of_two() {
                let (worker_id, tries) = (&self.parts.id.name, self.troubles.saturating_add(1));
                tracing::warn!(%worker_id, %error, tries, "the store is in trouble: trying again");
            }
            self.parts.engine.telemetry().troubles.increment(1);
            let (longest, ids) = (self.parts.settings.pause_max(), self.parts.engine.ids());
            self.pause_until = now + patience::pause(self.troubles, longest, ids);
            self.troubles = self.troubles.saturating_add(1);
        } else {
            tracing::error!(worker_id = %self.parts.id.name, %error, "the worker cannot go on");
            self.fatal = Some(error);
        }
    }

    fn settled(&mut self, settling: Settling, receipt: &Receipt, now: Duration) {
        self.at_work
            .settled(&settling.commit, receipt, settling.took);
        if let Some(discovery) = &mut self.discovery {
            discovery.doubt();
        }
        // Lines that were logged come first.
        let mut outcomes = receipt.outcomes.iter();
        match outcomes.find(|outcome| !matches!(outcome, Outcome::Logged)) {
            Some(Outcome::Settled { status, .. } | Outcome::Changed { status, .. }) => {
                self.parts.stats.settled(*status, settling.is_release());
            }
            Some(Outcome::Already {
                status: Status::Claimed,
            }) if settling.is_overdue() => self.desk.owe_at(now + TELL_AGAIN, settling),
            Some(_) | None => {}
        }
    }

    fn refused(&mut self, settling: &Settling, error: &Error) {
        let task = settling.holder.task;
        match instead(settling, error, self.parts.engine.ids()) {
            Some(settling) => {
                tracing::warn!(%task, %error, "an answer was refused: the task fails");
                self.desk.owe(settling);
            }
            None => {
                tracing::warn!(%task, %error, "an answer was refused");
                self.parts.stats.count(|counters| &counters.refused);
            }
        }
    }

    fn claimed(&mut self, claimed: Claimed, now: Duration) {
        let Some(open) = self.claims.answered(&claimed, &self.parts, now) else {
            return;
        };
        for (task, error) in &claimed.refused {
            tracing::warn!(%task, %error, "a task cannot be claimed");
        }
        let settings = &self.parts.settings;
        for task in claimed.tasks {
            if let Some(holder) = task.holder() {
                let hold = Hold::new(task, holder, (open.sent, now), settings);
                self.desk.take_in(hold, settings);
            }
        }
        if open.lease_hint {
            self.desk.renew_now(now);
        }
    }
}
