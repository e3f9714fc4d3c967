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
//! found all the same: the whole lane is looked at again when there seems to be nothing left, and from
//! time to time, the less often the longer that takes.
//! As soon as it is quick again, nothing is skipped any more; nor if skipping does not help: then
//! the server is slow for another reason.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::task::Priority;
use plimsoll_core::wake::Wake;

use crate::codec::lane_number;

/// How many priorities there are.
const PRIORITIES: usize = Priority::HIGHEST.get() as usize + 1;
/// What a look takes at most, and what each row it finds may take, as long as nothing is in its way.
const QUICK: Duration = Duration::from_millis(1);
const QUICK_EACH: Duration = Duration::from_micros(8);
/// After so many slow looks in a row something is skipped: one may be slow by chance. One that takes
/// so many times as long as it should counts as that many.
const SLOW_MAX: u32 = 3;
const VERY_SLOW_TIMES: u32 = 10;
/// After so many looks in a row that skipped something and took long all the same, nothing is skipped.
const VAIN_MAX: u32 = 3;
/// How old a moment must be before it is skipped: what was submitted then has been committed.
const SETTLED: Duration = Duration::from_millis(200);
/// How long the whole lane is not looked at: so many times what a look took, within these bounds.
const REST_TIMES: u32 = 50;
const REST_LEAST: Duration = Duration::from_secs(1);
const REST_MOST: Duration = Duration::from_secs(20);
/// How long nobody else does so while somebody does.
const RESERVED: Duration = Duration::from_secs(5);
/// Likewise while there seems to be nothing left: workers have nothing else to do then, but what comes
/// must not wait for them.
const EMPTY_REST_TIMES: u32 = 5;
/// How many times that floors were lowered are remembered. A look that missed more than that raises none.
const LATELY_MAX: usize = 64;

/// For each priority, the moment before which nothing is left.
pub(crate) type Floor = [Timestamp; PRIORITIES];

/// What is known of a lane.
#[derive(Clone, Debug, Default, PartialEq)]
struct Lane {
    /// How many looks at the whole lane were slow, one after another.
    slow: u32,
    skips: Option<Skips>,
}

/// What is skipped of a lane, and when all of it is looked at again.
#[derive(Clone, Debug, PartialEq)]
struct Skips {
    floor: Floor,
    until: Duration,
    /// Until when it is believed that there is nothing if nothing is found above the floor.
    empty_until: Duration,
    /// How much longer than it should the look at the whole lane took.
    wasted: Duration,
    /// How many looks in a row took nearly as long although they skipped something.
    vain: u32,
}

/// What a look has found.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// Priority and moment of each task, in the order of the lane.
    pub(crate) found: Vec<(Priority, Timestamp)>,
    /// Whether there may be more.
    pub(crate) more: bool,
    /// How long the server took.
    pub(crate) took: Duration,
    pub(crate) now: Timestamp,
}

impl Look {
    /// What it takes if nothing is in its way.
    fn quick(&self) -> Duration {
        QUICK + QUICK_EACH * u32::try_from(self.found.len()).unwrap_or(u32::MAX)
    }

    fn wasted(&self) -> Duration {
        self.took.saturating_sub(self.quick())
    }
}

impl Lane {
    /// What is known after a look that began at a floor, or was at the whole lane, at a moment of the
    /// timer.
    fn after(&self, look: &Look, began: Option<&Floor>, timer: Duration) -> Self {
        match (began, &self.skips) {
            (Some(began), Some(skips)) => {
                let helps = look.wasted() * 2 < skips.wasted;
                let vain = if helps { 0 } else { skips.vain + 1 };
                let skips = Skips {
                    floor: risen(&skips.floor, began, look),
                    vain,
                    ..*skips
                };
                match vain < VAIN_MAX {
                    true => Self {
                        slow: self.slow,
                        skips: Some(skips),
                    },
                    false => Self::default(),
                }
            }
            // Nothing is skipped any more.
            (Some(_), None) => self.clone(),
            (None, _) if look.wasted().is_zero() => Self::default(),
            (None, _) => {
                let very = look.took >= look.quick() * VERY_SLOW_TIMES;
                let slow = self.slow.saturating_add(if very { SLOW_MAX } else { 1 });
                let skips = || Skips {
                    floor: risen(&BOTTOM, &BOTTOM, look),
                    until: timer + rest(look.took),
                    empty_until: Duration::ZERO,
                    wasted: look.wasted(),
                    vain: 0,
                };
                Self {
                    slow,
                    skips: (slow >= SLOW_MAX).then(skips),
                }
            }
        }
    }
}

/// How long the whole lane is not looked at after a look at it took so long.
fn rest(took: Duration) -> Duration {
    (took * REST_TIMES).clamp(REST_LEAST, REST_MOST)
}

/// Nothing is skipped.
const BOTTOM: Floor = [Timestamp::MIN; PRIORITIES];

/// The floor after a look: at the first task of each priority that was looked at, but not where tasks
/// may still come to be. A look that `began` above the floor has not seen what is in between.
fn risen(before: &Floor, began: &Floor, look: &Look) -> Floor {
    let mut floor = *before;
    let settled = look.now.saturating_minus(SETTLED);
    let last = (look.found.last()).filter(|_| look.more);
    let lowest = last.map_or(0, |(priority, _)| usize::from(priority.get()));
    for (priority, floor) in floor.iter_mut().enumerate().skip(lowest) {
        let mut heads = look.found.iter();
        let head = heads.find(|(of, _)| usize::from(of.get()) == priority);
        let head = head.map_or(settled, |(_, at)| settled.min(*at));
        if began[priority] <= *floor {
            *floor = head.max(*floor);
        }
    }
    floor
}

/// What is known of all lanes where something is in the way.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    timer: SystemClock,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    lanes: BTreeMap<i64, Lane>,
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
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Began {
    /// `None`: the whole lane is looked at.
    pub(crate) floor: Option<Floor>,
    /// How often floors had been lowered.
    lowered: u64,
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

    fn skips(&mut self, lane: i64) -> Option<&mut Skips> {
        self.lanes.get_mut(&lane)?.skips.as_mut()
    }
}

impl Skips {
    fn lower(&mut self, back_to: Timestamp) {
        for floor in &mut self.floor {
            *floor = back_to.min(*floor);
        }
    }
}

impl Floors {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to begin in a lane. If it is time to look at all of it, one caller does so, and the others
    /// go on.
    pub(crate) fn begin(&self, lane: i64) -> Began {
        let now = self.timer.monotonic();
        let mut known = self.known();
        let lowered = known.lowered;
        let skips = known.skips(lane);
        let floor = skips.and_then(|skips| {
            let floor = (now < skips.until).then_some(skips.floor);
            if floor.is_none() {
                skips.until = now + RESERVED;
            }
            floor
        });
        Began { floor, lowered }
    }

    /// Begins to look at a whole lane because nothing was found above its floor, if that is in doubt.
    /// One caller does so.
    pub(crate) fn doubt(&self, lane: i64) -> Option<Began> {
        let now = self.timer.monotonic();
        let mut known = self.known();
        if let Some(skips) = known.skips(lane) {
            if now < skips.empty_until {
                return None;
            }
            skips.empty_until = now + RESERVED;
        }
        Some(Began {
            floor: None,
            lowered: known.lowered,
        })
    }

    /// Takes in that there was nothing in the whole lane, and how long that took.
    pub(crate) fn saw_nothing(&self, lane: i64, took: Duration) {
        let now = self.timer.monotonic();
        let mut known = self.known();
        if took <= QUICK {
            known.lanes.remove(&lane);
        } else if let Some(skips) = known.skips(lane) {
            skips.until = now + rest(took);
            skips.empty_until = now + (took * EMPTY_REST_TIMES).min(REST_MOST);
        }
    }

    /// Takes in what a look has found.
    pub(crate) fn saw(&self, lane: i64, look: &Look, began: &Began) {
        let now = self.timer.monotonic();
        let mut known = self.known();
        let before = known.lanes.remove(&lane).unwrap_or_default();
        let mut after = before.after(look, began.floor.as_ref(), now);
        if let (Some(come), Some(skips)) = (known.come_since(began.lowered, lane), &mut after.skips)
        {
            skips.lower(come);
        }
        if after != Lane::default() {
            known.lanes.insert(lane, after);
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
        known.lowered += 1;
        if known.lately.len() >= LATELY_MAX {
            known.lately.pop_front();
        }
        known.lately.push_back(lowered);
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    const NOW: i64 = 10_000_000;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).expect("a moment")
    }

    fn look(found: &[(u8, i64)], more: bool, took: Duration) -> Look {
        let found = found.iter();
        let found = found.map(|(of, moment)| (Priority::new(*of).expect("one"), at(*moment)));
        Look {
            found: found.collect(),
            more,
            took,
            now: at(NOW),
        }
    }

    fn slow(found: &[(u8, i64)], more: bool) -> Look {
        look(found, more, Duration::from_millis(5))
    }

    /// A lane after three slow looks.
    fn skipping(look: &Look) -> Lane {
        (0..3).fold(Lane::default(), |lane, _| {
            lane.after(look, None, Duration::ZERO)
        })
    }

    fn floor(lane: &Lane) -> Floor {
        lane.skips.as_ref().expect("skips").floor
    }

    #[test]
    fn nothing_is_skipped_before_three_slow_looks_in_a_row() {
        let (slow, quick) = (slow(&[(5, 1)], true), look(&[(5, 1)], true, QUICK));
        for looks in 0..1 << 6_u32 {
            let (mut lane, mut in_a_row) = (Lane::default(), 0);
            for bit in 0..6 {
                let is_slow = looks >> bit & 1 == 1;
                in_a_row = if is_slow { in_a_row + 1 } else { 0 };
                lane = lane.after(if is_slow { &slow } else { &quick }, None, Duration::ZERO);
                assert_eq!(lane.skips.is_some(), in_a_row >= 3, "{looks:b} {bit}");
            }
        }
    }

    #[test]
    fn one_very_slow_look_is_enough() {
        let enough = (QUICK + QUICK_EACH) * VERY_SLOW_TIMES;
        let after =
            |took| Lane::default().after(&look(&[(5, 1)], true, took), None, Duration::ZERO);
        assert!(after(enough).skips.is_some());
        let less = after(enough - Duration::from_micros(1));
        assert_eq!((less.slow, less.skips), (1, None));
    }

    #[test]
    fn what_does_not_help_is_given_up() {
        let whole = look(&[(5, 1)], true, Duration::from_millis(21));
        let began = floor(&skipping(&whole));
        let (helps, vain) = (
            slow(&[(5, 1)], true),
            look(&[(5, 1)], true, whole.took / 2 + QUICK),
        );
        for looks in 0..1 << 6_u32 {
            let (mut lane, mut in_a_row) = (skipping(&whole), 0);
            for bit in 0..6 {
                let is_vain = looks >> bit & 1 == 1;
                in_a_row = if is_vain { in_a_row + 1 } else { 0 };
                let look = if is_vain { &vain } else { &helps };
                lane = lane.after(look, Some(&began), Duration::ZERO);
                if in_a_row == VAIN_MAX {
                    assert_eq!(lane, Lane::default(), "{looks:b} {bit}");
                    break;
                }
                assert!(lane.skips.is_some(), "{looks:b} {bit}");
            }
        }
    }

    #[test]
    fn many_rows_may_take_longer() {
        let (found, enough) = ([(5, 1); 100], QUICK + 100 * QUICK_EACH);
        let lane = skipping(&look(&found, true, enough));
        assert_eq!(lane, Lane::default());
        let lane = skipping(&look(&found[..99], true, enough));
        assert!(lane.skips.is_some());
    }

    #[test]
    fn the_floor_is_at_the_first_task_of_each_priority_that_was_looked_at() {
        let found = [(7, 300), (7, 400), (5, 200), (5, 250)];
        let settled = at(NOW - 200_000);
        for (priority, floor) in floor(&skipping(&slow(&found, true))).iter().enumerate() {
            let expected = match priority {
                7 => at(300),
                5 => at(200),
                0..5 => Timestamp::MIN,
                _ => settled,
            };
            assert_eq!(*floor, expected, "{priority}");
        }
        let all = floor(&skipping(&slow(&found, false)));
        assert_eq!((all[0], all[5]), (settled, at(200)));
    }

    #[test]
    fn what_may_still_be_under_way_is_not_skipped() {
        let lane = skipping(&slow(&[(5, NOW - 1)], true));
        assert_eq!(floor(&lane)[5], at(NOW - 200_000));
    }

    #[test]
    fn a_floor_rises_and_never_falls_until_the_whole_lane_is_looked_at() {
        let lane = skipping(&slow(&[(5, 300)], true));
        let (began, until) = (floor(&lane), lane.skips.clone().expect("skips").until);
        assert_eq!(until, REST_LEAST);
        let later = lane.after(&look(&[(5, 500)], true, QUICK), Some(&began), until / 2);
        let skips = later.skips.clone().expect("skips");
        assert_eq!((skips.floor[5], skips.until), (at(500), until));
        let again = later.after(&slow(&[(5, 100)], true), None, until);
        let skips = again.skips.clone().expect("skips");
        assert_eq!((skips.floor[5], skips.until), (at(100), until * 2));
        let quick = again.after(&look(&[(5, 100)], true, QUICK), None, until * 2);
        assert_eq!(quick, Lane::default());
        let late = quick.after(&look(&[(5, 500)], true, QUICK), Some(&began), until * 2);
        assert_eq!(late, Lane::default());
    }

    #[test]
    fn a_look_that_began_higher_has_not_seen_what_is_below_it() {
        let high = floor(&skipping(&slow(&[(5, 600)], true)));
        let low = skipping(&slow(&[(5, 100)], true));
        let after = low.after(&look(&[(5, 700)], true, QUICK), Some(&high), Duration::ZERO);
        assert_eq!(floor(&after)[5], at(100));
    }

    #[test]
    fn a_rest_has_bounds() {
        let until = |took| {
            let lane = skipping(&look(&[(5, 1)], true, took));
            lane.skips.expect("skips").until
        };
        assert_eq!(until(Duration::from_millis(3)), REST_LEAST);
        let took = Duration::from_millis(100);
        assert_eq!(until(took), took * REST_TIMES);
        assert_eq!(until(Duration::from_secs(60)), REST_MOST);
    }

    /// Floors of a lane that is skipped up to this moment.
    fn floors(lane: i64, moment: i64) -> Floors {
        let floors = Floors::default();
        for _ in 0..3 {
            let began = floors.begin(lane);
            floors.saw(lane, &slow(&[(5, moment)], false), &began);
        }
        floors
    }

    fn until(floors: &Floors, lane: i64) -> [Duration; 2] {
        let mut known = floors.known();
        let skips = known.skips(lane).expect("skips");
        [skips.until, skips.empty_until]
    }

    #[test]
    fn that_there_is_nothing_is_believed_for_a_while() {
        assert!(Floors::default().doubt(7).is_some());
        let floors = floors(7, 300);
        // One looks, the others believe it meanwhile, and for as long as that is worth.
        assert!(floors.doubt(7).is_some());
        assert!(floors.doubt(7).is_none());
        let before = floors.timer.monotonic();
        floors.saw_nothing(7, Duration::from_secs(2));
        let [whole, empty] = until(&floors, 7).map(|until| until - before);
        let expected = [REST_MOST, Duration::from_secs(2) * EMPTY_REST_TIMES];
        assert!(whole >= expected[0] && whole < expected[0] * 2, "{whole:?}");
        assert!(empty >= expected[1] && empty < expected[1] * 2, "{empty:?}");
        assert!(floors.doubt(7).is_none());
        // A quick look says that nothing is in the way any more.
        floors.saw_nothing(7, QUICK);
        assert_eq!(floors.begin(7).floor, None);
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
        let began = || floors.begin(number);
        let floor = || began().floor.expect("a floor");
        let before = floor();
        floors.lower(2, &wake("queue"), Some(at(100)));
        floors.lower(1, &wake("other"), Some(at(100)));
        floors.lower(1, &wake("queue"), None);
        floors.lower(1, &wake("queue"), Some(at(NOW)));
        assert_eq!(floor(), before);
        floors.lower(1, &wake("queue"), Some(at(100)));
        assert_eq!(floor(), [at(100); PRIORITIES]);
        floors.saw(number, &look(&[(5, 500)], true, QUICK), &began());
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
                        true => floors.doubt(number).expect("doubt"),
                        false => floors.begin(number),
                    };
                    floors.lower(1, &wake("queue"), Some(at(came)));
                    floors.lower(1, &wake("other"), Some(at(1)));
                    let very_slow = look(&[(5, 500)], true, Duration::from_secs(1));
                    floors.saw(number, &very_slow, &began);
                    let floor = floors.begin(number).floor.expect("a floor");
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
            let began = floors.begin(number);
            for _ in 0..times {
                floors.lower(1, &wake("other"), Some(at(1)));
            }
            floors.saw(number, &look(&[(5, 500)], true, QUICK), &began);
            let floor = floors.begin(number).floor.expect("a floor");
            assert_eq!(floor[5], expected);
        }
    }

    #[test]
    fn when_it_is_time_one_looks_at_the_whole_lane_and_the_others_go_on() {
        let floors = floors(7, 300);
        assert_eq!(floors.begin(7).floor.expect("a floor")[5], at(300));
        let mut known = floors.known();
        known.skips(7).expect("skips").until = Duration::ZERO;
        drop(known);
        assert_eq!(floors.begin(7).floor, None);
        assert!(floors.begin(7).floor.is_some());
        assert_eq!(floors.begin(8).floor, None);
    }
}
