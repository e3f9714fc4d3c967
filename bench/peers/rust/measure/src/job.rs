//! The job: 200 bytes of JSON that say which one it is and when it was submitted.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

const BYTES: usize = 200;

/// What is submitted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Its number. Each is submitted once.
    pub n: u64,
    /// When, in nanoseconds of the system's clock, which all processes share.
    pub at: u64,
    /// Fills it up.
    pub pad: String,
}

impl Job {
    /// A job that is about to be submitted.
    pub fn new(n: u64) -> Self {
        let at = now();
        let bare = r#"{"n":,"at":,"pad":""}"#.len();
        let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
        let pad = "x".repeat(BYTES - bare - digits(n) - digits(at));
        Self { n, at, pad }
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Job};

    #[test]
    fn a_job_has_as_many_bytes_as_all_have() {
        for n in [0, 9, 10, 123_456_789] {
            assert_eq!(serde_json::to_vec(&Job::new(n)).unwrap().len(), BYTES);
        }
    }
}
