//! How a worker works: numbers and what follows from them.

use std::time::Duration;

/// How a worker works.
///
/// ```
/// use plimsoll_engine::worker::Settings;
/// let settings = Settings::default();
/// assert_eq!((settings.concurrency, settings.lease.as_secs()), (16, 30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many handlers run at the same time.
    pub concurrency: usize,
    /// How many tasks may be claimed ahead of their start, at most. A worker whose handlers are slow
    /// claims none ahead, so that others can have them.
    pub prefetch_max: usize,
    /// So many answers take the store about as long as the claim that would go with them: where it
    /// writes several things at once, that goes beside them.
    pub many_answers: usize,
    /// How long a lease runs. It is renewed three times in that time.
    pub lease: Duration,
    /// How often to look for tasks when nothing hints at any. Where the store tells what others
    /// submit, that is only a precaution, and ten times as rare.
    pub poll: Duration,
    /// How long a handler may go on after its task was cancelled.
    pub cancel_grace: Duration,
    /// How long a draining worker lets handlers go on before it asks them to stop.
    pub drain_soft: Duration,
    /// How long after that it drops them and gives their tasks back.
    pub drain_hard: Duration,
    /// How often it says that it is there: see [`registry`](crate::registry).
    pub heartbeat: Duration,
    /// How long nobody may hear of it before it counts as offline. Its tasks do not depend on that.
    pub stale_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 16,
            prefetch_max: 1_000,
            many_answers: 100,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            cancel_grace: Duration::from_secs(30),
            drain_soft: Duration::from_secs(5 * 60),
            drain_hard: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            stale_after: Duration::from_secs(30),
        }
    }
}

/// Tasks that are claimed ahead should start within this.
const AHEAD: Duration = Duration::from_millis(50);
/// A task that has not started by then is given back.
pub(super) const UNSTARTED_MAX: Duration = Duration::from_secs(1);

/// Where the store hints at tasks, looking without a hint is this many times rarer.
const HINTED: u32 = 10;
/// However short the lease, and however long: the longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Settings {
    /// How often to look for tasks when nothing hints at any.
    pub(super) fn idle_poll(&self, hinted: bool) -> Duration {
        if hinted {
            self.poll * HINTED
        } else {
            self.poll
        }
    }

    /// How long to wait at most before the store is tried again: answers should reach it while
    /// their leases run.
    pub(super) fn pause_max(&self) -> Duration {
        PAUSE_MAX.min(self.lease / 8)
    }

    /// How long a renewal may take. After that it is sent again.
    pub(super) fn renewal_max(&self) -> Duration {
        self.lease / 2
    }

    /// How many answers may wait for the store before no more work is begun.
    pub(super) fn owed_max(&self) -> usize {
        self.concurrency.saturating_mul(4).saturating_add(1_024)
    }

    /// How long after it was taken or renewed a lease is renewed.
    pub(super) fn renew_after(&self) -> Duration {
        self.lease / 3
    }

    /// How long before the end of its lease a handler is asked to stop.
    pub(super) fn stop_margin(&self) -> Duration {
        self.lease / 4
    }

    /// How long before the end of its lease a handler is dropped.
    pub(super) fn cut_margin(&self) -> Duration {
        self.lease / 16
    }

    /// How many tasks to claim ahead when handlers take about this long; `None`: nobody knows yet.
    pub(super) fn prefetch(&self, handler_takes: Option<Duration>) -> usize {
        let Some(takes) = handler_takes else {
            return 0;
        };
        let soon = AHEAD.as_nanos().checked_div(takes.as_nanos());
        let starts = soon.map(|turns| turns.saturating_mul(self.concurrency as u128));
        let starts = starts.and_then(|starts| usize::try_from(starts).ok());
        starts.unwrap_or(usize::MAX).min(self.prefetch_max)
    }
}

/// How long handlers take, on average, with more weight on the last ones.
#[derive(Debug, Default)]
pub(super) struct Pace {
    mean: Option<Duration>,
}

impl Pace {
    pub(super) fn took(&mut self, duration: Duration) {
        self.mean = Some(match self.mean {
            None => duration,
            Some(mean) => (mean * 15 + duration) / 16,
        });
    }

    /// What to expect, given how long those that run now have run: a worker whose handlers all hang
    /// must notice before the first of them ends.
    pub(super) fn expected(
        &self,
        running: impl ExactSizeIterator<Item = Duration>,
    ) -> Option<Duration> {
        let count = u32::try_from(running.len()).unwrap_or(u32::MAX);
        let age = running.sum::<Duration>().checked_div(count);
        self.mean.map(|mean| mean.max(age.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fast_handlers_are_claimed_ahead_for() {
        let settings = Settings {
            concurrency: 10,
            prefetch_max: 100,
            ..Settings::default()
        };
        let prefetch = |takes: u64| settings.prefetch(Some(Duration::from_millis(takes)));
        assert_eq!(settings.prefetch(None), 0);
        assert_eq!(prefetch(10_000), 0);
        assert_eq!(prefetch(51), 0);
        assert_eq!(prefetch(25), 20);
        assert_eq!(prefetch(1), 100);
        assert_eq!(prefetch(0), 100);
    }

    #[test]
    fn handlers_that_hang_slow_the_pace_before_they_end() {
        let mut pace = Pace::default();
        assert_eq!(pace.expected([].into_iter()), None);
        pace.took(Duration::from_millis(1));
        assert_eq!(
            pace.expected([].into_iter()),
            Some(Duration::from_millis(1))
        );
        let hung = [Duration::from_secs(2), Duration::from_secs(4)];
        assert_eq!(
            pace.expected(hung.into_iter()),
            Some(Duration::from_secs(3))
        );
    }

    #[test]
    fn a_handler_is_stopped_and_cut_before_its_lease_ends() {
        let settings = Settings::default();
        assert!(settings.renew_after() * 2 < settings.lease - settings.stop_margin());
        assert!(settings.cut_margin() < settings.stop_margin());
    }
}
