//! The versions that a subscription has told while it read the history by itself.
//!
//! Whoever keeps the states lets only versions through that grow, and tells all subscribers what a refresh
//! has found. One who reads the history beside that goes by the same rule, from where it began to read until
//! it knows nothing that the others do not.

use std::collections::BTreeMap;

use plimsoll_core::{Key, Name};

use super::fold::Fold;
use crate::jobs::State;
use crate::jobs::stored::Keys;

/// The last version of each partition and tag.
#[derive(Debug, Default)]
pub(super) struct Versions(BTreeMap<(u32, Name), u64>);

impl Versions {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is told: versions only grow as long as a state is there.
    pub(super) fn admits(&mut self, state: &State) -> bool {
        let Some(tag) = &state.tag else {
            return true;
        };
        let last = self.0.entry((state.partition, tag.clone())).or_default();
        let grows = state.version > *last;
        *last = state.version.max(*last);
        grows
    }

    /// A state ended, or cannot be read: any version may follow.
    pub(super) fn forget(&mut self, keys: &Keys, key: &Key) {
        if let Some(place) = keys.parse(key) {
            self.0.remove(&place);
        }
    }

    /// Everything was told. What others have been told as well is theirs to tell once.
    pub(super) fn caught_up(&mut self, fold: &Fold) {
        (self.0).retain(|(partition, tag), version| fold.version(*partition, tag) < Some(*version));
    }
}
