//! What to do when the store is away: try again, ever more rarely.

use std::time::Duration;

use plimsoll_core::error::Conflict;
use plimsoll_core::{Error, Ids};

const FIRST: Duration = Duration::from_millis(50);

/// Whether the same call may succeed later without any change.
pub(super) fn is_passing(error: &Error) -> bool {
    match error {
        Error::Unavailable(_) => true,
        Error::Conflict(conflict) => matches!(**conflict, Conflict::Contended { .. }),
        Error::Invalid(_)
        | Error::NotFound(_)
        | Error::LeaseLost(_)
        | Error::Unsupported(_)
        | Error::Corrupt(_)
        | Error::Closed => false,
    }
}

/// How long to wait after so many errors in a row, in no lockstep with others.
pub(super) fn pause(errors: u32, longest: Duration, ids: &Ids) -> Duration {
    let pause = FIRST.saturating_mul(2_u32.saturating_pow(errors));
    pause
        .min(longest)
        .mul_f64(1.0 - ids.jitter().fraction() / 2.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::clock::ManualClock;

    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let contended = Conflict::Contended { attempts: 3 };
        assert!(is_passing(&contended.into()));
        let full = Conflict::Cancelling {
            task: Ids::seeded(1, Arc::new(ManualClock::new())).task(),
        };
        assert!(!is_passing(&full.into()));
        assert!(!is_passing(&Error::Closed));
    }

    #[test]
    fn pauses_grow_to_the_longest_and_are_spread() {
        let ids = Ids::seeded(1, Arc::new(ManualClock::new()));
        let longest = Duration::from_secs(5);
        let pauses: Vec<Duration> = (0..40).map(|n| pause(n, longest, &ids)).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses[10..].iter().all(|pause| *pause >= longest / 2));
        assert!(pauses.iter().all(|pause| *pause <= longest));
        assert!(pauses[38] != pauses[39]);
    }
}
