//! Bugs in what is kept in records: locks, the registry, the archive.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::record::Record;
use plimsoll_core::store::{
    Commit, Guard, List, Outcome, Page, Put, Receipt, Scan, Selector, Write,
};
use plimsoll_core::{Key, Result, Revision, StoreExt};

use super::Planted;
use super::states::is_state;
use crate::check::{ARCHIVE, LOCKS, WAITERS, WORKERS};
use crate::dice::Dice;

impl Planted {
    pub(super) fn spoil_records(self, commit: &mut Commit, store: &Arc<MemoryStore>) {
        match self {
            Self::UnguardedLock => {
                let free =
                    |guard: &Guard| matches!(guard, Guard::RecordAbsent(key) if is_lock(key));
                commit.guards.retain(|guard| !free(guard));
            }
            Self::AnybodyReleases | Self::AnybodyRenews => {
                // The first renewal tells the token: that would be seen at once.
                let renews = matches!(commit.writes.as_slice(), [Write::Touch(..)]);
                let ends = matches!(
                    commit.writes.first(),
                    Some(Write::Put(_) | Write::Delete(_))
                );
                if (self == Self::AnybodyRenews && renews)
                    || (self == Self::AnybodyReleases && ends)
                {
                    ignore_holder(&mut commit.guards, store);
                }
            }
            Self::ArchivedTwice if archives(commit) => {
                (commit.writes).retain(|write| !matches!(write, Write::DeleteTask(_)));
            }
            Self::NeverArchived if archives(commit) => {
                commit
                    .writes
                    .retain(|write| !matches!(write, Write::Put(_)));
            }
            _ => (commit.writes.iter_mut()).for_each(|write| self.spoil_record(write)),
        }
    }

    fn spoil_record(self, write: &mut Write) {
        let minute = Duration::from_secs(60);
        match (self, write) {
            (Self::EndlessLock, Write::Put(put)) if is_lock(&put.key) && !is_reserved(put) => {
                put.ttl = put.ttl.map(|ttl| ttl * 1_000);
            }
            (Self::ShortLock, Write::Put(put)) if is_lock(&put.key) => {
                put.ttl = put.ttl.map(|ttl| ttl / 4);
            }
            (Self::UnmarkedWorker, Write::Merge(merge)) if is_worker(&merge.key) => {
                let status =
                    |(name, _): &(&_, &mut _)| plimsoll_core::Name::as_str(name) == "status";
                if let Some((_, value)) = merge.set.iter_mut().find(status) {
                    *value = "active".into();
                }
            }
            (Self::DeafRegistry, Write::Touch(key, ttl)) if is_worker(key) => {
                *ttl = ttl.map(|ttl| ttl.saturating_sub(minute));
            }
            _ => {}
        }
    }

    /// Which of these commits are answered with a wrong revision, and with which.
    pub(crate) fn misleads(self, commits: &[Commit]) -> Vec<(usize, Revision)> {
        let wrong = |commit: &Commit| match (self, commit.writes.first()?) {
            (Self::ReusedToken, Write::Put(put)) => is_lock(&put.key).then_some(Revision::new(1)),
            (Self::HiddenWrite, Write::Merge(merge)) => {
                is_state(&merge.key).then_some(Revision::ZERO)
            }
            _ => None,
        };
        let places = commits.iter().enumerate();
        let misled = places.filter_map(|(place, commit)| Some((place, wrong(commit)?)));
        misled.collect()
    }

    /// What those who made them are told.
    pub(crate) fn mislead(misled: &[(usize, Revision)], results: &mut [Result<Receipt>]) {
        for (place, wrong) in misled {
            let Some(Ok(receipt)) = results.get_mut(*place) else {
                continue;
            };
            if let Some(Outcome::Written { revision, .. }) = receipt.outcomes.first_mut() {
                *revision = *wrong;
            }
        }
    }

    /// What the store sees instead of this list.
    pub(crate) fn list(self, mut list: List) -> List {
        if let (Self::EarlyArchive, Selector::KeptFor(_, age)) = (self, &mut list.selector) {
            *age /= 2;
        }
        list
    }

    /// What the store sees instead of this scan, and what is shown of it.
    pub(crate) fn scan(self, mut scan: Scan) -> Scan {
        if self == Self::LastInLine && scan.prefix.as_str().starts_with(WAITERS) {
            scan.limit = 1_000;
        }
        scan
    }

    /// What is shown instead of this page.
    pub(crate) fn records(self, mut page: Page<Record>, prefix: &str, dice: &Dice) -> Page<Record> {
        self.spoil_rows(&mut page.rows, prefix, dice);
        let in_line = |record: &Record| record.key.as_str().starts_with(WAITERS);
        if self == Self::LastInLine && page.rows.iter().any(in_line) {
            page.rows.reverse();
        }
        page
    }
}

fn is_lock(key: &Key) -> bool {
    key.as_str().starts_with(LOCKS)
}

fn is_reserved(put: &Put) -> bool {
    put.fields.keys().any(|field| field.as_str() == "reserved")
}

fn is_worker(key: &Key) -> bool {
    key.as_str().starts_with(WORKERS)
}

fn archives(commit: &Commit) -> bool {
    commit
        .writes
        .iter()
        .any(|write| matches!(write, Write::Put(put) if put.key.as_str().starts_with(ARCHIVE)))
}

/// Takes whoever has the lock for the one who says so.
fn ignore_holder(guards: &mut [Guard], store: &Arc<MemoryStore>) {
    for guard in guards {
        let Guard::Field(key, field, value) = guard else {
            continue;
        };
        let record = store
            .record(key)
            .now_or_never()
            .and_then(Result::ok)
            .flatten();
        if let Some(record) = record.filter(|_| is_lock(key)) {
            *value = record.field(field.as_str()).cloned();
        }
    }
}
