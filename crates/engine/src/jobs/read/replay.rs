//! What there is when somebody begins to read. It is put in order once for all who begin at the same moment: after a
//! deployment, or when they were all too slow, that may be a thousand.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use plimsoll_core::Revision;

use crate::history::{Place, Share, Told};
use crate::jobs::{Scope, State};

/// How many states are taken from what is shared at most: whoever keeps one of them keeps all of these.
const TOGETHER: usize = 512;

type Part = Share<Place, Arc<State>>;

/// The states of a scope as they were told, the oldest first.
#[derive(Debug)]
struct Ordered {
    states: Vec<Arc<State>>,
    /// They were told up to here.
    place: Place,
    /// The same, ready to be handed on. That takes more room, and is made when a second one reads it.
    parts: OnceLock<Vec<Part>>,
}

impl Ordered {
    fn share(&self, states: &[Arc<State>]) -> Part {
        let told = |state: &Arc<State>| Told {
            place: self.place,
            bytes: 0,
            event: state.clone(),
        };
        Share::of(states.iter().map(told).collect())
    }

    fn parts(&self) -> &[Part] {
        let parts = || self.states.chunks(TOGETHER).map(|part| self.share(part));
        self.parts.get_or_init(|| parts().collect())
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread has put states in order, which is what takes long.
    pub(super) static ORDERED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// What one who begins has yet to be told.
#[derive(Debug)]
pub(crate) struct Replay {
    ordered: Arc<Ordered>,
    is_shared: bool,
    taken: usize,
}

impl Replay {
    /// Of these, each with its revision, which were told up to a place.
    pub(crate) fn of(mut told: Vec<(Revision, Arc<State>)>, place: Place) -> Self {
        #[cfg(test)]
        ORDERED.set(ORDERED.get() + 1);
        // What was written together has one timestamp. Its revisions are in the order in which it was set; where a store
        // numbers records of their own, any order is as good, as long as it is always the same.
        told.sort_unstable_by(|(at, one), (other_at, other)| {
            let (at, other_at) = ((one.timestamp, at), (other.timestamp, other_at));
            let place = (one.partition, &one.tag).cmp(&(other.partition, &other.tag));
            at.cmp(&other_at).then(place)
        });
        let ordered = Ordered {
            states: told.into_iter().map(|(_, state)| state).collect(),
            place,
            parts: OnceLock::new(),
        };
        Self {
            ordered: Arc::new(ordered),
            is_shared: false,
            taken: 0,
        }
    }

    /// How many are left.
    pub(crate) fn left(&self) -> usize {
        self.ordered.states.len() - self.taken
    }

    /// The next ones, so many at most; `None`: nothing is left.
    pub(crate) fn take(&mut self, most: usize) -> Option<Part> {
        let (first, most) = (self.taken, most.min(self.left()));
        if most == 0 {
            return None;
        }
        let part = match self.is_shared {
            true => {
                let (part, first) = (first / TOGETHER, first % TOGETHER);
                let part = self.ordered.parts().get(part)?;
                part.part(first..first + most)
            }
            false => self
                .ordered
                .share(&self.ordered.states[first..first + most]),
        };
        self.taken += part.left().len();
        Some(part)
    }

    #[cfg(test)]
    pub(super) fn is_that_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ordered, &other.ordered)
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
    /// The last one first.
    shared: VecDeque<(Scope, Arc<Ordered>)>,
}

impl Replays {
    /// What somebody else was told who began at this moment.
    pub(crate) fn find(&mut self, as_of: Moment, scope: &Scope) -> Option<Replay> {
        let same = |(of, _): &(Scope, Arc<Ordered>)| of == scope && self.as_of == as_of;
        let index = self.shared.iter().position(same)?;
        let found = self.shared.remove(index)?;
        let ordered = found.1.clone();
        self.shared.push_front(found);
        Some(Replay {
            ordered,
            is_shared: true,
            taken: 0,
        })
    }

    /// Whoever begins at this moment, which is now, may have this, too. Answers what goes for it.
    #[must_use = "it may be much: nobody should wait while it is dropped"]
    pub(crate) fn keep(&mut self, now: Moment, scope: &Scope, replay: &Replay) -> Self {
        let mut past = self.past(now);
        self.as_of = now;
        self.shared
            .push_front((scope.clone(), replay.ordered.clone()));
        let most = self.shared.len().min(SCOPES_MAX);
        past.shared.extend(self.shared.drain(most..));
        past
    }

    /// What is of no use any more.
    #[must_use = "it may be much: nobody should wait while it is dropped"]
    pub(crate) fn past(&mut self, now: Moment) -> Self {
        match self.as_of == now {
            true => Self::default(),
            false => std::mem::take(self),
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Name, Position, Timestamp};

    use super::*;

    fn told(at: u64, partition: u32, micros: i64) -> (Revision, Arc<State>) {
        let state = State::not_started(Name::new("job").unwrap(), partition, None);
        let timestamp = Some(Timestamp::from_micros(micros).unwrap());
        let state = State { timestamp, ..state };
        (Revision::new(at), Arc::new(state))
    }

    fn of(told: Vec<(Revision, Arc<State>)>) -> Replay {
        Replay::of(told, Place::after(Position::ZERO))
    }

    fn taken(replay: &mut Replay, most: usize) -> Vec<u32> {
        let part = replay.take(most).unwrap_or_default();
        let states = part.left().iter().map(|told| told.event.partition);
        states.collect()
    }

    #[test]
    fn the_oldest_comes_first_and_what_was_set_together_in_that_order() {
        let mut replay = of(vec![told(7, 0, 5), told(3, 1, 5), told(9, 2, 1)]);
        assert_eq!(taken(&mut replay, 2), [2, 1]);
        assert_eq!(replay.left(), 1);
        assert_eq!(taken(&mut replay, usize::MAX), [0]);
        assert_eq!((replay.left(), replay.take(1).is_none()), (0, true));
        assert!(of(Vec::new()).take(1).is_none());
    }

    #[test]
    fn however_many_are_taken_at_once_all_are_and_none_twice() {
        for all in [TOGETHER - 1, TOGETHER, TOGETHER * 2 + 1] {
            for most in [4, 100, TOGETHER, TOGETHER + 1] {
                let states = (0..all as u32).map(|n| told(1, n, i64::from(n)));
                let (mut replays, first) = (Replays::default(), of(states.collect()));
                let _ = replays.keep((1, 1), &Scope::all(), &first);
                let second = replays.find((1, 1), &Scope::all()).unwrap();
                for mut replay in [first, second] {
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
    }

    #[test]
    fn those_who_begin_at_one_moment_share_it_until_something_is_told() {
        let mut replays = Replays::default();
        let (all, one) = (Scope::all(), Scope::all().partition(1));
        let mut first = of(vec![told(1, 0, 1)]);
        assert!(replays.keep((1, 4), &all, &first).is_empty());
        assert_eq!(taken(&mut first, 1), [0]);
        // From the beginning, whatever others have taken.
        let second = replays.find((1, 4), &all).unwrap();
        assert_eq!(second.left(), 1);
        assert!(second.is_that_of(&first));
        assert!(replays.find((1, 4), &one).is_none());
        for later in [(1, 5), (2, 4)] {
            assert!(replays.find(later, &all).is_none());
        }
        assert!(replays.past((1, 4)).is_empty());
        assert!(!replays.past((1, 5)).is_empty());
        assert!(replays.is_empty());
    }

    #[test]
    fn it_is_kept_for_the_scopes_that_were_asked_for_last() {
        let (mut replays, now) = (Replays::default(), (1, 1));
        let partition = |n: u32| Scope::all().partition(n);
        for n in 0..20 {
            let gone = replays.keep(now, &partition(n), &of(Vec::new()));
            assert_eq!(gone.is_empty(), n < 8);
            // The first is asked for again and again.
            assert!(replays.find(now, &partition(0)).is_some());
        }
        let kept = (0..20).filter(|n| replays.find(now, &partition(*n)).is_some());
        assert!(kept.eq([0].into_iter().chain(13..20)));
        // What was of another moment is not.
        let gone = replays.keep((1, 2), &partition(1), &of(Vec::new()));
        assert_eq!((gone.shared.len(), replays.shared.len()), (8, 1));
    }
}
