//! What looks at a lane say of it: whether something is in their way, and what is skipped then.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::task::Priority;

use super::Began;

/// How many priorities there are.
pub(super) const PRIORITIES: usize = Priority::HIGHEST.get() as usize + 1;
/// What a look takes at most, and what each row it finds may take, as long as nothing is in its way.
pub(super) const QUICK: Duration = Duration::from_millis(1);
const QUICK_EACH: Duration = Duration::from_micros(8);
/// After so many slow looks in a row something is skipped: one may be slow by chance. One that takes
/// so many times as long as it should counts as that many.
const SLOW_MAX: u32 = 3;
const VERY_SLOW_TIMES: u32 = 10;
/// After so many looks in a row that skipped something and took long all the same, nothing is skipped.
const VAIN_MAX: u32 = 3;
/// How old a moment must be before it is skipped: what was submitted then has been committed.
const SETTLED: Duration = Duration::from_millis(200);
/// How long it is not looked below a floor: so many times what the last look took, within these bounds.
pub(super) const REST_TIMES: u32 = 50;
pub(super) const REST_LEAST: Duration = Duration::from_secs(1);
const REST_MOST: Duration = Duration::from_secs(20);
/// How much later than that is soon enough.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// After that long a look that has not come to an end is given up.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(60);

/// For each priority, the moment before which nothing is left.
pub(crate) type Floor = [Timestamp; PRIORITIES];

/// What is known of a lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lane {
    /// How many looks from its head were slow, one after another.
    slow: u32,
    pub(super) skips: Option<Skips>,
}

/// What is skipped of a lane, and when that is looked at again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Skips {
    pub(super) floor: Floor,
    /// The highest that the floor was: so far something may have been skipped.
    pub(super) top: Floor,
    pub(super) until: Duration,
    /// Since when somebody is at it.
    pub(super) looking: Option<Duration>,
    /// Until when it is believed that there is nothing left when there is nothing above the floor.
    pub(super) sure_until: Duration,
    /// How much longer than they should looks at all that is skipped take.
    pub(super) wasted: Duration,
    /// How many looks in a row took nearly as long although they skipped something.
    vain: u32,
}

/// What a look at one lane or several has found.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// Lane, priority and moment of each task, in the order of the lanes.
    pub(crate) found: Vec<(i64, Priority, Timestamp)>,
    /// How far it went. `None`: to the end.
    pub(crate) reach: Option<(Priority, Timestamp)>,
    /// How many rows it had to read, if nothing was in its way.
    pub(crate) rows: usize,
    /// How long the server took.
    pub(crate) took: Duration,
    pub(crate) now: Timestamp,
}

impl Look {
    /// What it takes if nothing is in its way.
    fn quick(&self) -> Duration {
        QUICK + QUICK_EACH * u32::try_from(self.rows).unwrap_or(u32::MAX)
    }

    fn wasted(&self) -> Duration {
        self.took.saturating_sub(self.quick())
    }
}

impl Lane {
    /// What is known of the lane of this number after a look that began there, at a moment of the timer.
    pub(super) fn after(&self, lane: i64, look: &Look, began: &Began, timer: Duration) -> Self {
        match (began.floor(lane), &self.skips) {
            (Some(floor), Some(skips)) => {
                // Of lanes that begin at their heads it is not known.
                let helps = look.wasted() * 2 < skips.wasted || !began.at_floors();
                let vain = if helps { 0 } else { skips.vain + 1 };
                let mut skips = Skips {
                    floor: risen(lane, &skips.floor, floor, look),
                    vain,
                    ..*skips
                };
                for (top, floor) in skips.top.iter_mut().zip(skips.floor) {
                    *top = floor.max(*top);
                }
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
                let skips = || {
                    let floor = risen(lane, &BOTTOM, &BOTTOM, look);
                    Skips {
                        floor,
                        top: floor,
                        until: timer + rest(look.took),
                        looking: None,
                        sure_until: timer + rest(look.took) + GRACE,
                        wasted: look.wasted(),
                        vain: 0,
                    }
                };
                Self {
                    slow,
                    skips: (slow >= SLOW_MAX).then(skips),
                }
            }
        }
    }
}

/// How long it is not looked below a floor after a look there took so long.
pub(super) fn rest(took: Duration) -> Duration {
    (took * REST_TIMES).clamp(REST_LEAST, REST_MOST)
}

/// Nothing is skipped.
pub(super) const BOTTOM: Floor = [Timestamp::MIN; PRIORITIES];

/// The floor of a lane after a look: at the first task of each priority that was looked at, but not where tasks
/// may still come to be. A look that `began` above the floor has not seen what is in between.
fn risen(lane: i64, before: &Floor, began: &Floor, look: &Look) -> Floor {
    let mut floor = *before;
    let settled = look.now.saturating_minus(SETTLED);
    let (lowest, reach) = match look.reach {
        Some((priority, reach)) => (usize::from(priority.get()), settled.min(reach)),
        None => (0, settled),
    };
    for (priority, floor) in floor.iter_mut().enumerate().skip(lowest) {
        let mut heads = look.found.iter();
        let head = heads.find(|(of, p, _)| *of == lane && usize::from(p.get()) == priority);
        let head = match head {
            Some((_, _, at)) => settled.min(*at),
            None if priority == lowest => reach,
            None => settled,
        };
        if began[priority] <= *floor {
            *floor = head.max(*floor);
        }
    }
    floor
}

impl Skips {
    pub(super) fn is_looked_at(&self, now: Duration) -> bool {
        self.looking.is_some_and(|since| now < since + LOOK_MAX)
    }

    pub(super) fn lower(&mut self, back_to: Timestamp) {
        for floor in &mut self.floor {
            *floor = back_to.min(*floor);
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
pub(super) mod tests {
    use super::*;

    pub(in crate::floors) const NOW: i64 = 10_000_000;

    pub(in crate::floors) fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).expect("a moment")
    }

    const LANE: i64 = 7;

    pub(in crate::floors) fn look(found: &[(u8, i64)], more: bool, took: Duration) -> Look {
        let found = found.iter();
        let found = found.map(|(of, moment)| (LANE, Priority::new(*of).expect("one"), at(*moment)));
        let found: Vec<_> = found.collect();
        let last = found.last().map(|(_, priority, at)| (*priority, *at));
        Look {
            reach: last.filter(|_| more),
            rows: found.len(),
            found,
            took,
            now: at(NOW),
        }
    }

    pub(in crate::floors) fn at_floor(floor: Option<&Floor>) -> Began {
        Began {
            lanes: vec![(LANE, floor.copied())],
            lowered: 0,
        }
    }

    impl Lane {
        fn after_one(&self, look: &Look, floor: Option<&Floor>, timer: Duration) -> Self {
            self.after(LANE, look, &at_floor(floor), timer)
        }
    }

    pub(in crate::floors) fn slow(found: &[(u8, i64)], more: bool) -> Look {
        look(found, more, Duration::from_millis(5))
    }

    /// A lane after three slow looks.
    fn skipping(look: &Look) -> Lane {
        (0..3).fold(Lane::default(), |lane, _| {
            lane.after_one(look, None, Duration::ZERO)
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
                lane = lane.after_one(if is_slow { &slow } else { &quick }, None, Duration::ZERO);
                assert_eq!(lane.skips.is_some(), in_a_row >= 3, "{looks:b} {bit}");
            }
        }
    }

    #[test]
    fn one_very_slow_look_is_enough() {
        let enough = (QUICK + QUICK_EACH) * VERY_SLOW_TIMES;
        let after =
            |took| Lane::default().after_one(&look(&[(5, 1)], true, took), None, Duration::ZERO);
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
                lane = lane.after_one(look, Some(&began), Duration::ZERO);
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
        let later = lane.after_one(&look(&[(5, 500)], true, QUICK), Some(&began), until / 2);
        let skips = later.skips.clone().expect("skips");
        assert_eq!((skips.floor[5], skips.until), (at(500), until));
        let again = later.after_one(&slow(&[(5, 100)], true), None, until);
        let skips = again.skips.clone().expect("skips");
        assert_eq!((skips.floor[5], skips.until), (at(100), until * 2));
        let quick = again.after_one(&look(&[(5, 100)], true, QUICK), None, until * 2);
        assert_eq!(quick, Lane::default());
        let late = quick.after_one(&look(&[(5, 500)], true, QUICK), Some(&began), until * 2);
        assert_eq!(late, Lane::default());
    }

    #[test]
    fn a_look_that_began_higher_has_not_seen_what_is_below_it() {
        let high = floor(&skipping(&slow(&[(5, 600)], true)));
        let low = skipping(&slow(&[(5, 100)], true));
        let after = low.after_one(&look(&[(5, 700)], true, QUICK), Some(&high), Duration::ZERO);
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
}
