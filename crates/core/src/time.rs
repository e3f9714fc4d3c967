//! A moment in time, as stores keep it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, Problem};

/// Microseconds since 1970-01-01 UTC, up to the end of the year 9999.
///
/// ```
/// use plimsoll_core::Timestamp;
/// let at = Timestamp::from_micros(1_700_000_000_000_000)?;
/// assert_eq!(at.to_string(), "2023-11-14T22:13:20Z");
/// assert!(Timestamp::MAX.plus("delay", std::time::Duration::from_secs(1)).is_err());
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const MIN: Self = Self(0);
    /// 9999-12-30T22:00:00Z, the last moment that every store and every formatter can hold.
    pub const MAX: Self = Self(253_402_207_200_000_000);

    /// Checks that the moment lies between [`MIN`](Self::MIN) and [`MAX`](Self::MAX).
    pub fn from_micros(micros: i64) -> Result<Self, Invalid> {
        Self::checked("timestamp", i128::from(micros))
    }

    /// Microseconds since 1970.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// Later by `duration`, or an error that blames `field` when that lies past the year 9999.
    pub fn plus(self, field: &str, duration: Duration) -> Result<Self, Invalid> {
        let micros = i128::try_from(duration.as_micros()).unwrap_or(i128::MAX);
        Self::checked(field, i128::from(self.0).saturating_add(micros))
    }

    /// Later by `duration`, but not later than [`MAX`](Self::MAX).
    pub fn saturating_plus(self, duration: Duration) -> Self {
        self.plus("duration", duration).unwrap_or(Self::MAX)
    }

    /// Earlier by `duration`, but not earlier than [`MIN`](Self::MIN).
    pub fn saturating_minus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros).max(0))
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    fn checked(field: &str, micros: i128) -> Result<Self, Invalid> {
        match i64::try_from(micros) {
            Ok(micros) if (Self::MIN.0..=Self::MAX.0).contains(&micros) => Ok(Self(micros)),
            _ => Err(Invalid::new(
                field,
                Problem::Malformed {
                    expected: "a moment between the years 1970 and 9999".into(),
                },
            )),
        }
    }
}

impl TryFrom<i64> for Timestamp {
    type Error = Invalid;
    fn try_from(micros: i64) -> Result<Self, Invalid> {
        Self::from_micros(micros)
    }
}

impl From<Timestamp> for i64 {
    fn from(timestamp: Timestamp) -> i64 {
        timestamp.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => fmt::Display::fmt(&timestamp, f),
            Err(_) => write!(f, "{}µs", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
