//! Wake-ups: hints that a look at the store may be worth it.
//!
//! A store feeds its [`Hub`] after each commit and with what it hears from other processes; each
//! [`Listener`] gets everything since its last look as one [`Wake`]. A listener that never looks
//! costs a bounded amount of memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use crate::change::{Change, TaskEvent};
use crate::task::{Lane, Status};

/// How many lanes a wake-up names before it says "any".
const LANES_MAX: usize = 64;

/// What may be worth a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// Lanes with tasks that became runnable, or that are scheduled earlier than before.
    pub lanes: BTreeSet<Lane>,
    /// More lanes than can be named.
    pub any_lane: bool,
    /// There is new history.
    pub history: bool,
    /// A task that somebody holds was asked to stop or was taken away.
    pub leases: bool,
    /// A log has new lines.
    pub logs: bool,
}

impl Wake {
    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What these changes are worth a look at.
    pub fn of(changes: &[Change]) -> Self {
        let mut wake = Self {
            history: !changes.is_empty(),
            ..Self::default()
        };
        for change in changes {
            let Change::Task(task) = change else { continue };
            match (task.status, task.event) {
                (Status::Scheduled | Status::Pending, event) => {
                    wake.lanes.insert(task.lane.clone());
                    // A retry may have taken the task away from its holder.
                    wake.leases |= event == TaskEvent::Retried;
                }
                (Status::Claimed, event) => wake.leases |= event == TaskEvent::CancelRequested,
                (Status::Completed | Status::Failed | Status::Cancelled, _) => {}
            }
        }
        wake
    }

    /// Takes in another wake-up. More lanes than can be named become "any".
    pub fn absorb(&mut self, other: &Self) {
        self.history |= other.history;
        self.leases |= other.leases;
        self.logs |= other.logs;
        self.any_lane |= other.any_lane;
        if !self.any_lane {
            self.lanes.extend(other.lanes.iter().cloned());
        }
        if self.lanes.len() > LANES_MAX {
            self.any_lane = true;
        }
        if self.any_lane {
            self.lanes.clear();
        }
    }
}

/// Where a store tells its listeners.
#[derive(Debug, Default)]
pub struct Hub {
    listeners: Mutex<Vec<Weak<Ear>>>,
}

#[derive(Debug, Default)]
struct Ear {
    heard: Mutex<Wake>,
    ring: Notify,
}

impl Hub {
    /// Tells all listeners.
    pub fn notify(&self, wake: &Wake) {
        if wake.is_empty() {
            return;
        }
        let mut listeners = (self.listeners.lock()).unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| match listener.upgrade() {
            None => false,
            Some(ear) => {
                let mut heard = ear.heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.absorb(wake);
                drop(heard);
                ear.ring.notify_one();
                true
            }
        });
    }

    /// A new listener, which hears what comes from now on.
    pub fn listen(&self) -> Listener {
        let ear = Arc::new(Ear::default());
        let mut listeners = (self.listeners.lock()).unwrap_or_else(PoisonError::into_inner);
        listeners.push(Arc::downgrade(&ear));
        Listener { ear }
    }
}

/// Hears the wake-ups of one store.
#[derive(Debug)]
pub struct Listener {
    ear: Arc<Ear>,
}

impl Listener {
    /// Waits until there is something, and takes all of it.
    pub async fn next(&mut self) -> Wake {
        loop {
            let wake = self.take();
            if !wake.is_empty() {
                return wake;
            }
            self.ear.ring.notified().await;
        }
    }

    /// Takes what there is now, perhaps nothing.
    pub fn take(&mut self) -> Wake {
        let mut heard = (self.ear.heard.lock()).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    fn lane(n: usize) -> Wake {
        Wake {
            lanes: BTreeSet::from([Lane::new("q", format!("k{n}")).unwrap()]),
            ..Wake::default()
        }
    }

    #[tokio::test]
    async fn a_listener_waits_and_then_gets_everything_at_once() {
        let hub = Hub::default();
        let mut listener = hub.listen();
        {
            let mut next = Box::pin(listener.next());
            assert_eq!(futures::poll!(&mut next), Poll::Pending);
            hub.notify(&lane(1));
            hub.notify(&lane(2));
            assert_eq!(next.await.lanes.len(), 2);
        }
        assert!(listener.take().is_empty());
    }

    #[test]
    fn a_listener_that_never_looks_stays_small() {
        let hub = Hub::default();
        let mut listener = hub.listen();
        for n in 0..=LANES_MAX {
            hub.notify(&lane(n));
        }
        hub.notify(&lane(0));
        let wake = listener.take();
        assert!(wake.any_lane && wake.lanes.is_empty());
    }

    #[test]
    fn a_dropped_listener_is_forgotten() {
        let hub = Hub::default();
        drop(hub.listen());
        hub.notify(&lane(1));
        assert!(hub.listeners.lock().unwrap().is_empty());
    }
}
