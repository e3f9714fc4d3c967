//! What one who wants a lock does next, and when a holder renews: pure functions.

use std::time::Duration;

use plimsoll_core::{Revision, Token};

use super::stored::{Holder, Stored};

/// What one who wants the lock does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Take it: nobody has it.
    Take,
    /// Take it: it is reserved for this one, at this revision.
    TakeReserved(Revision),
    /// It has it already, at this revision: the answer was lost.
    Keep(Token, Revision),
    /// Stand in line: another has it.
    Enrol(Stored),
    /// Wait: another has it, and this one stands in line.
    Wait(Stored),
}

/// Decides from what the lock's record says, and whether this one stands in line.
pub(super) fn step(stored: Option<Stored>, me: Holder, in_line: bool) -> Step {
    match stored {
        None => Step::Take,
        Some(lock) if lock.holder == me && lock.reserved => Step::TakeReserved(lock.revision),
        Some(lock) if lock.holder == me => Step::Keep(lock.token, lock.revision),
        Some(lock) if in_line => Step::Wait(lock),
        Some(lock) => Step::Enrol(lock),
    }
}

/// When a lock may be relied upon no longer, if its time began when `sent` was sent. The margin is
/// for whoever has to stop then.
pub(super) fn trusted_until(sent: Duration, ttl: Duration) -> Duration {
    sent + (ttl - ttl / 10)
}

/// What a holder does next about its lock's time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Wait for this long.
    Wait(Duration),
    /// Renew it, and wait for the answer for this long.
    Now(Duration),
    /// Do not rely on it any more.
    Over,
}

/// Decides from when the last renewal with an answer and the last one at all were sent.
pub(super) fn renewal(now: Duration, renewed: Duration, tried: Duration, ttl: Duration) -> Renewal {
    let end = trusted_until(renewed, ttl);
    if now >= end {
        return Renewal::Over;
    }
    let due = if tried > renewed {
        tried + ttl / 20
    } else {
        renewed + ttl / 2
    };
    match due.min(end).checked_sub(now) {
        Some(wait) if !wait.is_zero() => Renewal::Wait(wait),
        Some(_) | None => Renewal::Now((ttl / 8).min(end - now)),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{RequestId, Timestamp};

    use super::*;

    #[test]
    fn every_sight_of_a_lock_has_one_next_step() {
        let [me, other] = [1, 2].map(|id| Holder(RequestId::from_u128(id)));
        let stored = |holder, reserved| Stored {
            holder,
            owner: "o".into(),
            metadata: None,
            since: Timestamp::MIN,
            until: Timestamp::MAX,
            token: Token::new(3),
            reserved,
            revision: Revision::new(5),
        };
        for in_line in [false, true] {
            let step = |stored| step(stored, me, in_line);
            assert_eq!(step(None), Step::Take);
            let held = Step::Keep(Token::new(3), Revision::new(5));
            assert_eq!(step(Some(stored(me, false))), held);
            let mine = Step::TakeReserved(Revision::new(5));
            assert_eq!(step(Some(stored(me, true))), mine);
            for reserved in [false, true] {
                let taken = stored(other, reserved);
                let stay = match in_line {
                    true => Step::Wait(taken.clone()),
                    false => Step::Enrol(taken.clone()),
                };
                assert_eq!(step(Some(taken)), stay);
            }
        }
    }

    /// Every moment, for every history of answers, on a grid of hundredths of the time to live.
    #[test]
    fn a_holder_renews_at_half_tries_on_and_stops_before_the_end() {
        let ttl = Duration::from_millis(1_000);
        let at = |hundredths: u32| ttl * hundredths / 100;
        for renewed in 0..10 {
            for tried in 0..120 {
                for now in tried.max(renewed)..130 {
                    let decided = renewal(at(now), at(renewed), at(tried), ttl);
                    let end = renewed + 90;
                    let due = if tried > renewed {
                        tried + 5
                    } else {
                        renewed + 50
                    };
                    let expected = if now >= end {
                        Renewal::Over
                    } else if now >= due {
                        Renewal::Now((ttl / 8).min(at(end - now)))
                    } else {
                        Renewal::Wait(at(due.min(end) - now))
                    };
                    assert_eq!(decided, expected, "{renewed} {tried} {now}");
                }
            }
        }
    }

    #[test]
    fn the_shortest_time_to_live_ends_too() {
        let ttl = Duration::from_nanos(1);
        assert_eq!(
            renewal(ttl, Duration::ZERO, Duration::ZERO, ttl),
            Renewal::Over
        );
    }
}
