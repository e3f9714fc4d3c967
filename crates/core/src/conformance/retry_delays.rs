//! The wait between attempts: how long the policy, the handler and the total time make it.

use std::time::Duration;

use crate::conformance::act::attempt;
use crate::conformance::observe::settled;
use crate::conformance::retries::later;
use crate::conformance::world::{LEASE, RETRY_DELAY, World, fail, fail_with, steady_retry};
use crate::error::Result;
use crate::ids::Jitter;
use crate::store::{Ending, Expire, FailRetry, Outcome, StoreExt, Write};
use crate::task::{Backoff, FailureKind, RetryPolicy, Status};

cases!["retry_delays":
    waits_grow_by_the_factor_up_to_their_cap,
    jitter_shortens_the_wait_by_the_sample_given,
    a_handler_may_choose_the_wait_but_not_pass_the_cap,
    no_retry_is_due_later_than_the_total_time,
];

async fn waits_grow_by_the_factor_up_to_their_cap(w: World) -> Result<()> {
    let policy = RetryPolicy {
        backoff: Backoff::Exponential {
            first: Duration::from_secs(2),
            factor: 1.5,
            cap: Duration::from_secs(8),
        },
        ..steady_retry(0)
    };
    let id = w.submit(w.new_task("work").retry(policy)).await?.id();
    for millis in [2_000, 3_000, 4_500, 6_750, 8_000, 8_000] {
        let wait = Duration::from_millis(millis);
        let outcome = attempt(&w, id, fail("again")).await?;
        assert_eq!(outcome, settled(Status::Scheduled, Some(later(&w, wait))));
        w.advance(wait);
    }
    Ok(())
}

async fn jitter_shortens_the_wait_by_the_sample_given(w: World) -> Result<()> {
    let policy = |jitter_percent| RetryPolicy {
        backoff: Backoff::Fixed(Duration::from_secs(100)),
        jitter_percent,
        ..steady_retry(0)
    };
    // The largest sample is a hair less than the whole, which is lost below a microsecond.
    for (percent, sample, seconds) in [
        (0, u32::MAX, 100),
        (50, 0, 100),
        (50, 1 << 31, 75),
        (50, u32::MAX, 50),
        (100, 1 << 30, 75),
    ] {
        let jitter = Jitter(sample);
        let due_at = later(&w, Duration::from_secs(seconds));
        let (_, held) = w.claimed(w.new_task("work").retry(policy(percent))).await?;
        let how = Ending::Fail {
            error: "again".into(),
            retry: FailRetry::Policy,
            jitter,
        };
        assert_eq!(
            w.store.settle(held, how).await?,
            settled(Status::Scheduled, Some(due_at))
        );
        let (task, held) = w.claimed(w.new_task("work").retry(policy(percent))).await?;
        w.advance(LEASE);
        let expire = Expire {
            task: task.id(),
            fence: held.fence,
            jitter,
        };
        w.store.write(Write::Expire(expire)).await?;
        let due_at = later(&w, Duration::from_secs(seconds));
        assert_eq!(w.task(task.id()).await?.runnable_at, due_at);
    }
    Ok(())
}

async fn a_handler_may_choose_the_wait_but_not_pass_the_cap(w: World) -> Result<()> {
    let id = w
        .submit(w.new_task("work").retry(steady_retry(3)))
        .await?
        .id();
    let hour = Duration::from_secs(3_600);
    let asked = |wait| fail_with("busy", FailRetry::After(wait));
    assert_eq!(
        attempt(&w, id, asked(hour)).await?,
        settled(Status::Scheduled, Some(later(&w, hour)))
    );
    w.advance(hour);
    let at_once = Outcome::Settled {
        status: Status::Pending,
        runnable_at: Some(w.now()),
    };
    assert_eq!(attempt(&w, id, asked(Duration::ZERO)).await?, at_once);
    assert_eq!(
        attempt(&w, id, asked(Duration::ZERO)).await?,
        settled(Status::Failed, None)
    );
    let task = w.task(id).await?;
    assert_eq!((task.failures, task.attempts), (3, 3));
    let kinds: Vec<FailureKind> = task.errors.iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [FailureKind::Error; 3]);
    Ok(())
}

async fn no_retry_is_due_later_than_the_total_time(w: World) -> Result<()> {
    let policy = RetryPolicy {
        total: Some(Duration::from_secs(30)),
        ..steady_retry(0)
    };
    let new = || w.new_task("work").retry(policy.clone());
    let (late, late_held) = w.claimed(new()).await?;
    let id = w.submit(new()).await?.id();
    attempt(&w, id, fail("one")).await?;
    w.advance(Duration::from_secs(20));
    let last = later(&w, RETRY_DELAY);
    assert_eq!(
        attempt(&w, id, fail("two")).await?,
        settled(Status::Scheduled, Some(last))
    );
    w.advance(Duration::from_millis(1));
    assert_eq!(
        w.store.settle(late_held, fail("late")).await?,
        settled(Status::Failed, None)
    );
    let late = w.task(late.id()).await?;
    assert_eq!((late.failures, late.reason.as_deref()), (1, Some("late")));
    w.advance(RETRY_DELAY);
    let soon = fail_with("three", FailRetry::After(Duration::from_millis(1)));
    assert_eq!(attempt(&w, id, soon).await?, settled(Status::Failed, None));
    Ok(())
}
