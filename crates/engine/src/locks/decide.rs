//! What one who wants a lock does next and when it looks again, and when a holder renews: pure
//! functions.

use std::time::Duration;

use plimsoll_core::{Revision, Token};

use super::stored::{Holder, Stored};

/// How long anybody waits for a hint where hints of other processes do not arrive, and the
/// shortest wait where they do.
pub(super) const POLL: Duration = Duration::from_secs(1);
/// The longest wait for a hint: those who stand in line show that they are alive by then.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(15);

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

/// How long to wait for a hint before looking by oneself. That a lock is released is told by a hint,
/// where they arrive; that it ends in `left` because its holder has died is told by nobody.
pub(super) fn next_look(hinted: bool, left: Option<Duration>) -> Duration {
    match (hinted, left) {
        (false, _) => POLL,
        (true, Some(left)) => left.clamp(POLL, LOOK_MAX),
        (true, None) => LOOK_MAX,
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

    #[test]
    fn who_is_told_of_releases_looks_when_the_lock_ends() {
        let ms = Duration::from_millis;
        for left in [None, Some(0), Some(5_000), Some(900_000)] {
            assert_eq!(next_look(false, left.map(ms)), POLL);
        }
        for (left, look) in [
            (Some(0), ms(1_000)),
            (Some(1_001), ms(1_001)),
            (Some(14_999), ms(14_999)),
            (Some(900_000), ms(15_000)),
            (None, ms(15_000)),
        ] {
            assert_eq!(next_look(true, left.map(ms)), look, "{left:?}");
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
