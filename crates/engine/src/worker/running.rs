//! A task that this worker holds, waiting or at work, and how long it may go on.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::task::{Holder, Task};
use plimsoll_core::{Fence, Name, TaskId};
use tokio::sync::watch;

use super::context::{Cause, Signal};
use super::lease::Trust;
use super::settings::Settings;

/// One claim of one task. A worker may hold a task again while a handler that lost it winds down.
pub(super) type Attempt = (TaskId, Fence);

/// What names an attempt.
pub(super) fn attempt_of(holder: &Holder) -> Attempt {
    (holder.task, holder.fence)
}

/// A claimed task.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) task: Task,
    pub(super) holder: Holder,
    pub(super) trust: Arc<Trust>,
    /// When the call was sent that claimed it. The store began to count then or later.
    sent: Duration,
    /// When its answer came. The store began to count then or earlier.
    pub(super) arrived: Duration,
    /// When the call was sent that claimed or renewed it last.
    pub(super) renewed: Duration,
}

impl Hold {
    pub(super) fn new(
        task: Task,
        holder: Holder,
        (sent, arrived): (Duration, Duration),
        settings: &Settings,
    ) -> Self {
        let mut hold = Self {
            task,
            holder,
            trust: Arc::new(Trust::default()),
            sent,
            arrived,
            renewed: sent,
        };
        hold.renew(sent, settings);
        hold
    }

    /// The lease goes on, by a call sent at this moment.
    pub(super) fn renew(&mut self, sent: Duration, settings: &Settings) {
        self.renewed = self.renewed.max(sent);
        let cut = self
            .lease_end(settings)
            .saturating_sub(settings.cut_margin());
        self.trust
            .set(self.deadline().map_or(cut, |at| at.min(cut)));
    }

    pub(super) fn lease_end(&self, settings: &Settings) -> Duration {
        self.renewed + settings.lease
    }

    /// When the attempt ends, whatever its lease, at the earliest.
    fn deadline(&self) -> Option<Duration> {
        (self.task.spec.attempt_timeout).map(|timeout| self.sent + timeout)
    }

    /// By when the store must think so too.
    pub(super) fn overdue_at(&self) -> Duration {
        let timeout = self.task.spec.attempt_timeout.unwrap_or_default();
        self.arrived + timeout
    }

    /// Whether its handler could begin now and not be stopped at once. A claim whose answer came
    /// late has to be renewed first.
    pub(super) fn is_fresh(&self, settings: &Settings, now: Duration) -> bool {
        now < self.renewed + settings.lease / 2
    }

    /// Whether there is no time left for an attempt.
    pub(super) fn is_overdue(&self, now: Duration) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    pub(super) fn attempt(&self) -> Attempt {
        attempt_of(&self.holder)
    }

    pub(super) fn kind(&self) -> &Name {
        &self.task.spec.lane.kind
    }
}

/// A task at work.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) hold: Hold,
    pub(super) since: Duration,
    signal: watch::Sender<Signal>,
    /// Why it was asked to stop.
    pub(super) told: Option<Cause>,
    /// Why it was dropped.
    pub(super) cut: Option<Cause>,
    /// That somebody asked to stop it, and until when it may go on.
    cancelled: Option<(Cause, Duration)>,
    /// The store said that somebody else has it, or nobody.
    pub(super) lost: bool,
}

impl Running {
    pub(super) fn new(hold: Hold, signal: watch::Sender<Signal>, now: Duration) -> Self {
        Self {
            hold,
            since: now,
            signal,
            told: None,
            cut: None,
            cancelled: None,
            lost: false,
        }
    }

    /// Asks the handler to stop, unless it was asked before.
    pub(super) fn stop(&mut self, cause: Cause) {
        if self.told.is_none() {
            self.told = Some(cause);
            self.tell();
        }
    }

    /// Drops the handler.
    pub(super) fn cut(&mut self, cause: Cause) {
        if self.cut.is_none() {
            self.told.get_or_insert_with(|| cause.clone());
            self.cut = Some(cause);
            self.tell();
        }
    }

    /// Somebody asked to stop it: it may go on until then.
    pub(super) fn cancel(&mut self, reason: Option<String>, until: Duration) {
        let cause = Cause::Cancelled { reason };
        self.cancelled.get_or_insert((cause.clone(), until));
        self.stop(cause);
    }

    /// The store says that this worker does not hold the task any more.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.hold.trust.set(Duration::ZERO);
        self.stop(Cause::LeaseLost);
    }

    /// The lease goes on. A handler that was asked to stop because it might not is told so, in case
    /// it has not listened yet.
    pub(super) fn renew(&mut self, sent: Duration, settings: &Settings) {
        self.hold.renew(sent, settings);
        if self.told == Some(Cause::LeaseLost) && self.cut.is_none() && !self.lost {
            self.told = self.cancelled.as_ref().map(|(cause, _)| cause.clone());
            self.tell();
        }
    }

    fn tell(&self) {
        self.signal.send_replace(Signal {
            cause: self.told.clone(),
            cut: self.cut.is_some(),
        });
    }

    /// When to ask it to stop, and why.
    pub(super) fn stop_at(&self, settings: &Settings) -> (Duration, Cause) {
        let lease = self.hold.lease_end(settings);
        let lease = lease.saturating_sub(settings.stop_margin());
        match self.hold.deadline() {
            Some(deadline) => {
                let timeout = deadline.saturating_sub(self.hold.sent);
                let warn = (timeout / 10).min(Duration::from_secs(1));
                earlier(
                    (lease, Cause::LeaseLost),
                    (deadline.saturating_sub(warn), Cause::Deadline),
                )
            }
            None => (lease, Cause::LeaseLost),
        }
    }

    /// When to drop it, and why.
    pub(super) fn cut_at(&self, settings: &Settings) -> (Duration, Cause) {
        let lease = self.hold.lease_end(settings);
        let mut cut = (
            lease.saturating_sub(settings.cut_margin()),
            Cause::LeaseLost,
        );
        if let Some(deadline) = self.hold.deadline() {
            cut = earlier((deadline, Cause::Deadline), cut);
        }
        match &self.cancelled {
            Some((cause, at)) => earlier((*at, cause.clone()), cut),
            None => cut,
        }
    }
}

fn earlier(one: (Duration, Cause), other: (Duration, Cause)) -> (Duration, Cause) {
    if one.0 <= other.0 { one } else { other }
}
