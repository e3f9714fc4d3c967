//! What there is when somebody begins to read. It is put in order once for all who begin at the same moment: after a
//! deployment, or when they were all too slow, that may be a thousand.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_core::Revision;

use crate::history::{Place, Share, Told};
use crate::jobs::{Scope, State};

/// How many states are held together: whoever keeps one of them keeps all of these.
const TOGETHER: usize = 512;

type Part = Share<Place, Arc<State>>;

/// The states of a scope as they were told, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    parts: Arc<[Part]>,
    /// How many parts were taken, and how many states of the next one.
    taken: (usize, usize),
}

impl Replay {
    /// Of these, each with its revision, which were told up to a place.
    pub(crate) fn of(mut told: Vec<(Revision, Arc<State>)>, place: Place) -> Self {
        // What was written together has one timestamp. Its revisions are in the order in which it was set; where a store
        // numbers records of their own, any order is as good, as long as it is always the same.
        told.sort_unstable_by(|(at, one), (other_at, other)| {
            let (at, other_at) = ((one.timestamp, at), (other.timestamp, other_at));
            let place = (one.partition, &one.tag).cmp(&(other.partition, &other.tag));
            at.cmp(&other_at).then(place)
        });
        let event = |(_, state): &(Revision, Arc<State>)| Told {
            place,
            bytes: 0,
            event: state.clone(),
        };
        let parts = told.chunks(TOGETHER);
        Self {
            parts: parts
                .map(|part| Share::of(part.iter().map(event).collect()))
                .collect(),
            taken: (0, 0),
        }
    }

    /// How many are left.
    pub(crate) fn left(&self) -> usize {
        let (parts, states) = self.taken;
        let left = self.parts.iter().skip(parts);
        left.map(|part| part.left().len()).sum::<usize>() - states
    }

    /// The next ones, so many at most and at least one; `None`: nothing is left.
    pub(crate) fn take(&mut self, most: usize) -> Option<Part> {
        let (parts, first) = self.taken;
        let part = self.parts.get(parts)?;
        let (last, all) = (first.saturating_add(most), part.left().len());
        self.taken = match last < all {
            true => (parts, last),
            false => (parts + 1, 0),
        };
        Some(part.part(first..last))
    }
}

/// When something was told last: of which load, and which turn of it.
pub(crate) type Moment = (u64, u64);

/// Of how many scopes it is kept for whoever begins next.
const SCOPES_MAX: usize = 8;

/// What there is at this moment, of the scopes that were asked for last.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    as_of: Moment,
    parts: VecDeque<(Scope, Arc<[Part]>)>,
}

impl Replays {
    /// What somebody else was told who began at this moment.
    pub(crate) fn find(&self, as_of: Moment, scope: &Scope) -> Option<Replay> {
        let same = |(of, _): &&(Scope, Arc<[Part]>)| of == scope && self.as_of == as_of;
        let (_, parts) = self.parts.iter().find(same)?;
        Some(Replay {
            parts: parts.clone(),
            taken: (0, 0),
        })
    }

    /// Whoever begins at this moment may have this, too.
    pub(crate) fn keep(&mut self, as_of: Moment, scope: &Scope, replay: &Replay) {
        if self.as_of != as_of {
            *self = Self {
                as_of,
                parts: VecDeque::new(),
            };
        }
        self.parts.truncate(SCOPES_MAX - 1);
        self.parts.push_front((scope.clone(), replay.parts.clone()));
    }

    /// What is of no use any more. It may be much: nobody should wait while it is dropped.
    pub(crate) fn past(&mut self, now: Moment) -> Self {
        match self.as_of == now {
            true => Self::default(),
            false => std::mem::take(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Name, Position, Timestamp};

    use super::*;

    fn here() -> Place {
        Place::after(Position::ZERO)
    }

    fn told(at: u64, partition: u32, micros: i64) -> (Revision, Arc<State>) {
        let state = State::not_started(Name::new("job").unwrap(), partition, None);
        let timestamp = Some(Timestamp::from_micros(micros).unwrap());
        let state = State { timestamp, ..state };
        (Revision::new(at), Arc::new(state))
    }

    fn taken(replay: &mut Replay, most: usize) -> Vec<u32> {
        let part = replay.take(most).unwrap_or_default();
        let states = part.left().iter().map(|told| told.event.partition);
        states.collect()
    }

    #[test]
    fn the_oldest_comes_first_and_what_was_set_together_in_that_order() {
        let states = vec![told(7, 0, 5), told(3, 1, 5), told(9, 2, 1)];
        let mut replay = Replay::of(states, here());
        assert_eq!(taken(&mut replay, 2), [2, 1]);
        assert_eq!(replay.left(), 1);
        assert_eq!(taken(&mut replay, usize::MAX), [0]);
        assert_eq!((replay.left(), replay.take(1).is_none()), (0, true));
        assert!(Replay::of(Vec::new(), here()).take(1).is_none());
    }

    #[test]
    fn however_many_are_taken_at_once_all_are_and_none_twice() {
        for all in [TOGETHER - 1, TOGETHER, TOGETHER * 2 + 1] {
            for most in [4, 100, TOGETHER, TOGETHER + 1] {
                let states = (0..all as u32).map(|n| told(1, n, i64::from(n)));
                let mut replay = Replay::of(states.collect(), here());
                let mut seen = Vec::new();
                while replay.left() > 0 {
                    assert_eq!(replay.left(), all - seen.len());
                    let next = taken(&mut replay, most);
                    assert!((1..=most).contains(&next.len()));
                    seen.extend(next);
                }
                assert!(seen.into_iter().eq(0..all as u32), "{most} of {all}");
                assert!(replay.take(most).is_none());
            }
        }
    }

    #[test]
    fn those_who_begin_at_one_moment_share_it_until_something_is_told() {
        let mut replays = Replays::default();
        let (all, one) = (Scope::all(), Scope::all().partition(1));
        let mut first = Replay::of(vec![told(1, 0, 1)], here());
        replays.keep((1, 4), &all, &first);
        assert_eq!(taken(&mut first, 1), [0]);
        // From the beginning, whatever others have taken.
        let second = replays.find((1, 4), &all).unwrap();
        assert_eq!(second.left(), 1);
        assert!(Arc::ptr_eq(&first.parts, &second.parts));
        assert!(replays.find((1, 4), &one).is_none());
        for later in [(1, 5), (2, 4)] {
            assert!(replays.find(later, &all).is_none());
        }
        assert!(replays.past((1, 4)).parts.is_empty());
        assert_eq!(replays.past((1, 5)).parts.len(), 1);
        assert!(replays.find((1, 4), &all).is_none());
    }

    #[test]
    fn it_is_kept_for_the_scopes_that_were_asked_for_last() {
        let mut replays = Replays::default();
        let of = |n: u32| Scope::all().partition(n);
        for n in 0..20 {
            replays.keep((1, 1), &of(n), &Replay::of(Vec::new(), here()));
        }
        let kept = (0..20).filter(|n| replays.find((1, 1), &of(*n)).is_some());
        assert!(kept.eq(12..20));
        // What was of another moment is not.
        replays.keep((1, 2), &of(1), &Replay::default());
        assert_eq!(replays.parts.len(), 1);
    }
}
