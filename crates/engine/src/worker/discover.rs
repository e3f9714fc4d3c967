//! Which kinds its queues have, for a worker that takes whatever is there.
//!
//! Claims name lanes, so such a worker has to know them: it counts the tasks of its queues now and
//! then, and takes in the lanes that wake-ups name at once. Lanes without live tasks are let go, so
//! that kinds of the past cost nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::store::{Counts, LaneCounts};
use plimsoll_core::task::{Lane, Status};
use plimsoll_core::wake::Wake;
use plimsoll_core::{Name, Result};

use super::driver::{Driver, Flight};

/// What a worker knows of the kinds in its queues.
pub(super) struct Discovery {
    queues: Vec<Name>,
    /// The lanes of kinds with a handler of their own: these are always asked for.
    fixed: BTreeSet<Lane>,
    /// Lanes that wake-ups named since the last look was sent, which may have missed them.
    hinted: BTreeSet<Lane>,
    pub(super) look_at: Duration,
    pub(super) looking: Option<Flight<Result<Vec<LaneCounts>>>>,
    /// Whether something may have submitted tasks since the last look was sent.
    stale: bool,
}

impl Discovery {
    pub(super) fn new(queues: Vec<Name>, fixed: &[Lane]) -> Self {
        Self {
            queues,
            fixed: fixed.iter().cloned().collect(),
            hinted: BTreeSet::new(),
            look_at: Duration::ZERO,
            looking: None,
            stale: true,
        }
    }

    /// Whether nothing can have come since the last look.
    pub(super) fn is_done(&self) -> bool {
        !self.stale && self.looking.is_none()
    }

    /// An answer was committed, perhaps with tasks of new kinds.
    pub(super) fn doubt(&mut self) {
        self.stale = true;
    }

    /// Takes in the lanes that a wake-up names.
    pub(super) fn hear(&mut self, wake: &Wake, lanes: &mut Vec<Lane>, soon: Duration) {
        if wake.any_lane {
            self.stale = true;
            self.look_at = self.look_at.min(soon);
        }
        for lane in &wake.lanes {
            if self.queues.contains(&lane.queue) {
                self.hinted.insert(lane.clone());
                if !lanes.contains(lane) {
                    lanes.push(lane.clone());
                }
            }
        }
    }

    /// The lanes to claim from, by what a look found.
    fn lanes(&self, counted: Vec<LaneCounts>) -> Vec<Lane> {
        let live = |counts: &LaneCounts| {
            let live = [Status::Scheduled, Status::Pending, Status::Claimed];
            live.iter()
                .any(|status| counts.by_status.contains_key(status))
        };
        let found = counted.into_iter().filter(live).map(|counts| counts.lane);
        let all = found
            .chain(self.hinted.iter().cloned())
            .chain(self.fixed.iter().cloned());
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Driver {
    /// Looks which kinds there are, if it is time.
    pub(super) fn discover(&mut self, now: Duration, last_look: bool) {
        let (Some(discovery), None) = (&mut self.discovery, self.drain) else {
            return;
        };
        let due = now >= discovery.look_at || (last_look && discovery.stale);
        if !due || discovery.looking.is_some() || now < self.pause_until {
            return;
        }
        discovery.stale = false;
        discovery.hinted.clear();
        let store = self.parts.engine.store().clone();
        let queues = discovery.queues.clone();
        discovery.looking = Some(Box::pin(async move {
            let mut all = Vec::new();
            for queue in queues {
                let queue = Some(queue);
                all.extend(store.counts(Counts { queue, kind: None }).await?);
            }
            Ok(all)
        }));
    }

    pub(super) fn discovered(&mut self, answer: Result<Vec<LaneCounts>>, now: Duration) {
        let Some(discovery) = &mut self.discovery else {
            return;
        };
        discovery.looking = None;
        let hinted = self.parts.engine.store().capabilities().remote_wakeups;
        discovery.look_at = now + self.parts.settings.idle_poll(hinted);
        match answer {
            Ok(counted) => {
                let lanes = discovery.lanes(counted);
                if lanes.iter().any(|lane| !self.parts.lanes.contains(lane)) {
                    self.claims.wake();
                }
                self.parts.lanes = lanes;
            }
            Err(error) => {
                tracing::warn!(%error, "the kinds of a queue cannot be counted: trying again");
                discovery.stale = true;
                discovery.look_at = now + self.parts.settings.pause_max();
            }
        }
    }
}
