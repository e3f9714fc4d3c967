//! Ids and counters, and the one place that draws random numbers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock::Clock;
use crate::error::{Invalid, Problem};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// The id with these 128 bits.
            pub const fn from_u128(bits: u128) -> Self {
                Self(Uuid::from_u128(bits))
            }

            /// The 128 bits of the id.
            pub const fn as_u128(self) -> u128 {
                self.0.as_u128()
            }

            /// Reads the usual text form of a UUID.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                Uuid::try_parse(text).map(Self).map_err(|_| {
                    Invalid::new($field, Problem::Malformed { expected: "a UUID".into() })
                })
            }
        }

        impl std::str::FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// The id of a task, made by whoever submits it, so that a submit can be repeated safely.
    ///
    /// New ids are UUIDs of version 7: they sort by the time they were made.
    TaskId, "task"
}
id! {
    /// Names one claim, so that a claim whose answer was lost can be repeated.
    RequestId, "request"
}
id! {
    /// Names one commit that could not be repeated safely otherwise.
    CommitId, "commit"
}
id! {
    /// One life of a worker: a restart under the same name has another incarnation.
    Incarnation, "incarnation"
}
id! {
    /// The id of a job log line, made by whoever appends it.
    LineId, "line"
}

impl TaskId {
    /// The id that `parts` always lead to. Different parts lead to different ids.
    ///
    /// ```
    /// use plimsoll_core::TaskId;
    /// let tick = TaskId::derive(&["schedule", "nightly", "2030-01-01"]);
    /// assert_eq!(tick, TaskId::derive(&["schedule", "nightly", "2030-01-01"]));
    /// assert_ne!(tick, TaskId::derive(&["schedule", "nightly2030", "-01-01"]));
    /// ```
    pub fn derive(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        Self(uuid::Builder::from_custom_bytes(first_16(&hash.finalize())).into_uuid())
    }

    /// The id for the `n`th time that something submits this task: itself at first.
    pub fn nth(self, n: u32) -> Self {
        match n {
            0 => self,
            n => Self::derive(&["nth", &self.to_string(), &n.to_string()]),
        }
    }
}

fn first_16(bytes: &[u8]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&bytes[..16]);
    first
}

/// The first 128 bits of the SHA-256 of a payload: tells whether two submissions carry the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(u128::from_be_bytes(first_16(&Sha256::digest(bytes))))
    }

    /// The fingerprint with these 128 bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits of the fingerprint.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match u128::from_str_radix(&text, 16) {
            Ok(bits) if digits => Ok(Self(bits)),
            _ => Err(Invalid::new(
                "fingerprint",
                Problem::Malformed {
                    expected: "32 hexadecimal digits".into(),
                },
            )),
        }
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Before the first.
            pub const ZERO: Self = Self(0);

            /// The counter at this value.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// Its value.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// One more.
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

counter! {
    /// Grows by one on every claim of a task, and when a claim is revoked, as long as the task
    /// exists. Whoever shows an older one is refused.
    Fence
}
counter! {
    /// Grows with every write of a record or task, also across deletion and re-creation.
    /// It need not grow by one.
    Revision
}
counter! {
    /// The fencing token of a lock: greater for each holder than for all before, for ever. What a
    /// lock protects should refuse whoever shows a lower one than it has seen.
    Token
}
counter! {
    /// A place in the history of a namespace.
    Position
}

/// A random sample for the jitter of a retry. It travels with the write, so that stores need no
/// randomness and a repeated commit decides the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Jitter(pub u32);

impl Jitter {
    /// The sample as a fraction, from 0 up to but not including 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Makes ids and random samples. Seeded, it makes the same ones again.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_core::{clock::ManualClock, ids::Ids};
/// let clock = Arc::new(ManualClock::new());
/// let (a, b) = (Ids::seeded(7, clock.clone()), Ids::seeded(7, clock));
/// assert_eq!(a.task(), b.task());
/// ```
#[derive(Clone, Debug)]
pub struct Ids {
    clock: Arc<dyn Clock>,
    source: Arc<Mutex<Source>>,
}

#[derive(Debug)]
struct Source {
    rng: fastrand::Rng,
    last: u128,
}

impl Ids {
    /// Ids from the randomness of the operating system. Where that has none to give, ids are drawn
    /// from the time and the thread instead.
    #[allow(clippy::disallowed_methods)]
    pub fn random(clock: Arc<dyn Clock>) -> Self {
        let rng = getrandom::u64().map_or_else(|_| fastrand::Rng::new(), fastrand::Rng::with_seed);
        Self::from_rng(rng, clock)
    }

    /// The same ids for the same seed and clock.
    pub fn seeded(seed: u64, clock: Arc<dyn Clock>) -> Self {
        Self::from_rng(fastrand::Rng::with_seed(seed), clock)
    }

    fn from_rng(rng: fastrand::Rng, clock: Arc<dyn Clock>) -> Self {
        let source = Arc::new(Mutex::new(Source { rng, last: 0 }));
        Self { clock, source }
    }

    /// A new task id, greater than every one made before by this source.
    pub fn task(&self) -> TaskId {
        TaskId::from_u128(self.ordered())
    }

    /// A new log line id, greater than every one made before by this source.
    pub fn line(&self) -> LineId {
        LineId::from_u128(self.ordered())
    }

    /// A new claim request id.
    pub fn request(&self) -> RequestId {
        RequestId::from_u128(self.ordered())
    }

    /// A new commit id.
    pub fn commit(&self) -> CommitId {
        CommitId::from_u128(self.ordered())
    }

    /// A new incarnation.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation::from_u128(self.ordered())
    }

    /// A new sample.
    pub fn jitter(&self) -> Jitter {
        Jitter(self.source().rng.u32(..))
    }

    /// A random number below `bound`, which must not be zero.
    pub fn below(&self, bound: u64) -> u64 {
        self.source().rng.u64(..bound.max(1))
    }

    fn ordered(&self) -> u128 {
        let millis = u64::try_from(self.clock.now().as_micros() / 1_000).unwrap_or(0);
        let mut source = self.source();
        let mut random = [0; 10];
        source.rng.fill(&mut random);
        let fresh = uuid::Builder::from_unix_timestamp_millis(millis, &random)
            .into_uuid()
            .as_u128();
        // Within a millisecond, and after the clock went back, ids go on from the last one. The
        // step leaves the version and variant bits alone until 2^62 ids have been made.
        source.last = if fresh > source.last {
            fresh
        } else {
            source.last + 1
        };
        source.last
    }

    fn source(&self) -> std::sync::MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::time::Timestamp;

    #[test]
    fn ids_grow_within_a_millisecond_and_after_the_clock_went_back() {
        let clock = ManualClock::new();
        let ids = Ids::seeded(1, Arc::new(clock.clone()));
        let mut last = ids.task();
        for n in 0..10_000 {
            if n == 5_000 {
                clock.jump_to(Timestamp::MIN);
            }
            let next = ids.task();
            assert!(next > last, "{next} after {last}");
            last = next;
        }
    }

    #[test]
    fn ids_are_uuids_of_version_7() {
        let ids = Ids::random(Arc::new(ManualClock::new()));
        for _ in 0..100 {
            let id = ids.task();
            assert_eq!(Uuid::from_u128(id.as_u128()).get_version_num(), 7);
            assert_eq!(TaskId::parse(&id.to_string()), Ok(id));
        }
    }

    #[test]
    fn the_nth_id_is_the_first_one_at_zero_and_others_after() {
        let id = TaskId::from_u128(5);
        assert_eq!(id.nth(0), id);
        assert_ne!(id.nth(1), id);
        assert_ne!(id.nth(1), id.nth(2));
    }
}
