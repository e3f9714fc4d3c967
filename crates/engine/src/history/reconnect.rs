//! How patiently those who follow the history wait for a store that does not answer.

use std::future::Future;
use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::clock::Clock;

/// How often and how patiently the history is read again while the store does not answer. After that,
/// whoever follows it is told, and may go on later from its cursor.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_engine::history::Reconnect;
/// let reconnect = Reconnect::default();
/// let waits: Vec<_> = (1..=6).map(|failures| reconnect.wait(failures)).collect();
/// let seconds = |n| Some(Duration::from_secs(n));
/// assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(8), seconds(16), None]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// The wait after the first failure. Each following one is twice as long.
    pub first: Duration,
    /// The longest wait.
    pub cap: Duration,
    /// How often it is tried again at most.
    pub attempts: u32,
}

impl Default for Reconnect {
    /// Five times, 1 s to 60 s apart.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            cap: Duration::from_secs(60),
            attempts: 5,
        }
    }
}

impl Reconnect {
    /// How long to wait after so many failures in a row; `None`: not any more.
    pub fn wait(&self, failures: u32) -> Option<Duration> {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        (failures <= self.attempts).then(|| self.first.saturating_mul(doubled).min(self.cap))
    }

    /// Makes a call until the store answers it, or has failed once too often.
    pub(crate) async fn patiently<T, F>(
        &self,
        clock: &dyn Clock,
        mut call: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut failures = 0;
        loop {
            let error = match call().await {
                Err(error) if error.is_transient() => error,
                answer => return answer,
            };
            failures += 1;
            match self.wait(failures) {
                Some(wait) => clock.sleep(wait).await,
                None => return Err(error),
            }
        }
    }
}

/// What is left of the patience of one who follows.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    failures: u32,
    /// No failure before this moment counts: somebody else was less patient.
    until: Duration,
}

/// What one who follows does about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bears {
    /// Nothing: it waits already, for so long.
    Already(Duration),
    /// Waits so long before this attempt.
    Attempt(u32, Duration),
    /// Gives up after so many failures.
    No(u32),
}

impl Patience {
    /// The store has not answered, at this moment of the monotonic clock.
    pub(crate) fn failed(&mut self, reconnect: &Reconnect, now: Duration) -> Bears {
        let left = self.until.saturating_sub(now);
        if !left.is_zero() {
            return Bears::Already(left);
        }
        self.failures = self.failures.saturating_add(1);
        match reconnect.wait(self.failures) {
            Some(wait) => {
                self.until = now.saturating_add(wait);
                Bears::Attempt(self.failures, wait)
            }
            None => Bears::No(self.failures),
        }
    }

    /// The store answers again. Says whether it had not.
    pub(crate) fn restore(&mut self) -> bool {
        std::mem::take(self).failures > 0
    }
}

impl Bears {
    /// How long it waits, if it does.
    pub(crate) fn wait(self) -> Option<Duration> {
        match self {
            Self::Already(wait) | Self::Attempt(_, wait) => Some(wait),
            Self::No(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_end() {
        let patient = Reconnect {
            attempts: 9,
            ..Reconnect::default()
        };
        let waits = (1..).map_while(|failures| patient.wait(failures));
        let waits: Vec<_> = waits.map(|wait| wait.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(patient.wait(u32::MAX), None);
    }

    #[test]
    fn only_its_own_tries_cost_patience() {
        let reconnect = Reconnect {
            attempts: 2,
            ..Reconnect::default()
        };
        let second = Duration::from_secs(1);
        let mut patience = Patience::default();
        assert_eq!(
            patience.failed(&reconnect, second),
            Bears::Attempt(1, second)
        );
        assert_eq!(
            patience.failed(&reconnect, second * 3 / 2),
            Bears::Already(second / 2)
        );
        assert_eq!(
            patience.failed(&reconnect, second * 2),
            Bears::Attempt(2, second * 2)
        );
        assert_eq!(patience.failed(&reconnect, second * 4), Bears::No(3));
        assert!(patience.restore());
        assert!(!patience.restore());
        assert_eq!(
            patience.failed(&reconnect, second * 4),
            Bears::Attempt(1, second)
        );
    }
}
