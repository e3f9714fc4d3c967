//! Who is hit when, and how: all from a seed. What happens meanwhile decides only which command of a
//! worker is killed, and who is frozen with a lock.

use std::sync::Arc;
use std::time::Duration;

use plimsoll::Ids;
use plimsoll::clock::Clock;

use super::cast::Role;
use super::stage::LEASE;

/// What is done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// SIGKILL; it is started again at once.
    Kill,
    /// SIGSTOP, for longer than a lease or a lock lasts.
    Freeze,
    /// SIGTERM; it is started again when it has ended.
    Drain,
    /// SIGKILL for a process of one of its commands.
    Cut,
}

/// One stroke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stroke {
    pub(super) deed: Deed,
    pub(super) role: Role,
    pub(super) number: u64,
    /// How long a frozen process is left like that.
    pub(super) lasts: Duration,
    /// Which of several.
    pub(super) draw: usize,
}

/// What is done to whom, and between which two numbers of milliseconds lie between two strokes.
const PLAN: [(Deed, Role, u64, u64); 8] = [
    (Deed::Kill, Role::Worker, 1_500, 3_500),
    (Deed::Freeze, Role::Worker, 2_000, 4_000),
    (Deed::Drain, Role::Worker, 2_500, 5_000),
    (Deed::Cut, Role::Worker, 500, 1_500),
    (Deed::Kill, Role::Holder, 2_000, 4_000),
    (Deed::Freeze, Role::Holder, 800, 2_000),
    (Deed::Kill, Role::Watchdog, 2_000, 4_500),
    (Deed::Freeze, Role::Watchdog, 2_000, 4_500),
];

/// Says who is hit next.
pub(super) struct Dice {
    rhythms: Vec<Rhythm>,
}

/// Each goes on by itself, so that none changes what another draws.
struct Rhythm {
    dice: Ids,
    next: Duration,
}

impl Rhythm {
    fn between(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.dice.below(most - least))
    }
}

impl Dice {
    pub(super) fn new(seed: u64, clock: &Arc<dyn Clock>) -> Self {
        let rhythm = |(index, (_, _, least, most)): (usize, &(Deed, Role, u64, u64))| {
            let seed = seed.wrapping_mul(PLAN.len() as u64) + index as u64;
            let mut rhythm = Rhythm {
                dice: Ids::seeded(seed, clock.clone()),
                next: Duration::ZERO,
            };
            rhythm.next = rhythm.between(*least, *most);
            rhythm
        };
        Self {
            rhythms: PLAN.iter().enumerate().map(rhythm).collect(),
        }
    }

    /// Everything that has become due.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Stroke> {
        let mut strokes = Vec::new();
        for (rhythm, (deed, role, least, most)) in self.rhythms.iter_mut().zip(PLAN) {
            while rhythm.next <= now {
                rhythm.next += rhythm.between(least, most);
                strokes.push(Stroke {
                    deed,
                    role,
                    number: rhythm.dice.below(role.count()),
                    lasts: LEASE + rhythm.between(0, 1_500),
                    draw: rhythm.dice.below(1_000) as usize,
                });
            }
        }
        strokes
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::clock::ManualClock;

    use super::*;

    fn strokes(seed: u64, looks: &[u64]) -> Vec<Stroke> {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let mut dice = Dice::new(seed, &clock);
        let mut strokes: Vec<Stroke> = (looks.iter())
            .flat_map(|seconds| dice.due(Duration::from_secs(*seconds)))
            .collect();
        strokes.sort_by_key(|stroke| format!("{stroke:?}"));
        strokes
    }

    #[test]
    fn the_seed_decides_and_not_when_somebody_looks() {
        let often: Vec<u64> = (0..=60).collect();
        assert_eq!(strokes(7, &[60]), strokes(7, &often));
        assert_ne!(strokes(7, &[60]), strokes(8, &[60]));
    }

    #[test]
    fn everybody_is_hit_in_every_way() {
        let strokes = strokes(7, &[300]);
        for (deed, role, ..) in PLAN {
            let hit = |number: u64| {
                let is = |s: &&Stroke| (s.deed, s.role, s.number) == (deed, role, number);
                strokes.iter().any(|stroke| is(&stroke))
            };
            assert!((0..role.count()).all(hit), "{deed:?} {role:?}");
        }
        assert!(strokes.iter().all(|stroke| stroke.lasts >= LEASE));
    }
}
