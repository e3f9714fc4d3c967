//! The registry: who works is there, and who does not is offline before long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::Key;
use plimsoll_core::record::Record;
use plimsoll_core::store::{Commit, Write};
use plimsoll_core::task::WorkerId;

use super::Checker;

pub(crate) const WORKERS: &str = "plimsoll.workers.";

/// From then on, nobody who lives is marked as offline: what went wrong with its heartbeats is over.
const CALM: Duration = Duration::from_secs(40);
/// How long a worker may be shown wrongly when nothing else is left to do.
const WRONG_MAX: Duration = Duration::from_secs(120);

/// What is known of workers.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// The records of those who live, by their processes.
    alive: BTreeMap<String, String>,
    /// The records of those who said that they end.
    left: BTreeSet<Key>,
    /// Since when nothing but the registry is left to wait for.
    wrong_since: Option<Duration>,
}

impl Checker {
    /// A worker begins.
    pub(crate) fn works(&mut self, who: &str, worker: &WorkerId) {
        let key = format!("{WORKERS}{}/{}", worker.name, worker.incarnation);
        self.registry.alive.insert(who.to_owned(), key);
    }

    /// A process is gone.
    pub(crate) fn died(&mut self, who: &str) {
        self.registry.alive.remove(who);
        self.forget_wants(who);
    }

    /// An actor is about to write records of workers: its own when it ends.
    pub(super) fn asked_of_registry(&mut self, who: &str, commit: &Commit) {
        for write in &commit.writes {
            let Write::Put(put) = write else { continue };
            let own = self.registry.alive.get(who).map(String::as_str) == Some(put.key.as_str());
            let ends = (put.fields.iter())
                .any(|(name, value)| name.as_str() == "status" && value == "offline");
            if own && ends {
                self.registry.left.insert(put.key.clone());
            }
        }
    }

    /// Whoever lives is not marked once nothing has gone wrong for a while.
    pub(super) fn look_at_worker(&mut self, record: &Record) {
        if !record.key.as_str().starts_with(WORKERS) || !is_offline(record) {
            return;
        }
        let left = self.registry.left.contains(&record.key);
        self.figures.workers_marked += u64::from(!left);
        let calm = (self.calm_since).is_some_and(|since| self.now > since + CALM);
        if calm && !left && self.is_alive(&record.key) {
            self.blame("registry", format!("{} lives, and is marked", record.key));
        }
    }

    fn is_alive(&self, key: &Key) -> bool {
        (self.registry.alive.values()).any(|alive| alive == key.as_str())
    }

    /// Whether the registry shows who lives and who does not. It is asked when nothing else is left
    /// to wait for.
    pub(crate) fn registry_is_right(&mut self) -> bool {
        let records = self.records(WORKERS);
        let wrong = (records.iter()).find(|record| {
            is_offline(record) == self.is_alive(&record.key)
                && !(is_offline(record) && self.registry.left.contains(&record.key))
        });
        let missing = (self.registry.alive.values())
            .find(|alive| !records.iter().any(|record| record.key.as_str() == *alive));
        let wrong = wrong
            .map(|record| record.key.to_string())
            .or_else(|| missing.cloned());
        let Some(wrong) = wrong else { return true };
        let since = *self.registry.wrong_since.get_or_insert(self.now);
        if self.now > since + WRONG_MAX {
            self.blame("registry", format!("{wrong} is shown wrongly"));
        }
        false
    }
}

fn is_offline(record: &Record) -> bool {
    record
        .field("status")
        .is_some_and(|status| status == "offline")
}
