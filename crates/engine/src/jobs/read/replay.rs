//! What there is when somebody begins to read. It is put in order once for all who begin at the same moment: after a
//! deployment, or when they were all too slow, that may be a thousand.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use plimsoll_core::Revision;

use crate::jobs::{Scope, State};

/// The states of a scope as they were told, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    states: Arc<[Arc<State>]>,
    taken: usize,
}

impl Replay {
    /// Of these, each with its revision.
    pub(crate) fn of(mut told: Vec<(Revision, Arc<State>)>) -> Self {
        // What was written together has one timestamp. Its revisions are in the order in which it was set; where a store
        // numbers records of their own, any order is as good, as long as it is always the same.
        told.sort_unstable_by(|(at, one), (other_at, other)| {
            let (at, other_at) = ((one.timestamp, at), (other.timestamp, other_at));
            let place = (one.partition, &one.tag).cmp(&(other.partition, &other.tag));
            at.cmp(&other_at).then(place)
        });
        Self {
            states: told.into_iter().map(|(_, state)| state).collect(),
            taken: 0,
        }
    }

    /// How many are left.
    pub(crate) fn left(&self) -> usize {
        self.states.len() - self.taken
    }

    /// The next ones, so many at most.
    pub(crate) fn take(&mut self, most: usize) -> &[Arc<State>] {
        let first = self.taken;
        self.taken = first.saturating_add(most).min(self.states.len());
        &self.states[first..self.taken]
    }
}

/// When something was told last: of which load, and which turn of it.
pub(crate) type Moment = (u64, u64);

/// What some read who began at the same moment.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    as_of: Moment,
    shared: BTreeMap<Scope, Weak<[Arc<State>]>>,
}

impl Replays {
    /// What somebody else reads who began at this moment.
    pub(crate) fn find(&self, as_of: Moment, scope: &Scope) -> Option<Replay> {
        let shared = self.shared.get(scope).filter(|_| as_of == self.as_of);
        let states = shared?.upgrade()?;
        Some(Replay { states, taken: 0 })
    }

    /// Whoever begins at this moment may have this, too.
    pub(crate) fn keep(&mut self, as_of: Moment, scope: &Scope, replay: &Replay) {
        if as_of != self.as_of {
            *self = Self {
                as_of,
                shared: BTreeMap::new(),
            };
        }
        let states = Arc::downgrade(&replay.states);
        self.shared.insert(scope.clone(), states);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Name, Timestamp};

    use super::*;

    fn state(partition: u32, second: i64) -> Arc<State> {
        let state = State::not_started(Name::new("job").unwrap(), partition, None);
        let timestamp = Some(Timestamp::from_micros(second).unwrap());
        Arc::new(State { timestamp, ..state })
    }

    fn taken(replay: &mut Replay, most: usize) -> Vec<u32> {
        let states = replay.take(most).iter();
        states.map(|state| state.partition).collect()
    }

    #[test]
    fn the_oldest_comes_first_and_what_was_set_together_in_that_order() {
        let told = [(7, 0, 5), (3, 1, 5), (9, 2, 1)];
        let told =
            told.map(|(at, partition, second)| (Revision::new(at), state(partition, second)));
        let mut replay = Replay::of(told.to_vec());
        assert_eq!(taken(&mut replay, 2), [2, 1]);
        assert_eq!(replay.left(), 1);
        assert_eq!(taken(&mut replay, usize::MAX), [0]);
        assert_eq!((replay.left(), taken(&mut replay, 1)), (0, Vec::new()));
    }

    #[test]
    fn those_who_begin_at_one_moment_share_it_as_long_as_somebody_reads_it() {
        let mut replays = Replays::default();
        let (all, one) = (Scope::all(), Scope::all().partition(1));
        let mut first = Replay::of(vec![(Revision::new(1), state(0, 1))]);
        replays.keep((1, 4), &all, &first);
        assert_eq!(taken(&mut first, 1), [0]);
        // From the beginning, whatever others have taken.
        let second = replays.find((1, 4), &all).unwrap();
        assert_eq!(second.left(), 1);
        assert!(Arc::ptr_eq(&first.states, &second.states));
        assert!(replays.find((1, 4), &one).is_none());
        for later in [(1, 5), (2, 4)] {
            assert!(replays.find(later, &all).is_none());
        }
        drop((first, second));
        assert!(replays.find((1, 4), &all).is_none());
        // What was of another moment is not kept for ever.
        let other = Replay::of(Vec::new());
        replays.keep((1, 5), &one, &other);
        assert_eq!(replays.shared.len(), 1);
    }
}
