//! What a seed draws: how large the world is, and how bad its weather.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::task::Status;

use crate::dice::Dice;

/// How large the world of a seed is, and what goes wrong in it.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) workers: u64,
    pub(crate) submitters: u64,
    pub(crate) sweepers: u64,
    pub(crate) lockers: u64,
    /// How often each locker takes a lock.
    pub(crate) rounds: u64,
    /// How many processes are partitions of jobs.
    pub(crate) partitions: u64,
    /// How many things each of them says.
    pub(crate) steps: u64,
    pub(crate) deleter: bool,
    /// How many look at jobs.
    pub(crate) onlookers: u64,
    /// How many subscriptions each of them has.
    pub(crate) subscriptions: u64,
    /// How many write records.
    pub(crate) clerks: u64,
    /// How long jobs are kept that have finished, if they are removed at all; others twice as long.
    pub(crate) jobs: Option<Duration>,
    /// Which finished tasks go to the archive.
    pub(crate) archived: BTreeSet<Status>,
    /// How many things each submitter does.
    pub(crate) orders: u64,
    /// How long things go wrong.
    pub(crate) storm: Duration,
    /// Nothing goes wrong at all.
    pub(crate) calm: bool,
    pub(crate) calls: Calls,
    pub(crate) hints: Hints,
    /// How long a process lives on average, if processes crash.
    pub(crate) life: Option<Duration>,
    /// How long a process runs on average before it is paused, if processes are.
    pub(crate) until_pause: Option<Duration>,
    /// How long a worker works on average before it is told to drain, if workers are.
    pub(crate) until_drain: Option<Duration>,
    /// When the wall clock of the store jumps, by how much, and whether ahead.
    pub(crate) jumps: Vec<(Duration, Duration, bool)>,
    /// When nothing gets through to the store, from when to when.
    pub(crate) outages: Vec<(Duration, Duration)>,
    /// How wrong the wall clocks of processes are.
    pub(crate) skew_max: Duration,
    /// Of a thousand processes, how many merge their calls.
    pub(crate) merged: u64,
    /// Whether the store says that it writes several things at once.
    pub(crate) concurrent: bool,
    /// How long history is kept, if it is removed at all.
    pub(crate) history: Option<Duration>,
}

/// What happens to calls of the store, of a thousand.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    /// The longest way to the store, and back.
    pub(crate) latency_max: Duration,
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) duplicate: u64,
    pub(crate) late: u64,
    pub(crate) slow: u64,
    pub(crate) slow_max: Duration,
}

/// What happens to wake-ups, of a thousand.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    pub(crate) dropped: u64,
    pub(crate) held_back: u64,
    pub(crate) spurious: u64,
}

impl Profile {
    pub(crate) fn draw(dice: &Dice) -> Self {
        let calm = dice.chance(125);
        let rate = |often: u64, most: u64| {
            if !calm && dice.chance(often) {
                dice.range(1, most)
            } else {
                0
            }
        };
        let mean = |often: u64, low: u64, high: u64| {
            let mean = dice.millis(low, high);
            (!calm && dice.chance(often)).then_some(mean)
        };
        let storm = dice.millis(10_000, 90_000);
        let jumps = (0..rate(300, 3)).map(|_| {
            let at = dice.time(Duration::ZERO, storm);
            (at, dice.millis(100, 40_000), dice.chance(500))
        });
        let outages = (0..rate(300, 3)).map(|_| {
            let from = dice.time(Duration::ZERO, storm);
            (from, from + dice.millis(100, 25_000))
        });
        let ended = Status::ALL
            .into_iter()
            .filter(|status| status.is_terminal());
        let archived = ended.filter(|_| dice.chance(700));
        let partitions = match dice.chance(500) {
            true => dice.range(1, 12),
            false => 0,
        };
        Self {
            workers: dice.range(1, 4),
            submitters: dice.range(1, 3),
            sweepers: dice.range(1, 3),
            lockers: dice.below(4),
            rounds: dice.range(2, 8),
            partitions,
            steps: dice.range(4, 30),
            deleter: dice.chance(500),
            onlookers: partitions.min(dice.range(1, 2)),
            subscriptions: if dice.chance(200) {
                dice.range(20, 120)
            } else {
                dice.range(1, 4)
            },
            clerks: if dice.chance(300) {
                dice.range(1, 2)
            } else {
                0
            },
            jobs: dice.chance(300).then(|| dice.millis(500, 20_000)),
            archived: archived.collect(),
            orders: dice.range(4, 20),
            storm,
            calm,
            calls: Calls {
                latency_max: dice.millis(1, 20),
                before: rate(600, 120),
                after: rate(600, 120),
                duplicate: rate(500, 80),
                late: rate(400, 60),
                slow: rate(500, 60),
                slow_max: dice.millis(100, 15_000),
            },
            hints: Hints {
                dropped: rate(400, 1_000),
                held_back: rate(400, 500),
                spurious: rate(400, 300),
            },
            life: mean(600, 2_000, 40_000),
            until_pause: mean(500, 3_000, 40_000),
            until_drain: mean(500, 3_000, 40_000),
            jumps: jumps.collect(),
            outages: outages.collect(),
            skew_max: Duration::from_millis(rate(500, 2_000)),
            merged: dice.below(1_001),
            concurrent: dice.chance(500),
            history: dice.chance(700).then(|| dice.millis(2_000, 60_000)),
        }
    }
}
