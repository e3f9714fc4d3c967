//! Renews the leases of everything a worker holds or owes, in one call, and hears who is to stop.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::store::{Renew, Renewal};
use plimsoll_core::task::Holder;

use super::Answer;
use super::driver::{Driver, Flight};
use super::running::attempt_of;
use super::settle::Settling;
use crate::telemetry::Renewed;

/// A renewal under way.
pub(super) struct Renewing {
    holders: Vec<Holder>,
    pub(super) sent: Duration,
    pub(super) answer: Flight<Result<Vec<Renewal>>>,
}

impl Driver {
    /// Renews what is due, unless that is under way. Trouble with other calls is no reason to wait.
    pub(super) fn renew(&mut self, now: Duration) {
        if self.drain.is_some() && self.desk.running.is_empty() {
            // What is left is to be taken back. If the store does not take it, others must not have
            // to wait for longer than the leases run now.
            self.renewing = None;
            return;
        }
        let longest = self.parts.settings.renewal_max();
        if let Some(renewing) = (self.renewing).take_if(|renewing| now >= renewing.sent + longest) {
            let worker_id = &self.parts.id.name;
            tracing::warn!(%worker_id, "a renewal of leases is not answered: trying again");
            let telemetry = self.parts.engine.telemetry();
            telemetry.renewed(Renewed::Unanswered, renewing.holders.len());
        }
        if self.renewing.is_some() || self.desk.renew_at().is_none_or(|at| at > now) {
            return;
        }
        let store = self.parts.engine.store().clone();
        let holders = self.desk.to_renew(store.limits().leases_max);
        self.lease_hint = false;
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
            sent: now,
            answer: Box::pin(async move { store.renew(renew).await }),
        });
    }

    pub(super) fn renewed(&mut self, answer: Result<Vec<Renewal>>, now: Duration) {
        let Some(renewing) = self.renewing.take() else {
            return;
        };
        let telemetry = self.parts.engine.telemetry();
        let settings = &self.parts.settings;
        let renewals = match answer {
            Ok(renewals) => renewals,
            Err(error) => {
                let (worker_id, leases) = (&self.parts.id.name, renewing.holders.len());
                tracing::warn!(%worker_id, leases, %error, "leases cannot be renewed: trying again");
                telemetry.renewed(Renewed::Unanswered, leases);
                return self.desk.plan_renewal(settings, now + settings.lease / 20);
            }
        };
        let (mut held, mut cancelled, mut lost) = (BTreeSet::new(), Vec::new(), 0);
        for (holder, renewal) in renewing.holders.into_iter().zip(renewals) {
            let attempt = attempt_of(&holder);
            match renewal {
                Renewal::Held { .. } => drop(held.insert(attempt)),
                Renewal::CancelRequested { reason, .. } => {
                    held.insert(attempt);
                    cancelled.push((attempt, reason));
                }
                Renewal::Lost(_) => {
                    lost += 1;
                    self.desk.lose(attempt);
                }
            }
        }
        telemetry.renewed(Renewed::Held, held.len().saturating_sub(cancelled.len()));
        telemetry.renewed(Renewed::CancelRequested, cancelled.len());
        telemetry.renewed(Renewed::Lost, lost);
        if lost > 0 {
            tracing::warn!(worker_id = %self.parts.id.name, lost, "leases are lost");
        }
        self.desk.renewed(&held, renewing.sent, settings);
        let cut_at = now + settings.cancel_grace;
        for (attempt, reason) in cancelled {
            if let Some(hold) = self.desk.cancel(attempt, reason.clone(), cut_at) {
                let ids = self.parts.engine.ids();
                let answer = Answer::Cancel(reason);
                let settling = Settling::new(&hold.holder, answer, hold.renewed, ids);
                self.desk.owe(settling);
            }
        }
        self.desk.plan_renewal(settings, now);
        if self.lease_hint {
            // It came while this renewal was under way, which may have been too early for it.
            self.desk.renew_now(now);
        }
    }

    /// Somebody may have asked to stop a task: the next renewal tells.
    pub(super) fn hear_of_leases(&mut self, now: Duration) {
        self.lease_hint = true;
        self.desk.renew_now(now);
        self.claims.hear_of_leases();
    }
}
