//! Moments, durations, and how long to wait.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::ids::Jitter;
use plimsoll_core::task::{Backoff, RetryPolicy};
use proptest::prelude::*;

use crate::at;

fn moments() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(Timestamp::MIN),
        Just(Timestamp::MAX),
        (0..=Timestamp::MAX.as_micros())
            .prop_map(|micros| at(0).saturating_plus(Duration::from_micros(micros.unsigned_abs()))),
    ]
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
        (0..500_000_000_000_u64, 0..1_000_000_000_u32)
            .prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_moment_is_within_its_limits_or_is_none(micros in any::<i64>()) {
        let inside = (0..=Timestamp::MAX.as_micros()).contains(&micros);
        let moment = Timestamp::from_micros(micros);
        prop_assert_eq!(moment.is_ok(), inside);
        prop_assert_eq!(moment.ok().map(Timestamp::as_micros), inside.then_some(micros));
    }

    #[test]
    fn a_moment_reads_as_a_date_and_survives_json(moment in moments()) {
        let text = moment.to_string();
        prop_assert!(text.len() >= 20 && text.ends_with('Z'), "{}", text);
        let parsed: Option<jiff::Timestamp> = text.parse().ok();
        prop_assert_eq!(parsed.map(|parsed| parsed.as_microsecond()), Some(moment.as_micros()));
        let json = serde_json::to_string(&moment).unwrap_or_default();
        prop_assert_eq!(json.clone(), moment.as_micros().to_string());
        prop_assert_eq!(serde_json::from_str::<Timestamp>(&json).ok(), Some(moment));
    }

    #[test]
    fn adding_is_exact_or_refused_and_saturates_at_the_end(
        moment in moments(),
        duration in durations(),
    ) {
        let room = u128::from(Timestamp::MAX.as_micros().abs_diff(moment.as_micros()));
        let later = moment.plus("delay", duration);
        let saturated = moment.saturating_plus(duration);
        if duration.as_micros() <= room {
            prop_assert_eq!(later, Ok(saturated));
            prop_assert_eq!(saturated.since(moment).as_micros(), duration.as_micros());
            prop_assert_eq!(saturated.saturating_minus(duration), moment);
        } else {
            prop_assert_eq!(later.map_err(|error| error.field), Err("delay".to_owned()));
            prop_assert_eq!(saturated, Timestamp::MAX);
        }
    }

    #[test]
    fn subtracting_stops_at_the_beginning(moment in moments(), duration in durations()) {
        let earlier = moment.saturating_minus(duration);
        let passed = u128::from(moment.since(Timestamp::MIN).as_micros() as u64);
        let expected = passed.saturating_sub(duration.as_micros());
        prop_assert_eq!(earlier.since(Timestamp::MIN).as_micros(), expected);
        prop_assert!(earlier <= moment);
    }

    #[test]
    fn what_is_not_later_is_no_time_later(first in moments(), second in moments()) {
        let (earlier, later) = (first.min(second), first.max(second));
        prop_assert_eq!(earlier.since(later), Duration::ZERO);
        prop_assert_eq!(earlier.saturating_plus(later.since(earlier)), later);
    }

    #[test]
    fn a_retry_policy_survives_json(
        // Eighths, because serde_json may read other fractions one bit off by default.
        eighths in 8..=800_u32,
        first in durations(),
        cap in durations(),
    ) {
        let factor = f64::from(eighths) / 8.0;
        let backoff = Backoff::Exponential { first, factor, cap };
        let policy = RetryPolicy { backoff, ..RetryPolicy::default() };
        let json = serde_json::to_string(&policy).unwrap_or_default();
        prop_assert_eq!(serde_json::from_str::<RetryPolicy>(&json).ok(), Some(policy));
    }
}

#[test]
fn a_wait_that_starts_at_zero_stays_zero_however_often_it_grows() {
    let policy = RetryPolicy {
        max_attempts: 0,
        backoff: Backoff::Exponential {
            first: Duration::ZERO,
            factor: 2.0,
            cap: Duration::from_secs(300),
        },
        jitter_percent: 0,
        total: None,
    };
    for failures in [1, 2, 1_000, 1_100, u32::MAX] {
        let delay = policy.delay(failures, Jitter::default());
        assert_eq!(delay, Duration::ZERO, "after {failures} failures");
    }
}
