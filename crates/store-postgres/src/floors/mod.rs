//! Where claims begin to look, when the head of a lane is full of what is gone.
//!
//! A task that is claimed leaves its row dead, and its entry in the index of the lane with it. Both go
//! soon, unless somebody keeps an old snapshot open: a report, a backup. Then each claim would step
//! over all that was claimed since, from the head of the lane to the first task that is still there.
//! So whoever sees that a look takes long remembers, for each priority of the lane, before which moment
//! there was nothing left, and begins there the next time.
//!
//! A task may come to be before that moment: it was given back, or its transaction took long. Whoever
//! does that says so, to this process and to others, and the floor is lowered. What is not heard of is
//! found all the same: what is below the floor is looked at from time to time, the less often the longer
//! that takes, beside the claims, which go on meanwhile (`below.rs`). As long as that is done, it is
//! believed that there is nothing left when there is nothing above the floor.
//! As soon as it is quick again, nothing is skipped any more; nor if skipping does not help: then
//! the server is slow for another reason.

pub(crate) mod below;
mod lane;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::wake::Wake;

pub(crate) use self::below::{Below, look};
use self::lane::{BOTTOM, GRACE, Lane, PRIORITIES, QUICK, REST_LEAST, Skips, rest};
pub(crate) use self::lane::{Floor, Look};
use crate::codec::lane_number;

/// How many times that floors were lowered are remembered. A look that missed more than that raises none.
const LATELY_MAX: usize = 64;

/// What is known of all lanes where something is in the way.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    timer: SystemClock,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    lanes: BTreeMap<i64, Lane>,
    /// Where it is time to look below the floor: namespaces and lanes.
    due: Vec<(i32, i64)>,
    /// How often floors were lowered, and the last times.
    lowered: u64,
    lately: VecDeque<Lowered>,
}

/// Tasks came to wait that looks under way may not have seen.
#[derive(Debug)]
struct Lowered {
    /// `None`: in any lane.
    lanes: Option<Vec<i64>>,
    back_to: Timestamp,
}

/// Where a look begins.
#[derive(Clone, Debug)]
pub(crate) struct Began {
    /// In each lane. `None`: all of it is looked at.
    lanes: Vec<(i64, Option<Floor>)>,
    /// How often floors had been lowered.
    lowered: u64,
}

impl Began {
    /// Where it begins in a lane, unless that is its head.
    fn floor(&self, lane: i64) -> Option<&Floor> {
        let found = self.lanes.iter().find(|(of, _)| *of == lane);
        found.and_then(|(_, floor)| floor.as_ref())
    }

    /// Whether it begins at the floor of each lane.
    fn at_floors(&self) -> bool {
        self.lanes.iter().all(|(_, floor)| floor.is_some())
    }

    /// Whether it begins at the head of each lane.
    pub(crate) fn at_heads(&self) -> bool {
        self.lanes.iter().all(|(_, floor)| floor.is_none())
    }

    /// Each lane, and where it begins there.
    pub(crate) fn floors(&self) -> impl Iterator<Item = (i64, Floor)> + '_ {
        let floors = self.lanes.iter();
        floors.map(|(lane, floor)| (*lane, floor.unwrap_or(BOTTOM)))
    }
}

impl Known {
    /// Where floors of a lane must not rise above after a look: what has come since it began.
    fn come_since(&self, began: u64, lane: i64) -> Option<Timestamp> {
        let since = usize::try_from(self.lowered - began).unwrap_or(usize::MAX);
        if since > self.lately.len() {
            return Some(Timestamp::MIN);
        }
        let meant = |lowered: &&Lowered| {
            let lanes = lowered.lanes.as_ref();
            lanes.is_none_or(|lanes| lanes.contains(&lane))
        };
        let since = self.lately.iter().rev().take(since);
        since.filter(meant).map(|lowered| lowered.back_to).min()
    }

    fn remember(&mut self, lowered: Lowered) {
        self.lowered += 1;
        if self.lately.len() >= LATELY_MAX {
            self.lately.pop_front();
        }
        self.lately.push_back(lowered);
    }

    fn skips(&mut self, lane: i64) -> Option<&mut Skips> {
        self.lanes.get_mut(&lane)?.skips.as_mut()
    }
}

impl Floors {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to begin in lanes. If it is time to look below their floors, that is [due](Self::due) then.
    pub(crate) fn begin(&self, ns: i32, lanes: &[i64]) -> Began {
        let now = self.timer.monotonic();
        let known = &mut *self.known();
        let mut began = Began {
            lanes: Vec::with_capacity(lanes.len()),
            lowered: known.lowered,
        };
        for lane in lanes {
            let skips = known.lanes.get_mut(lane).and_then(|of| of.skips.as_mut());
            let is_due = |skips: &&mut Skips| now >= skips.until && !skips.is_looked_at(now);
            if let Some(skips) = skips.filter(is_due) {
                skips.looking = Some(now);
                known.due.retain(|due| *due != (ns, *lane));
                known.due.push((ns, *lane));
            }
            let floor = known.skips(*lane).map(|skips| skips.floor);
            began.lanes.push((*lane, floor));
        }
        began
    }

    /// The lanes, with their namespaces, in which somebody has to look below the floor now. Each is told once.
    pub(crate) fn due(&self) -> Vec<(i32, i64)> {
        std::mem::take(&mut self.known().due)
    }

    /// Up to where something may have been skipped in a lane.
    pub(crate) fn top(&self, lane: i64) -> Option<Floor> {
        self.known().skips(lane).map(|skips| skips.top)
    }

    /// Takes in what there is of what may have been skipped.
    pub(crate) fn looked_below(&self, lane: i64, below: &Below) {
        let now = self.timer.monotonic();
        let known = &mut *self.known();
        let first = below.first.iter().flatten().min();
        if first.is_none() && below.took <= QUICK {
            known.lanes.remove(&lane);
        }
        let Some(skips) = known.skips(lane) else {
            return;
        };
        match first {
            None => skips.wasted = below.took.saturating_sub(QUICK),
            // What is behind it was not looked at.
            Some(_) => skips.wasted = skips.wasted.max(below.took.saturating_sub(QUICK)),
        }
        skips.until = now + rest(below.took.max(skips.wasted));
        skips.sure_until = skips.until + GRACE;
        skips.looking = None;
        for (floor, first) in skips.floor.iter_mut().zip(below.first) {
            *floor = first.map_or(*floor, |first| first.min(*floor));
        }
        if let Some(back_to) = first {
            known.remember(Lowered {
                lanes: Some(vec![lane]),
                back_to: *back_to,
            });
        }
    }

    /// Takes in that it could not be looked below a floor.
    pub(crate) fn looked_in_vain(&self, lane: i64) {
        let now = self.timer.monotonic();
        if let Some(skips) = self.known().skips(lane) {
            let took = skips
                .looking
                .map_or(Duration::ZERO, |since| now.saturating_sub(since));
            skips.until = now + rest(took);
            skips.sure_until = skips.until + GRACE;
            skips.looking = None;
        }
    }

    /// Lets somebody look below all floors soon.
    pub(crate) fn look_soon(&self) {
        let soon = self.timer.monotonic() + REST_LEAST;
        for lane in self.known().lanes.values_mut() {
            if let Some(skips) = &mut lane.skips {
                skips.until = skips.until.min(soon);
            }
        }
    }

    /// Begins to look at whole lanes because nothing was found above their floors, if nobody has looked below one of
    /// these when it was time to. One caller does so.
    pub(crate) fn doubt(&self, began: &Began) -> Option<Began> {
        let now = self.timer.monotonic();
        let mut known = self.known();
        let mut doubt = false;
        for (lane, _) in began.lanes.iter().filter(|(_, floor)| floor.is_some()) {
            match known.skips(*lane) {
                Some(skips) if skips.is_looked_at(now) || now < skips.sure_until => {}
                Some(skips) => {
                    skips.sure_until = now + GRACE;
                    doubt = true;
                }
                None => doubt = true,
            }
        }
        let whole = began.lanes.iter().map(|(lane, _)| (*lane, None));
        doubt.then(|| Began {
            lanes: whole.collect(),
            lowered: known.lowered,
        })
    }

    /// Takes in that there was nothing in whole lanes, and how long that took.
    pub(crate) fn saw_nothing(&self, began: &Began, took: Duration) {
        let first = [None; PRIORITIES];
        for (lane, _) in &began.lanes {
            self.looked_below(*lane, &Below { first, took });
        }
    }

    /// Takes in what a look has found.
    pub(crate) fn saw(&self, look: &Look, began: &Began) {
        let now = self.timer.monotonic();
        let mut known = self.known();
        for (lane, _) in &began.lanes {
            let before = known.lanes.remove(lane).unwrap_or_default();
            let mut after = before.after(*lane, look, began, now);
            let come = known.come_since(began.lowered, *lane);
            if let (Some(come), Some(skips)) = (come, &mut after.skips) {
                skips.lower(come);
            }
            if after != Lane::default() {
                known.lanes.insert(*lane, after);
            }
        }
    }

    /// Takes in since when tasks wait in these lanes that may not have been seen.
    pub(crate) fn lower(&self, ns: i32, wake: &Wake, back_to: Option<Timestamp>) {
        let Some(back_to) = back_to else { return };
        let named = || {
            wake.lanes
                .iter()
                .map(|lane| lane_number(ns, lane))
                .collect()
        };
        let lanes = (!wake.any_lane).then(named);
        self.take_in(Lowered { lanes, back_to });
    }

    /// Takes in that anything may have come to wait, anywhere: what a transaction had locked may be
    /// free again, and others have passed it.
    pub(crate) fn lower_all(&self) {
        self.take_in(Lowered {
            lanes: None,
            back_to: Timestamp::MIN,
        });
    }

    fn take_in(&self, lowered: Lowered) {
        let mut known = self.known();
        for (lane, of) in &mut known.lanes {
            let named = lowered.lanes.as_ref();
            if let (true, Some(skips)) = (
                named.is_none_or(|lanes| lanes.contains(lane)),
                &mut of.skips,
            ) {
                skips.lower(lowered.back_to);
            }
        }
        known.remember(lowered);
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use plimsoll_core::task::Priority;

    use super::lane::tests::{NOW, at, at_floor, look, slow};
    use super::lane::{LOOK_MAX, REST_TIMES};
    use super::*;

    /// The look at another lane.
    fn of(lane: i64, mut look: Look) -> Look {
        for found in &mut look.found {
            found.0 = lane;
        }
        look
    }

    /// Floors of a lane that is skipped up to this moment.
    fn floors(lane: i64, moment: i64) -> Floors {
        let floors = Floors::default();
        for _ in 0..3 {
            let began = floors.begin(1, &[lane]);
            floors.saw(&of(lane, slow(&[(5, moment)], false)), &began);
        }
        floors
    }

    /// Where a look begins in a lane.
    fn begun(floors: &Floors, lane: i64) -> Option<Floor> {
        floors.begin(1, &[lane]).floor(lane).copied()
    }

    /// Changes what is known of a lane.
    fn change(floors: &Floors, lane: i64, change: impl FnOnce(&mut Skips)) {
        change(floors.known().skips(lane).expect("skips"));
    }

    fn below(first: Option<i64>, took: Duration) -> Below {
        let mut all = [None; PRIORITIES];
        all[5] = first.map(at);
        Below { first: all, took }
    }

    const SLOW: Duration = Duration::from_millis(100);

    #[test]
    fn when_it_is_time_somebody_looks_below_the_floor_and_claims_go_on() {
        let floors = floors(7, 300);
        let floor = begun(&floors, 7);
        assert_eq!((floor, floors.due()), (floors.top(7), vec![]));
        change(&floors, 7, |skips| skips.until = Duration::ZERO);
        for due in [vec![(1, 7)], vec![]] {
            assert_eq!(begun(&floors, 7), floor);
            assert_eq!(floors.due(), due);
        }
        assert_eq!((begun(&floors, 8), floors.due()), (None, vec![]));
        // Then not for a while; and sooner if it was in vain.
        for (took, rest) in [(Some(SLOW), SLOW * REST_TIMES), (None, REST_LEAST)] {
            let before = floors.timer.monotonic();
            match took {
                Some(took) => floors.looked_below(7, &below(None, took)),
                None => floors.looked_in_vain(7),
            }
            floors.begin(1, &[7]);
            assert!(floors.due().is_empty());
            change(&floors, 7, |skips| {
                let until = skips.until - before;
                assert!(until >= rest && until < rest * 2, "{until:?}");
                skips.until = Duration::ZERO;
            });
            floors.begin(1, &[7]);
            assert_eq!(floors.due(), [(1, 7)]);
        }
    }

    #[test]
    fn what_was_skipped_lowers_the_floor() {
        let floors = floors(7, 300);
        let floor = || begun(&floors, 7).expect("a floor");
        let (before, top) = (floor(), floors.top(7));
        for (first, expected) in [(None, 300), (Some(100), 100), (Some(200), 100)] {
            floors.looked_below(7, &below(first, SLOW));
            assert_eq!((floor()[5], floor()[4]), (at(expected), before[4]));
            assert_eq!(
                floors.top(7),
                top,
                "all that was skipped is looked at the next time"
            );
        }
        // How far it was to the first one says nothing of what is behind it.
        let before = floors.timer.monotonic();
        floors.looked_below(7, &below(Some(50), QUICK));
        assert_eq!(floor()[5], at(50));
        change(&floors, 7, |skips| {
            assert!(skips.until - before >= (SLOW - QUICK) * REST_TIMES);
        });
        // If there is nothing, and that is quickly found, nothing is in the way any more.
        floors.looked_below(7, &below(None, QUICK));
        assert_eq!(begun(&floors, 7), None);
        assert!(floors.known().lanes.is_empty());
    }

    #[test]
    fn a_look_from_before_does_not_raise_the_floor_above_what_was_found() {
        let floors = floors(7, 300);
        let began = floors.begin(1, &[7]);
        floors.looked_below(7, &below(Some(100), SLOW));
        floors.saw(&look(&[(5, 500)], true, QUICK), &began);
        assert_eq!(begun(&floors, 7).expect("a floor")[5], at(100));
    }

    #[test]
    fn a_look_that_does_not_come_to_an_end_is_given_up() {
        let floors = floors(7, 300);
        change(&floors, 7, |skips| {
            skips.until = Duration::ZERO;
            let long_ago = floors.timer.monotonic();
            skips.looking = Some(long_ago);
            assert!(skips.is_looked_at(long_ago + LOOK_MAX - QUICK));
            assert!(!skips.is_looked_at(long_ago + LOOK_MAX));
        });
        floors.begin(1, &[7]);
        assert!(floors.due().is_empty());
        floors.looked_in_vain(7);
        change(&floors, 7, |skips| {
            assert_eq!(skips.looking, None);
            assert!(skips.until >= REST_LEAST);
            skips.until += REST_LEAST * 9;
        });
        let before = floors.timer.monotonic();
        floors.look_soon();
        change(&floors, 7, |skips| {
            assert!(skips.until < before + REST_LEAST * 2)
        });
    }

    #[test]
    fn that_there_is_nothing_is_believed_as_long_as_somebody_looks() {
        assert!(Floors::default().doubt(&at_floor(Some(&BOTTOM))).is_some());
        let floors = floors(7, 300);
        let lapse = || change(&floors, 7, |skips| skips.sure_until = Duration::ZERO);
        assert!(floors.doubt(&at_floor(Some(&BOTTOM))).is_none());
        lapse();
        // One looks at everything, and the others believe it meanwhile.
        assert!(floors.doubt(&at_floor(Some(&BOTTOM))).is_some());
        assert!(floors.doubt(&at_floor(Some(&BOTTOM))).is_none());
        lapse();
        floors.saw_nothing(&at_floor(None), SLOW);
        assert!(floors.doubt(&at_floor(Some(&BOTTOM))).is_none());
        // Somebody looks below the floor.
        change(&floors, 7, |skips| skips.until = Duration::ZERO);
        lapse();
        floors.begin(1, &[7]);
        assert!(floors.doubt(&at_floor(Some(&BOTTOM))).is_none());
        lapse();
        floors.looked_in_vain(7);
        assert!(floors.doubt(&at_floor(Some(&BOTTOM))).is_none());
        lapse();
        floors.looked_below(7, &below(None, SLOW));
        assert!(floors.doubt(&at_floor(Some(&BOTTOM))).is_none());
        floors.saw_nothing(&at_floor(None), QUICK);
        assert!(floors.known().lanes.is_empty());
    }

    fn queue(name: &str) -> plimsoll_core::task::Lane {
        plimsoll_core::task::Lane::new(name, "kind").expect("a lane")
    }

    fn wake(name: &str) -> Wake {
        Wake {
            lanes: [queue(name)].into(),
            ..Wake::default()
        }
    }

    #[test]
    fn a_floor_is_lowered_for_what_comes_late() {
        let number = lane_number(1, &queue("queue"));
        let floors = floors(number, 300);
        let began = || floors.begin(1, &[number]);
        let floor = || begun(&floors, number).expect("a floor");
        let before = floor();
        floors.lower(2, &wake("queue"), Some(at(100)));
        floors.lower(1, &wake("other"), Some(at(100)));
        floors.lower(1, &wake("queue"), None);
        floors.lower(1, &wake("queue"), Some(at(NOW)));
        assert_eq!(floor(), before);
        floors.lower(1, &wake("queue"), Some(at(100)));
        assert_eq!(floor(), [at(100); PRIORITIES]);
        floors.saw(&of(number, look(&[(5, 500)], true, QUICK)), &began());
        assert_eq!(floor()[5], at(500));
        floors.lower_all();
        assert_eq!(floor(), BOTTOM);
    }

    /// Whether a look begins above a floor or not, what comes while it is under way may be unseen.
    #[test]
    fn no_look_raises_a_floor_above_what_came_while_it_was_under_way() {
        let number = lane_number(1, &queue("queue"));
        for (came, expected) in [(150, 150), (300, 300), (400, 400), (600, 500)] {
            for whole in [false, true] {
                for known in [false, true] {
                    let floors = match known {
                        true => floors(number, 300),
                        false => Floors::default(),
                    };
                    let began = match whole {
                        true => Began {
                            lanes: vec![(number, None)],
                            ..floors.begin(1, &[number])
                        },
                        false => floors.begin(1, &[number]),
                    };
                    floors.lower(1, &wake("queue"), Some(at(came)));
                    floors.lower(1, &wake("other"), Some(at(1)));
                    let very_slow = look(&[(5, 500)], true, Duration::from_secs(1));
                    floors.saw(&of(number, very_slow), &began);
                    let floor = begun(&floors, number).expect("a floor");
                    assert_eq!(floor[5], at(expected), "{came} {whole} {known}");
                }
            }
        }
    }

    #[test]
    fn a_look_that_missed_too_much_raises_nothing() {
        let number = lane_number(1, &queue("queue"));
        for (times, expected) in [(LATELY_MAX, at(500)), (LATELY_MAX + 1, Timestamp::MIN)] {
            let floors = floors(number, 300);
            let began = floors.begin(1, &[number]);
            for _ in 0..times {
                floors.lower(1, &wake("other"), Some(at(1)));
            }
            floors.saw(&of(number, look(&[(5, 500)], true, QUICK)), &began);
            let floor = begun(&floors, number).expect("a floor");
            assert_eq!(floor[5], expected);
        }
    }

    /// A look at two lanes that found this.
    fn of_two(found: &[(i64, u8, i64)], took: Duration) -> Look {
        let found = found.iter().map(|(lane, priority, moment)| {
            let priority = Priority::new(*priority).expect("one");
            (*lane, priority, at(*moment))
        });
        let found: Vec<_> = found.collect();
        Look {
            reach: found.last().map(|(_, priority, at)| (*priority, *at)),
            rows: found.len(),
            found,
            took,
            now: at(NOW),
        }
    }

    #[test]
    fn a_look_at_several_lanes_says_of_each_how_far_it_went() {
        let floors = Floors::default();
        let found = [(7, 6, 300), (8, 5, 400), (7, 5, 500)];
        let slow = of_two(&found, Duration::from_secs(1));
        floors.saw(&slow, &floors.begin(1, &[7, 8, 9]));
        let settled = at(NOW - 200_000);
        // Of each lane and priority, what is first, or how far it was looked.
        let expected = [
            (7, [Timestamp::MIN, at(500), at(300), settled]),
            (8, [Timestamp::MIN, at(400), settled, settled]),
            (9, [Timestamp::MIN, at(500), settled, settled]),
        ];
        for (lane, expected) in expected {
            let floor = begun(&floors, lane).expect("a floor");
            assert_eq!(floor[4..8], expected, "{lane}");
        }
    }

    #[test]
    fn one_lane_that_is_slow_from_its_head_does_not_make_the_floors_of_others_vain() {
        let floors = floors(7, 300);
        let slow = of_two(&[(7, 5, 300), (8, 5, 300)], Duration::from_millis(8));
        for looks in 1..=3 {
            floors.saw(&slow, &floors.begin(1, &[7, 8]));
            assert!(begun(&floors, 7).is_some());
            assert_eq!(begun(&floors, 8).is_some(), looks == 3);
        }
        // Now both are skipped, and it does not help.
        for looks in 1..=3 {
            floors.saw(&slow, &floors.begin(1, &[7, 8]));
            assert_eq!(begun(&floors, 7).is_some(), looks < 3);
            assert_eq!(begun(&floors, 8).is_some(), looks < 3);
        }
    }

    #[test]
    fn where_one_of_several_lanes_is_in_doubt_all_are_looked_at() {
        let floors = floors(7, 300);
        let began = floors.begin(1, &[7, 8]);
        assert!(
            floors.doubt(&began).is_none(),
            "8 was looked at from its head"
        );
        change(&floors, 7, |skips| skips.sure_until = Duration::ZERO);
        let whole = floors.doubt(&began).expect("doubt");
        assert!(whole.at_heads());
        assert_eq!(
            whole.floors().map(|(lane, _)| lane).collect::<Vec<_>>(),
            [7, 8]
        );
        assert!(floors.doubt(&began).is_none());
    }
}
