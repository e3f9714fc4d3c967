//! What all resources together say about the locks.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::resource::{Entry, Event, Resource};
use super::{holder, stage};

/// What all resources together say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// Writes that were taken.
    pub(super) accepted: u64,
    /// Writes that came too late.
    pub(super) refused: u64,
    /// Turns in which the lock was lost.
    pub(super) lost: u64,
    pub(super) waited_ms_max: u64,
    /// How often each holder has had a lock and come to the end of it, over all its lives.
    pub(super) turns: BTreeMap<String, u64>,
    /// Who was told that it had the lock when another had it.
    pub(super) deceived: u64,
    /// Tokens that two had.
    pub(super) shared: u64,
    /// Writes that were taken after one with a higher token.
    pub(super) late: u64,
}

impl Ledger {
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut ledger = Self::default();
        for lock in 0..stage::LOCKS {
            let resource = Resource::new(folder, &holder::lock_name(lock));
            ledger.add(&resource.entries()?);
        }
        Ok(ledger)
    }

    /// Adds what one resource says.
    fn add(&mut self, entries: &[Entry]) {
        let (mut highest, mut owners) = (0, BTreeMap::new());
        for entry in entries {
            let owner = owners.entry(entry.token).or_insert(&entry.holder);
            self.shared += u64::from(*owner != &entry.holder);
            match entry.event {
                Event::Accepted => {
                    self.accepted += 1;
                    self.late += u64::from(entry.token < highest);
                    highest = highest.max(entry.token);
                }
                Event::Refused => self.refused += 1,
                Event::Deceived => {
                    self.refused += 1;
                    self.deceived += 1;
                }
                Event::Turn { waited_ms, lost } => {
                    let name = entry.holder.split('/').next().unwrap_or_default();
                    *self.turns.entry(name.to_owned()).or_default() += 1;
                    self.lost += u64::from(lost);
                    self.waited_ms_max = self.waited_ms_max.max(waited_ms);
                }
            }
        }
    }

    /// Whoever of these has not had so many more turns than before.
    pub(super) fn behind(&self, before: &Self, names: &[String], turns: u64) -> Vec<String> {
        let of = |ledger: &Self, name: &String| ledger.turns.get(name).copied().unwrap_or(0);
        let behind = names
            .iter()
            .filter(|name| of(self, name) < of(before, name) + turns);
        behind.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(entries: &[(u64, &str, Event)]) -> Ledger {
        let entry = |(token, holder, event): &(u64, &str, Event)| Entry {
            token: *token,
            holder: (*holder).into(),
            event: event.clone(),
        };
        let mut ledger = Ledger::default();
        ledger.add(&entries.iter().map(entry).collect::<Vec<_>>());
        ledger
    }

    const TURN: Event = Event::Turn {
        waited_ms: 40,
        lost: true,
    };

    #[test]
    fn what_must_not_be_is_found() {
        use Event::{Accepted, Deceived, Refused};
        let good = ledger(&[
            (3, "a/1", Accepted),
            (3, "a/1", Accepted),
            (5, "b/1", Accepted),
            (3, "a/1", Refused),
            (3, "a/1", TURN),
        ]);
        assert_eq!((good.accepted, good.refused, good.lost), (3, 1, 1));
        assert_eq!((good.deceived, good.shared, good.late), (0, 0, 0));
        assert_eq!(good.waited_ms_max, 40);
        let late = ledger(&[(5, "b/1", Accepted), (3, "a/1", Accepted)]);
        assert_eq!((late.late, late.shared), (1, 0));
        let shared = ledger(&[(5, "b/1", Accepted), (5, "b/2", Accepted)]);
        assert_eq!((shared.late, shared.shared), (0, 1));
        let deceived = ledger(&[(5, "b/1", Accepted), (3, "a/1", Deceived)]);
        assert_eq!((deceived.refused, deceived.deceived), (1, 1));
    }

    #[test]
    fn who_gets_no_turn_is_named() {
        let before = ledger(&[(1, "a/1", TURN), (2, "b/1", TURN)]);
        let now = ledger(&[(1, "a/1", TURN), (2, "b/1", TURN), (3, "a/2", TURN)]);
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(now.behind(&before, &names, 1), ["b", "c"]);
        assert_eq!(now.behind(&before, &names, 0), [] as [&str; 0]);
    }
}
