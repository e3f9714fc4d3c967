//! Leases as their holders were told of them.

use std::collections::BTreeMap;

use plimsoll_core::Timestamp;
use plimsoll_core::change::TaskEvent;
use plimsoll_core::store::{Claimed, Renew, Renewal};
use plimsoll_core::task::Holder;

use super::{Attempt, Checker};

/// What is known of leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Until when somebody was told that its lease runs.
    told: BTreeMap<Attempt, Timestamp>,
    /// When leases ran out.
    expired: BTreeMap<Attempt, Timestamp>,
}

impl Checker {
    /// Of the leases that somebody is about to renew, those that have ended for all to see.
    pub(crate) fn ended_of(&self, renew: &Renew) -> Vec<bool> {
        let ended = |holder: &Holder| self.endings.contains_key(&(holder.task, holder.fence));
        renew.holders.iter().map(ended).collect()
    }

    /// A holder was told what became of its leases, some of which had ended before it asked.
    pub(crate) fn prolonged(&mut self, renew: &Renew, ended: &[bool], renewals: &[Renewal]) {
        for ((holder, ended), renewal) in renew.holders.iter().zip(ended).zip(renewals) {
            let (Renewal::Held { until } | Renewal::CancelRequested { until, .. }) = renewal else {
                continue;
            };
            if *ended {
                let name = self.name(holder.task);
                let wrong = format!("{name}#{} had ended, and is renewed", holder.fence);
                self.blame("acknowledged", wrong);
            }
            self.told_of_lease((holder.task, holder.fence), *until);
        }
    }

    /// A worker was told how long its leases run.
    pub(crate) fn leased(&mut self, claimed: &Claimed) {
        for task in &claimed.tasks {
            if let Some(lease) = &task.lease {
                self.told_of_lease((task.id(), task.fence), lease.until);
            }
        }
    }

    fn told_of_lease(&mut self, attempt: Attempt, until: Timestamp) {
        let told = self.leases.told.entry(attempt).or_insert(until);
        *told = until.max(*told);
        self.compare_lease(attempt);
    }

    pub(super) fn look_at_lease(&mut self, attempt: Attempt, event: TaskEvent, at: Timestamp) {
        if event == TaskEvent::Expired {
            self.leases.expired.insert(attempt, at);
            self.figures.leases_expired += 1;
            self.compare_lease(attempt);
        }
    }

    fn compare_lease(&mut self, attempt: Attempt) {
        let told = self.leases.told.get(&attempt).copied();
        let expired = self.leases.expired.get(&attempt).copied();
        if let (Some(until), Some(at)) = (told, expired)
            && at < until
        {
            let name = self.name(attempt.0);
            let wrong = format!(
                "{name}#{} runs until {until}, and ran out at {at}",
                attempt.1
            );
            self.blame("expiry", wrong);
        }
    }
}
