//! Who listens to which namespace, and up to which revision they have been told.
//!
//! The writer tells what it wrote, lane by lane. What other processes wrote is noticed by the
//! writer, when it finds a namespace further on than it left it, and by the watcher; listeners are
//! then told to look at everything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::Revision;
use plimsoll_core::wake::{Hub, Wake};

#[derive(Debug, Default)]
pub(crate) struct Hints {
    namespaces: Mutex<BTreeMap<i64, Heard>>,
}

#[derive(Debug, Default)]
struct Heard {
    hub: Arc<Hub>,
    up_to: Revision,
}

impl Hints {
    /// Where listeners of a namespace are told.
    pub(crate) fn hub(&self, ns: i64) -> Arc<Hub> {
        self.lock().entry(ns).or_default().hub.clone()
    }

    /// The namespaces that somebody may listen to.
    pub(crate) fn namespaces(&self) -> Vec<i64> {
        self.lock().keys().copied().collect()
    }

    /// This process has taken a namespace from one revision to another.
    pub(crate) fn wrote(&self, ns: i64, from: Revision, to: Revision, wake: &Wake) {
        if let Some(heard) = self.lock().get_mut(&ns) {
            if from > heard.up_to {
                heard.hub.notify(&everything());
            }
            heard.up_to = heard.up_to.max(to);
            heard.hub.notify(wake);
        }
    }

    /// This process has written history.
    pub(crate) fn appended(&self, ns: i64) {
        if let Some(heard) = self.lock().get(&ns) {
            heard.hub.notify(&Wake {
                history: true,
                ..Wake::default()
            });
        }
    }

    /// The file shows a namespace at this revision.
    pub(crate) fn saw(&self, ns: i64, revision: Revision) {
        if let Some(heard) = self.lock().get_mut(&ns)
            && revision > heard.up_to
        {
            heard.up_to = revision;
            heard.hub.notify(&everything());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Heard>> {
        self.namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn everything() -> Wake {
    Wake {
        any_lane: true,
        history: true,
        leases: true,
        logs: true,
        ..Wake::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> Wake {
        Wake {
            history: true,
            ..Wake::default()
        }
    }

    fn logs() -> Wake {
        Wake {
            logs: true,
            ..Wake::default()
        }
    }

    fn at(revision: u64) -> Revision {
        Revision::new(revision)
    }

    #[test]
    fn what_this_process_wrote_is_told_once_and_as_it_was() {
        let hints = Hints::default();
        let mut listener = hints.hub(1).listen();
        hints.wrote(1, at(0), at(3), &logs());
        assert_eq!(listener.take(), logs());
        hints.appended(1);
        assert_eq!(listener.take(), history());
        hints.saw(1, at(3));
        assert!(listener.take().is_empty());
    }

    #[test]
    fn what_others_wrote_is_told_once_whoever_notices() {
        let hints = Hints::default();
        let mut listener = hints.hub(1).listen();
        hints.saw(1, at(2));
        assert_eq!(listener.take(), everything());
        hints.saw(1, at(2));
        assert!(listener.take().is_empty());
        // Somebody wrote 3 and 4 before this process wrote 5: the watcher would see only 5.
        hints.wrote(1, at(4), at(5), &logs());
        assert_eq!(listener.take(), everything());
        hints.saw(1, at(5));
        assert!(listener.take().is_empty());
    }

    #[test]
    fn namespaces_do_not_hear_each_other() {
        let hints = Hints::default();
        let mut other = hints.hub(2).listen();
        hints.hub(1);
        hints.wrote(1, at(0), at(1), &logs());
        hints.appended(1);
        hints.saw(1, at(9));
        assert!(other.take().is_empty());
    }
}
