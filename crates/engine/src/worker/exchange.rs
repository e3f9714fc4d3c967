//! Answers out, new tasks in: one call at a time, repeated until it is answered.

use std::time::Duration;

use plimsoll_core::store::{Claimed, Exchange, Exchanged, Outcome, Receipt};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Result};

use super::driver::{Driver, Flight};
use super::patience;
use super::running::Hold;
use super::settle::{Settling, instead};
use crate::answer::{unanswered, unheard};
use crate::handover::Carried;

/// How many answers travel together at most.
const SETTLES_MAX: usize = 1_000;
/// The store did not think yet that an attempt took too long: it is told again after this.
const TELL_AGAIN: Duration = Duration::from_millis(100);

/// An exchange under way.
pub(super) struct Sent {
    pub(super) answer: Flight<Result<Exchanged>>,
    /// Whether it carries the claim.
    claims: bool,
}

/// What is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outgoing {
    Nothing,
    /// Answers, and the claim if there is one, in one call.
    Together,
    /// The claim alone.
    Claim,
    /// Answers and the claim in two calls.
    Both,
}

/// What is to be sent, given from how many answers on claims go beside them, if they do; how many there
/// are to send and under way (`None`: no exchange is); and whether a claim is under way beside it.
fn outgoing(many: Option<usize>, owed: usize, sent: Option<usize>, asks: bool) -> Outgoing {
    let are_many = |answers| many.is_some_and(|many| answers >= many);
    match sent {
        // Few answers wait for the claim, to go with the next one.
        None if asks && !are_many(owed) => Outgoing::Nothing,
        None if are_many(owed) => Outgoing::Both,
        None => Outgoing::Together,
        Some(sent) if are_many(sent) && !asks => Outgoing::Claim,
        Some(_) => Outgoing::Nothing,
    }
}

impl Driver {
    /// Sends answers out and asks for tasks, if there is anything to send or to ask.
    pub(super) fn send(&mut self, now: Duration) {
        let store = self.parts.engine.store().clone();
        let (drains, owed) = (self.drain.is_some(), self.desk.owes());
        let sent = self.sent.as_ref().map(|_| self.desk.in_flight());
        let outgoing = outgoing(self.many, owed, sent, self.beside.is_some());
        if outgoing == Outgoing::Nothing || now < self.pause_until {
            return;
        }
        // Who has left a claim has nothing else to do. One that somebody carries is under way.
        let busy = drains || self.claims.is_time(now);
        if self.claims.left.is_some() && !(busy && self.claims.call_back()) {
            return;
        }
        if !drains {
            self.claims.open(&self.parts, &self.desk, now);
        }
        let claim = self.claims.send();
        let claim = match (outgoing, claim) {
            (Outgoing::Claim | Outgoing::Both, Some(claim)) => {
                let store = store.clone();
                self.beside = Some(Box::pin(async move { store.claim(claim).await }));
                None
            }
            (_, claim) => claim,
        };
        if claim.is_none() && (owed == 0 || sent.is_some()) {
            // A worker whose handlers run may be held up by one of them.
            let idle = sent.is_none() && self.claims.is_done() && self.desk.is_clear();
            if idle && !drains && !self.until_empty {
                self.claims.leave(&self.parts, &self.desk, now);
            }
            return;
        }
        let limits = store.limits();
        let most = SETTLES_MAX.min(limits.commits_max);
        let claims = claim.is_some();
        let exchange = Exchange {
            commits: self.desk.send(most, limits.call_bytes_max),
            renew: None,
            claim,
        };
        let answer = Box::pin(async move { store.exchange(exchange).await });
        self.sent = Some(Sent { answer, claims });
    }

    pub(super) fn exchanged(&mut self, answer: Result<Exchanged>, now: Duration) {
        let claims = self.sent.take().is_some_and(|sent| sent.claims);
        let exchanged = match answer {
            Ok(exchanged) => exchanged,
            Err(error) => {
                self.desk.undelivered();
                if claims {
                    self.claims.failed(&error);
                }
                return self.trouble(error, now);
            }
        };
        if exchanged.commits.len() != self.desk.in_flight() {
            self.desk.undelivered();
            let wrong = Error::Corrupt("the store did not answer every commit".into());
            if claims {
                self.claims.failed(&wrong);
            }
            return self.trouble(wrong, now);
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
        let claimed = exchanged.claimed.unwrap_or_else(|| Err(unanswered()));
        match claims.then_some(claimed) {
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
        self.claims
            .carried(carried.as_ref().map(|carried| carried.sent));
        match carried.map_or_else(|| Err(unheard()), |carried| carried.claimed) {
            Ok(claimed) => self.claimed(claimed, now),
            // That may have been for what was submitted. If it was not, the worker will see by itself.
            Err(error) => {
                self.claims.wake();
                self.claims.failed(&error);
            }
        }
    }

    /// The store has answered the claim that went beside an exchange. Whether it is in trouble with
    /// exchanges is for them to say.
    pub(super) fn claimed_beside(&mut self, answer: Result<Claimed>, now: Duration) {
        self.beside = None;
        match answer {
            Ok(claimed) => self.claimed(claimed, now),
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
        if self.until_empty {
            // What the answer made runnable is there now. A hint would say so, but nobody has to send one.
            self.claims.wake();
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

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 100;

    #[test]
    fn answers_and_claims_go_together_unless_there_are_many() {
        let outgoing = |owed, sent, asks| outgoing(Some(MANY), owed, sent, asks);
        for owed in [0, 1, MANY - 1] {
            assert_eq!(outgoing(owed, None, false), Outgoing::Together);
            assert_eq!(outgoing(owed, None, true), Outgoing::Nothing);
        }
        assert_eq!(outgoing(MANY, None, false), Outgoing::Both);
        assert_eq!(outgoing(MANY, None, true), Outgoing::Both);
        assert_eq!(outgoing(0, Some(MANY), false), Outgoing::Claim);
        assert_eq!(outgoing(0, Some(MANY - 1), false), Outgoing::Nothing);
        assert_eq!(outgoing(2 * MANY, Some(MANY), true), Outgoing::Nothing);
    }

    #[test]
    fn a_store_that_writes_one_thing_at_a_time_gets_one_call_at_a_time() {
        for owed in [0, 1, MANY, 10 * MANY] {
            assert_eq!(outgoing(None, owed, None, false), Outgoing::Together);
            for sent in [0, 1, MANY, 10 * MANY] {
                assert_eq!(outgoing(None, owed, Some(sent), false), Outgoing::Nothing);
            }
        }
    }
}
