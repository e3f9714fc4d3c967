//! Bugs in job states, and in records that users keep.

use plimsoll_core::change::{Change, Interest};
use plimsoll_core::record::Record;
use plimsoll_core::store::{ChangePage, Changes, Commit, Guard, Outcome, Receipt, Write};
use plimsoll_core::{Key, Result, Revision};
use plimsoll_engine::jobs::State;

use super::Planted;
use crate::check::{JOBS, SHELF, STATES, View};
use crate::dice::Dice;

impl Planted {
    /// What the store sees instead of this commit.
    pub(super) fn spoil_states(self, commit: &mut Commit) {
        let ignored = |guard: &Guard| match (self, guard) {
            (Self::UnguardedVersion, Guard::Field(key, name, _)) => {
                is_state(key) && ["version", "nonce"].contains(&name.as_str())
            }
            (Self::Unbound, Guard::Field(key, name, _)) => {
                is_state(key) && name.as_str() == "nonce"
            }
            (Self::LateManager, Guard::Field(key, ..)) => key.as_str().starts_with(JOBS),
            (Self::UnguardedSwap, Guard::Field(key, ..) | Guard::RecordAbsent(key)) => {
                key.as_str().starts_with(SHELF)
            }
            _ => false,
        };
        // A commit of guards alone would be none without them.
        if !commit.writes.is_empty() {
            commit.guards.retain(|guard| !ignored(guard));
        } else if self == Self::LateRepeat {
            let nobody = Key::new("nobody").map(Guard::RecordAbsent);
            commit.guards = nobody.into_iter().collect();
        }
        if self == Self::ForgottenEvent {
            for write in &mut commit.writes {
                let Write::Merge(merge) = write else { continue };
                let events = merge
                    .set
                    .iter_mut()
                    .find(|(name, _)| name.as_str() == "events");
                if let Some((_, events)) = events.filter(|_| is_state(&merge.key)) {
                    *events = "[]".into();
                }
            }
        }
    }

    /// What whoever writes a state is answered.
    pub(crate) fn answer(self, results: &mut [Result<Receipt>]) {
        if self != Self::HiddenWrite {
            return;
        }
        let receipts = results.iter_mut().flatten();
        for outcome in receipts.flat_map(|receipt| &mut receipt.outcomes) {
            if let Outcome::Written {
                record: Some(record),
                ..
            } = outcome
                && is_state(&record.key)
            {
                record.revision = Revision::default();
            }
        }
    }

    /// What a reader of all states of a job is shown instead of these.
    pub(super) fn spoil_rows(self, rows: &mut Vec<Record>, prefix: &str, dice: &Dice) {
        let all = prefix.starts_with(STATES) && prefix.ends_with('.');
        if self == Self::LostAtSwitch && all && dice.chance(200) {
            rows.pop();
        }
    }

    /// What a reader of a job is answered instead of this.
    pub(crate) fn view(self, view: &mut View) {
        if self != Self::HighestWins {
            return;
        }
        for (scope, spoke) in &mut view.spoke {
            let said = view.states.iter().filter(|state| scope.covers(state));
            if let Some(highest) = said.max_by_key(|state| state.status) {
                *spoke = State::clone(highest);
            }
        }
    }

    /// What one who follows states or records is shown instead of this page.
    pub(super) fn spoil_changes(self, page: &mut ChangePage, asked: &Changes, dice: &Dice) {
        let follows = |prefix: &str| {
            asked.interests.iter().any(|interest| {
                matches!(interest, Interest::Records(records) if records.as_str().starts_with(prefix))
            })
        };
        let hidden = |change: &Change| match (self, change) {
            (Self::LostState, Change::Put(record)) => is_state(&record.key),
            (Self::LostRemoval, Change::Removed { key, .. }) => key.as_str().starts_with(SHELF),
            _ => false,
        };
        if !follows(STATES) && !follows(SHELF) {
            return;
        }
        for entry in &mut page.entries {
            if entry.changes.iter().any(hidden) && dice.chance(100) {
                entry.changes.retain(|change| !hidden(change));
            }
        }
    }
}

fn is_state(key: &Key) -> bool {
    key.as_str().starts_with(STATES)
}
