//! When a failed task runs again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::Jitter;

/// How often and when a task is tried again. It is stored with the task.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_core::task::RetryPolicy;
/// let policy = RetryPolicy { jitter_percent: 0, ..RetryPolicy::default() };
/// let delay = |failures| policy.delay(failures, Default::default()).as_secs();
/// assert_eq!([1, 2, 3, 99].map(delay), [10, 20, 40, 300]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// How often it may fail before it has failed for good. Zero: without limit.
    pub max_attempts: u32,
    /// How long to wait.
    pub backoff: Backoff,
    /// By how much the wait may be shortened at random, in percent of itself.
    pub jitter_percent: u8,
    /// How long after submission a retry may still be due.
    pub total: Option<Duration>,
}

impl Default for RetryPolicy {
    /// Three retries: after 10 s, 20 s and 40 s, each up to a fifth shorter.
    fn default() -> Self {
        Self {
            max_attempts: 4,
            backoff: Backoff::default(),
            jitter_percent: 20,
            total: None,
        }
    }
}

/// How the wait grows from failure to failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// `first`, then `factor` times as long each time, but never longer than `cap`.
    Exponential {
        /// The wait after the first failure.
        first: Duration,
        /// How much longer each following wait is.
        factor: f64,
        /// The longest wait.
        cap: Duration,
    },
    /// Always the same wait.
    Fixed(Duration),
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential {
            first: Duration::from_secs(10),
            factor: 2.0,
            cap: Duration::from_secs(300),
        }
    }
}

impl RetryPolicy {
    /// A policy that never tries again.
    pub fn never() -> Self {
        Self {
            max_attempts: 1,
            ..Self::default()
        }
    }

    /// Whether a task that has failed this often may run again.
    pub fn allows(&self, failures: u32) -> bool {
        self.max_attempts == 0 || failures < self.max_attempts
    }

    /// How long to wait after the task has failed this often.
    pub fn delay(&self, failures: u32, jitter: Jitter) -> Duration {
        let full = match &self.backoff {
            Backoff::Fixed(delay) => *delay,
            Backoff::Exponential { first, .. } if first.is_zero() => Duration::ZERO,
            Backoff::Exponential { first, factor, cap } => {
                let times = f64::from(failures.saturating_sub(1));
                let seconds = first.as_secs_f64() * factor.powf(times);
                // Not a number and infinity both mean that the cap was passed long ago.
                if seconds < cap.as_secs_f64() {
                    Duration::from_secs_f64(seconds)
                } else {
                    *cap
                }
            }
        };
        let share = f64::from(self.jitter_percent.min(100)) / 100.0 * jitter.fraction();
        full.mul_f64(1.0 - share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_delay_never_exceeds_the_cap_nor_falls_below_the_jitter(
            first in 0u64..1_000_000,
            factor in 1.0f64..100.0,
            cap in 0u64..10_000_000,
            jitter_percent in 0u8..=100,
            failures in 0u32..u32::MAX,
            sample in any::<u32>(),
        ) {
            let cap = Duration::from_millis(cap);
            let policy = RetryPolicy {
                backoff: Backoff::Exponential { first: Duration::from_millis(first), factor, cap },
                jitter_percent,
                ..RetryPolicy::default()
            };
            let exact = RetryPolicy { jitter_percent: 0, ..policy.clone() };
            let (delay, full) = (policy.delay(failures, Jitter(sample)), exact.delay(failures, Jitter(sample)));
            prop_assert!(full <= cap);
            prop_assert!(delay <= full);
            let least = full.mul_f64(1.0 - f64::from(jitter_percent) / 100.0);
            prop_assert!(delay + Duration::from_micros(1) >= least);
        }
    }

    #[test]
    fn zero_attempts_mean_no_limit() {
        let policy = RetryPolicy {
            max_attempts: 0,
            ..RetryPolicy::default()
        };
        assert!(policy.allows(u32::MAX));
        assert!(RetryPolicy::never().allows(0));
        assert!(!RetryPolicy::never().allows(1));
    }
}
