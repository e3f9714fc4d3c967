//! How patiently those who follow the history wait for a store that does not answer.

use std::time::Duration;

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
}
