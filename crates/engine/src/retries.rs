//! How long a call is repeated while the store does not answer.

use std::future::Future;
use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::ids::Jitter;
use plimsoll_core::limits::MEMORY;
use plimsoll_core::task::{Backoff, RetryPolicy};
use plimsoll_core::{Error, Result};

use crate::Engine;

/// How often and how patiently a call is repeated when the store is `Unavailable`. Anything else
/// that a store says is answered at once.
///
/// A call is repeated as it was, with the same ids, so that nothing is done twice. Stores remember
/// these for ten minutes; so whatever is set here, nothing is repeated after five.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_engine::Retries;
/// let patient = Retries { tries: 10, ..Retries::default() };
/// assert_eq!(patient.first, Duration::from_millis(100));
/// assert_eq!(Retries::none().tries, 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// How often a call is made at most, the first time included.
    pub tries: u32,
    /// The wait before the second try. Each following one is twice as long, and each is up to half
    /// shorter at random, so that those who were refused together do not come back together.
    pub first: Duration,
    /// The longest wait.
    pub cap: Duration,
}

impl Default for Retries {
    /// Five tries, 100 ms to 5 s apart.
    fn default() -> Self {
        Self {
            tries: 5,
            first: Duration::from_millis(100),
            cap: Duration::from_secs(5),
        }
    }
}

impl Retries {
    /// Each call is made once.
    pub fn none() -> Self {
        Self {
            tries: 1,
            ..Self::default()
        }
    }

    /// How long to wait after this many failures.
    pub(crate) fn delay(&self, failures: u32, jitter: Jitter) -> Duration {
        let policy = RetryPolicy {
            backoff: Backoff::Exponential {
                first: self.first,
                factor: 2.0,
                cap: self.cap,
            },
            jitter_percent: 50,
            ..RetryPolicy::default()
        };
        policy.delay(failures, jitter)
    }
}

/// What is left of the patience with one call.
pub(crate) struct Patience<'a> {
    engine: &'a Engine,
    retries: Retries,
    failures: u32,
    since: Duration,
}

impl Patience<'_> {
    /// Waits, and says whether to try again then.
    pub(crate) async fn bears(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        let delay = (self.retries).delay(self.failures, self.engine.ids().jitter());
        let clock = self.engine.clock();
        let late = clock.monotonic().saturating_sub(self.since) + delay > MEMORY / 2;
        if self.failures >= self.retries.tries || late {
            return false;
        }
        clock.sleep(delay).await;
        true
    }
}

impl Retries {
    pub(crate) fn patience(self, engine: &Engine) -> Patience<'_> {
        Patience {
            engine,
            retries: self,
            failures: 0,
            since: engine.clock().monotonic(),
        }
    }

    /// Makes a call that is safe to repeat until the store answers, or patience ends.
    pub(crate) async fn patiently<T, F>(
        self,
        engine: &Engine,
        mut call: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut patience = self.patience(engine);
        let mut applied = Applied::No;
        loop {
            let error = match call().await {
                Err(Error::Unavailable(error)) => error,
                answer => return answer,
            };
            applied = worse(applied, error.applied);
            if !patience.bears().await {
                return Err(Unavailable { applied, ..error }.into());
            }
        }
    }
}

/// What is known after two tries: one that may have taken effect stays so.
pub(crate) fn worse(one: Applied, other: Applied) -> Applied {
    match (one, other) {
        (Applied::No, Applied::No) => Applied::No,
        (Applied::Unknown, _) | (_, Applied::Unknown) => Applied::Unknown,
    }
}
