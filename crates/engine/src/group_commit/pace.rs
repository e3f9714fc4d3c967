//! How many groups are in flight: as many as may be, or one at a time, whichever has answered more callers.
//!
//! Several at once keep a store busy that would wait for its disk. Where its processors are busy anyway, as beside
//! other processes, fewer and larger groups cost it less. Nothing that can be asked for tells which it is, so both are
//! tried now and then, a few windows each in turn. One at a time has to be clearly better every time: where callers are
//! too few to keep the store busy both answer the same, and nobody should wait for another group then.

use std::time::Duration;

/// How long a window lasts at least.
const WINDOW: Duration = Duration::from_millis(50);
/// How many groups it has at least.
const GROUPS_MIN: usize = 8;
/// A pause in which nothing was in flight ends a window without a result: how long it was says nothing about the
/// store.
const PAUSE: Duration = Duration::from_millis(5);
/// After so many of them, without a window in between, there is room for all.
const PAUSES_MAX: u32 = 8;
/// Groups that are answered right after a change, and not counted: they were filled before it.
const UNCOUNTED: usize = 4;
/// How many callers must share a group, on average, for one at a time to be tried. It must have as many times more as
/// it keeps others from being in flight.
const CALLERS_MIN: usize = 8;
/// A trial: so many windows, in turn.
const TRIAL: u32 = 8;
/// For how many windows its outcome is kept, first, and at most while trials confirm it.
const KEPT_FIRST: u32 = 32;
const KEPT_MAX: u32 = 128;
/// How much better one at a time must be, in percent.
const BETTER: u128 = 107;
/// How long a group may take, whatever it waits for, before its answer is overdue and it no longer keeps others from
/// being in flight. On a store where groups take longer than that, it is always all.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    All,
    One,
}

impl Mode {
    fn other(self) -> Self {
        match self {
            Self::All => Self::One,
            Self::One => Self::All,
        }
    }
}

/// What was answered, in how much time.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    groups: usize,
    callers: usize,
    time: Duration,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.groups += other.groups;
        self.callers += other.callers;
        self.time += other.time;
    }

    /// Whether it has answered clearly more in the same time.
    fn beats(&self, other: &Self) -> bool {
        let rate = |tally: &Self, of: &Self| tally.callers as u128 * of.time.as_nanos();
        rate(self, other) * 100 > rate(other, self) * BETTER
    }
}

#[derive(Debug)]
pub(super) struct Pace {
    max: usize,
    /// What the last trial chose, and what is done now: the other one in every other window of a trial.
    kept: Mode,
    now: Mode,
    /// Windows to go of the trial; 0: there is none.
    trying: u32,
    /// What the trial has shown of all, and of one at a time.
    all: Tally,
    one: Tally,
    /// Windows to go until the next one, and how many there were at first.
    keeping: u32,
    kept_for: u32,
    /// Of this window, when it began, and when a group was answered last.
    window: Tally,
    began: Option<Duration>,
    last: Duration,
    /// Pauses since the last window.
    pauses: u32,
    /// Groups that do not count.
    uncounted: usize,
}

impl Pace {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            kept: Mode::All,
            now: Mode::All,
            trying: 0,
            all: Tally::default(),
            one: Tally::default(),
            keeping: 0,
            kept_for: 0,
            window: Tally::default(),
            began: None,
            last: Duration::ZERO,
            pauses: 0,
            uncounted: 0,
        }
    }

    /// How many groups may be in flight, if the answers of so many are overdue.
    pub(super) fn allowed(&self, overdue: usize) -> usize {
        match self.now {
            Mode::All => self.max,
            Mode::One => (1 + overdue).min(self.max),
        }
    }

    /// Whether it wants to know when groups are sent and answered.
    pub(super) fn has_a_choice(&self) -> bool {
        self.max > 1
    }

    /// A group is sent, and nothing else is in flight.
    pub(super) fn sent_alone(&mut self, at: Duration) {
        if at.saturating_sub(self.last) > PAUSE {
            self.window = Tally::default();
            self.began = None;
            self.pauses += 1;
            if self.pauses >= PAUSES_MAX {
                self.pauses = 0;
                self.make_room();
            }
        }
    }

    /// A group was answered.
    pub(super) fn answered(&mut self, at: Duration, callers: usize) {
        self.last = at;
        if self.uncounted > 0 {
            self.uncounted -= 1;
            return;
        }
        let Some(began) = self.began else {
            self.began = Some(at);
            return;
        };
        self.window.groups += 1;
        self.window.callers += callers;
        self.window.time = at.saturating_sub(began);
        if self.window.groups >= GROUPS_MIN && self.window.time >= WINDOW {
            let window = std::mem::take(&mut self.window);
            self.began = Some(at);
            self.pauses = 0;
            self.over(window);
        }
    }

    /// All that may be are in flight, for a while.
    fn make_room(&mut self) {
        if self.now == Mode::One || self.trying > 0 {
            self.keeping = KEPT_FIRST;
        }
        self.kept_for = 0;
        self.keep(Mode::All);
    }

    fn over(&mut self, window: Tally) {
        let callers_min = CALLERS_MIN * (self.max / self.allowed(0));
        if window.callers < window.groups * callers_min {
            self.make_room();
        } else if self.trying > 0 {
            match self.now {
                Mode::All => self.all.add(window),
                Mode::One => self.one.add(window),
            }
            self.trying -= 1;
            if self.trying > 0 {
                self.change(self.now.other());
            } else {
                self.decide();
            }
        } else if self.keeping > 0 {
            self.keeping -= 1;
        } else {
            (self.all, self.one) = Default::default();
            self.trying = TRIAL;
            self.change(self.kept.other());
        }
    }

    fn decide(&mut self) {
        let chosen = match self.one.beats(&self.all) {
            true => Mode::One,
            false => Mode::All,
        };
        self.kept_for = match chosen == self.kept {
            true => (self.kept_for * 2).clamp(KEPT_FIRST, KEPT_MAX),
            false => KEPT_FIRST,
        };
        self.keeping = self.kept_for;
        self.keep(chosen);
    }

    fn keep(&mut self, mode: Mode) {
        self.kept = mode;
        self.trying = 0;
        self.change(mode);
    }

    fn change(&mut self, mode: Mode) {
        if self.now != mode {
            self.now = mode;
            self.uncounted = UNCOUNTED;
            self.window = Tally::default();
            self.began = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that answers so many callers a second with all groups in flight, and with one.
    struct Model {
        all: u32,
        one: u32,
        /// Callers of a group with all in flight. With one, it has all of them.
        callers: usize,
        now: Duration,
    }

    impl Model {
        fn new(all: u32, one: u32, callers: usize) -> Self {
            Self {
                all,
                one,
                callers,
                now: Duration::ZERO,
            }
        }

        /// Answers for so long; how much of that with one in flight, in percent.
        fn run(&mut self, pace: &mut Pace, seconds: u64) -> u64 {
            let until = self.now + Duration::from_secs(seconds);
            let mut one = Duration::ZERO;
            while self.now < until {
                let (rate, callers) = match pace.allowed(0) {
                    1 => (self.one, self.callers * 2),
                    _ => (self.all, self.callers),
                };
                let time = Duration::from_secs(1) * callers as u32 / rate;
                self.now += time;
                if pace.allowed(0) == 1 {
                    one += time;
                }
                pace.answered(self.now, callers);
            }
            one.as_millis() as u64 / seconds / 10
        }
    }

    #[test]
    fn what_answers_more_is_kept() {
        let mut busy = Model::new(25_000, 30_000, 32);
        assert!(busy.run(&mut Pace::new(2), 20) > 90);
        let mut waiting = Model::new(40_000, 30_000, 32);
        assert!(waiting.run(&mut Pace::new(2), 20) < 10);
    }

    #[test]
    fn one_at_a_time_must_be_clearly_better_every_time() {
        // Callers who come at their own pace are answered as fast as they come, either way.
        let mut pace = Pace::new(2);
        let mut model = Model::new(25_000, 30_000, 32);
        model.run(&mut pace, 10);
        (model.all, model.one) = (20_000, 20_000);
        model.run(&mut pace, 10);
        assert!(model.run(&mut pace, 20) < 10);
    }

    #[test]
    fn what_is_hardly_better_is_not_worth_a_change() {
        let mut alike = Model::new(40_000, 41_000, 32);
        assert!(alike.run(&mut Pace::new(2), 20) < 10);
    }

    #[test]
    fn a_choice_lasts_until_the_other_one_is_better() {
        let mut pace = Pace::new(2);
        let mut model = Model::new(40_000, 30_000, 32);
        model.run(&mut pace, 30);
        (model.all, model.one) = (25_000, 30_000);
        model.run(&mut pace, 5);
        assert!(model.run(&mut pace, 10) > 90);
        (model.all, model.one) = (40_000, 30_000);
        model.run(&mut pace, 5);
        assert!(model.run(&mut pace, 10) < 10);
    }

    #[test]
    fn a_long_choice_is_tried_seldom() {
        let mut pace = Pace::new(2);
        let mut model = Model::new(40_000, 20_000, 32);
        model.run(&mut pace, 20);
        assert!(model.run(&mut pace, 60) <= 5);
    }

    #[test]
    fn few_callers_never_wait_for_another_group() {
        let mut few = Model::new(1_000, 5_000, 7);
        assert_eq!(few.run(&mut Pace::new(2), 20), 0);
    }

    #[test]
    fn when_callers_become_few_all_are_in_flight_again() {
        let mut pace = Pace::new(2);
        let mut model = Model::new(25_000, 30_000, 32);
        model.run(&mut pace, 10);
        // Two callers of a group with one in flight.
        (model.callers, model.all, model.one) = (1, 1_000, 1_000);
        assert!(model.run(&mut pace, 1) <= 10);
        assert_eq!(model.run(&mut pace, 10), 0);
    }

    #[test]
    fn neither_are_they_tried_again_and_again_around_the_least_number() {
        // Eight callers of a group in one window, and seven in the next.
        let mut pace = Pace::new(2);
        let mut model = Model::new(8_000, 1_000, 8);
        let mut one = 0;
        for turn in 0..600 {
            model.callers = if turn % 2 == 0 { 8 } else { 7 };
            let until = model.now + WINDOW;
            while model.now < until {
                let alone = pace.allowed(0) == 1;
                let (callers, micros) = if alone {
                    (16, 16_000)
                } else {
                    (model.callers, 1_000)
                };
                one += u32::from(alone) * 16;
                model.now += Duration::from_micros(micros);
                pace.answered(model.now, callers);
            }
        }
        assert!(one < 600 * 50 / 5, "{one} of {} ms alone", 600 * 50);
    }

    #[test]
    fn with_one_at_a_time_a_group_must_have_twice_as_many() {
        let mut pace = Pace::new(2);
        let mut model = Model::new(25_000, 30_000, 32);
        model.run(&mut pace, 10);
        assert_eq!(pace.allowed(0), 1);
        // Twelve callers, all in one group.
        model.callers = 6;
        model.run(&mut pace, 1);
        assert_eq!(pace.allowed(0), 2);
        assert_eq!(model.run(&mut pace, 10), 0);
    }

    #[test]
    fn callers_who_pause_find_room() {
        let mut pace = Pace::new(2);
        let mut model = Model::new(25_000, 30_000, 32);
        model.run(&mut pace, 10);
        assert_eq!(pace.allowed(0), 1);
        // A burst of three groups every 20 ms: no window ends any more.
        for _ in 0..PAUSES_MAX {
            model.now += Duration::from_millis(20);
            pace.sent_alone(model.now);
            for _ in 0..3 {
                model.now += Duration::from_millis(1);
                pace.answered(model.now, 64);
            }
        }
        assert_eq!(pace.allowed(0), 2);
    }

    #[test]
    fn room_is_made_at_once_and_for_a_while() {
        let mut pace = Pace::new(2);
        let mut model = Model::new(25_000, 30_000, 32);
        model.run(&mut pace, 10);
        assert_eq!(pace.allowed(0), 1);
        pace.make_room();
        assert_eq!(pace.allowed(0), 2);
        assert_eq!(model.run(&mut pace, 1), 0);
        model.run(&mut pace, 5);
        assert_eq!(pace.allowed(0), 1, "it is tried again later");
    }

    #[test]
    fn an_outcome_is_kept_for_longer_while_it_is_confirmed() {
        let mut pace = Pace::new(2);
        let mut model = Model::new(40_000, 20_000, 32);
        let mut kept = Vec::new();
        while kept.len() < 4 {
            model.run(&mut pace, 1);
            if kept.last() != Some(&pace.kept_for) {
                kept.push(pace.kept_for);
            }
            if pace.kept_for == KEPT_MAX {
                break;
            }
        }
        assert_eq!(kept, [KEPT_FIRST, KEPT_FIRST * 2, KEPT_MAX]);
    }

    #[test]
    fn a_pause_is_not_counted() {
        // A pause of a second after every 20 groups, whatever is tried. All at once is better but for the pauses, of
        // which a window with larger groups has fewer.
        let mut pace = Pace::new(2);
        let mut now = Duration::ZERO;
        let mut one = 0;
        for _ in 0..2_000 {
            now += Duration::from_secs(1);
            pace.sent_alone(now);
            for _ in 0..20 {
                let (callers, millis) = match pace.allowed(0) {
                    1 => (64, 7),
                    _ => (32, 3),
                };
                one += u32::from(callers == 64);
                now += Duration::from_millis(millis);
                pace.answered(now, callers);
            }
        }
        assert!(one < 2_000 * 20 / 10, "{one} groups were alone");
        // Answers that follow at once are no pause.
        let began = pace.began;
        pace.sent_alone(now + PAUSE);
        assert_eq!(pace.began, began);
        pace.sent_alone(now + PAUSE + Duration::from_nanos(1));
        assert_eq!(pace.began, None);
    }

    #[test]
    fn what_is_overdue_keeps_nobody_from_being_in_flight() {
        let mut pace = Pace::new(3);
        let allowed = |pace: &Pace| [0, 1, 2, 3].map(|overdue| pace.allowed(overdue));
        assert_eq!(allowed(&pace), [3, 3, 3, 3]);
        pace.keep(Mode::One);
        assert_eq!(allowed(&pace), [1, 2, 3, 3]);
    }

    #[test]
    fn one_at_a_time_leaves_no_choice() {
        assert!(!Pace::new(1).has_a_choice());
        assert_eq!(Pace::new(1).allowed(0), 1);
    }

    #[test]
    fn a_slow_store_is_given_enough_groups() {
        let mut pace = Pace::new(2);
        let each = Duration::from_millis(60);
        for n in 1..=GROUPS_MIN as u32 {
            pace.answered(each * n, 32);
            assert_eq!(pace.window.groups, n as usize - 1, "it is not over");
        }
        pace.answered(each * (GROUPS_MIN as u32 + 1), 32);
        assert_eq!((pace.window.groups, pace.trying), (0, TRIAL), "it is");
        let mut slow = Model::new(1_600, 2_000, 32);
        assert!(slow.run(&mut Pace::new(2), 600) > 80);
    }

    #[test]
    fn groups_that_were_filled_before_a_change_do_not_count() {
        let mut pace = Pace::new(2);
        pace.keep(Mode::One);
        // Two that were in flight, and two that waited.
        for n in 1..=4 {
            pace.answered(WINDOW * n, 32);
            assert_eq!(pace.began, None);
        }
        pace.answered(WINDOW * 5, 32);
        assert_eq!(pace.began, Some(WINDOW * 5));
    }

    #[test]
    fn a_trial_has_as_many_windows_of_each() {
        let mut pace = Pace::new(2);
        let mut model = Model::new(40_000, 30_000, 32);
        while pace.kept_for == 0 {
            model.run(&mut pace, 1);
        }
        let windows = |tally: Tally| tally.time.as_millis() / WINDOW.as_millis();
        assert_eq!((windows(pace.all), windows(pace.one)), (4, 4));
    }
}
