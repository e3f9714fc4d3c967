//! Randomness: all of it comes from the seed, and every actor has its own.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Ids;
use plimsoll_core::clock::Clock;

/// Dice that fall the same way again for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Ids);

impl Dice {
    /// The dice of what `path` names, in the simulation of this seed.
    pub(crate) fn new(seed: u64, path: &[u64], clock: Arc<dyn Clock>) -> Self {
        Self(Ids::seeded(derive(seed, path), clock))
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from `low` to `high`.
    pub(crate) fn range(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Whether something happens that happens this often of a thousand times.
    pub(crate) fn chance(&self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// A time from `low` to `high`.
    pub(crate) fn time(&self, low: Duration, high: Duration) -> Duration {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.range(micros(low), micros(high)))
    }

    /// A time from `low` to `high` milliseconds.
    pub(crate) fn millis(&self, low: u64, high: u64) -> Duration {
        self.time(Duration::from_millis(low), Duration::from_millis(high))
    }

    /// One of these, of which there must be one.
    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }

    /// Where ids come from.
    pub(crate) fn ids(&self) -> &Ids {
        &self.0
    }
}

/// Mixes a seed and a path into another seed, as SplitMix64 does.
fn derive(seed: u64, path: &[u64]) -> u64 {
    path.iter()
        .fold(mix(seed), |mixed, step| mix(mixed ^ mix(*step)))
}

fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
