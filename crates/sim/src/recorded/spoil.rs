//! Bugs between clients and a store: each must be found, or the checkers are not worth much.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use plimsoll_core::change::{Change, Interest};
use plimsoll_core::record::Record;
use plimsoll_core::store::{
    ChangePage, Changes, Claimed, Commit, Exchange, Exchanged, Get, Guard, Renewal, Write,
};
use plimsoll_core::task::Task;
use plimsoll_core::{Ids, Key};

use crate::check::STATES;

/// Of how many calls that could be spoiled one is.
const ONE_OF: u64 = 8;

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Spoil {
    /// A read shows what another one has shown before.
    StaleRead,
    /// Two workers are told that they have the same task.
    SharedTask,
    /// Who follows the history is not shown an entry.
    LostEntry,
    /// What is to be added is added twice.
    DoubledAdd,
    /// A record is written whatever there is.
    UnguardedSwap,
    /// A lease that is lost is renewed.
    EndlessLease,
    /// A lock is taken whether another has it or not.
    UnguardedLock,
    /// A task is submitted without its key.
    LostKey,
    /// Those who follow the states of a job are not told one, though it is in the history.
    UntoldState,
    /// Who goes on from where it was is told a state again.
    RepeatedState,
}

/// Plants a bug now and then.
#[derive(Debug)]
pub(super) struct Spoiler {
    spoil: Spoil,
    ids: Ids,
    before: Mutex<Before>,
}

/// What was answered before.
#[derive(Debug, Default)]
struct Before {
    records: BTreeMap<Key, Record>,
    claimed: Option<Task>,
}

impl Spoiler {
    pub(super) fn new(spoil: Spoil, ids: Ids) -> Self {
        Self {
            spoil,
            ids,
            before: Mutex::default(),
        }
    }

    /// A lock without guards does harm only when two take it at once: every call is spoiled.
    fn plants(&self, spoil: Spoil) -> bool {
        self.spoil == spoil && (spoil == Spoil::UnguardedLock || self.ids.below(ONE_OF) == 0)
    }

    fn before(&self) -> MutexGuard<'_, Before> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn records(&self, _: &Get, found: &mut [Option<Record>]) {
        for record in found.iter_mut().flatten() {
            let mut before = self.before();
            let shown = before.records.insert(record.key.clone(), record.clone());
            if let (Some(shown), true) = (shown, self.plants(Spoil::StaleRead)) {
                *record = shown;
            }
        }
    }

    pub(super) fn page(&self, page: &mut ChangePage) {
        if !page.entries.is_empty() && self.plants(Spoil::LostEntry) {
            page.entries.remove(0);
        }
    }

    /// What is lost behind the store, where its pages are not looked at any more.
    pub(super) fn unheard(&self, asked: &Changes, page: &mut ChangePage) {
        let is_state = |key: &Key| key.as_str().starts_with(STATES);
        let follows = |interest: &Interest| matches!(interest, Interest::Records(prefix) if prefix.as_str().starts_with(STATES));
        if !asked.interests.iter().any(follows) {
            return;
        }
        for entry in &mut page.entries {
            entry.changes.retain(|change| match change {
                Change::Put(record) if is_state(&record.key) => !self.plants(Spoil::UntoldState),
                _ => true,
            });
        }
    }

    /// Whether somebody forgets that it was told what it was told last.
    pub(super) fn forgets(&self) -> bool {
        self.plants(Spoil::RepeatedState)
    }

    pub(super) fn commits(&self, commits: &mut [Commit]) {
        for commit in commits {
            let about = |guard: &Guard, locks: bool| match guard {
                Guard::RecordAbsent(key) | Guard::Field(key, ..) => {
                    key.as_str().starts_with(crate::check::LOCKS) == locks
                }
                _ => false,
            };
            let locks = match self.spoil {
                Spoil::UnguardedSwap => Some(false),
                Spoil::UnguardedLock => Some(true),
                _ => None,
            };
            // A commit of guards alone would be none without them.
            let locks = locks.filter(|_| !commit.writes.is_empty() && self.plants(self.spoil));
            if let Some(locks) = locks {
                commit.guards.retain(|guard| !about(guard, locks));
            }
            for write in &mut commit.writes {
                match write {
                    Write::Merge(merge)
                        if !merge.add.is_empty() && self.plants(Spoil::DoubledAdd) =>
                    {
                        merge.add.values_mut().for_each(|number| *number *= 2);
                    }
                    Write::Submit(new) if self.plants(Spoil::LostKey) => new.key = None,
                    _ => {}
                }
            }
        }
    }

    pub(super) fn exchanged(&self, asked: &Exchange, exchanged: &mut Exchanged) {
        if let (Some(claim), Some(Ok(Claimed { tasks, .. }))) =
            (&asked.claim, &mut exchanged.claimed)
        {
            let mut before = self.before();
            if let Some(task) = before
                .claimed
                .take()
                .filter(|_| self.plants(Spoil::SharedTask))
            {
                let holder = task.lease.as_ref().map(|lease| &lease.worker);
                if holder != Some(&claim.worker) {
                    tasks.push(task);
                }
            }
            before.claimed = tasks.first().cloned();
        }
        if let Some(Ok(renewals)) = &mut exchanged.renewals {
            let held = renewals.iter().find_map(|renewal| match renewal {
                Renewal::Held { until } => Some(*until),
                _ => None,
            });
            let until = held.unwrap_or(plimsoll_core::Timestamp::MIN);
            for renewal in renewals.iter_mut() {
                if matches!(renewal, Renewal::Lost(_)) && self.plants(Spoil::EndlessLease) {
                    *renewal = Renewal::Held { until };
                }
            }
        }
    }
}
