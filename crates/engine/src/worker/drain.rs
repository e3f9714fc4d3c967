//! The end of a worker: quiet, wait, release what is unstarted, signal, cut.

use std::time::Duration;

use super::Stop;
use super::context::Cause;
use super::desk::Desk;
use super::settings::Settings;

/// A worker that is about to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    soft_at: Duration,
    hard_at: Duration,
    /// When it ends even if the store did not take everything back: leases have run out by then.
    give_up_at: Duration,
    signalled: bool,
    cut: bool,
}

impl Drain {
    /// Follows what the worker was told: to drain, or to stop at once.
    pub(super) fn obey(
        drain: &mut Option<Self>,
        stop: Stop,
        desk: &mut Desk,
        settings: &Settings,
        now: Duration,
    ) {
        if stop == Stop::Go {
            return;
        }
        let drain = drain.get_or_insert_with(|| Self::new(settings, now));
        if stop == Stop::Now && drain.hard_at > now {
            drain.soft_at = now;
            drain.hard_at = now;
            drain.give_up_at = now + settings.lease;
        }
        if now >= drain.soft_at && !drain.signalled {
            drain.signalled = true;
            desk.stop_all(&Cause::Draining);
        }
        if now >= drain.hard_at && !drain.cut {
            drain.cut = true;
            desk.cut_all(&Cause::Draining);
        }
        if desk.running.is_empty() {
            // Nothing is renewed for the sake of handlers any more.
            drain.give_up_at = drain.give_up_at.min(now + settings.lease);
        }
    }

    fn new(settings: &Settings, now: Duration) -> Self {
        let soft_at = now + settings.drain_soft;
        let hard_at = soft_at + settings.drain_hard;
        Self {
            soft_at,
            hard_at,
            give_up_at: hard_at + settings.lease,
            signalled: false,
            cut: false,
        }
    }

    /// When something is to be done next.
    pub(super) fn next_event(&self, now: Duration) -> Duration {
        let events = [self.soft_at, self.hard_at, self.give_up_at];
        let next = events.into_iter().filter(|at| *at > now).min();
        next.unwrap_or(self.give_up_at)
    }

    /// Whether nothing more is to be hoped for.
    pub(super) fn gives_up(&self, now: Duration) -> bool {
        now >= self.give_up_at
    }
}
