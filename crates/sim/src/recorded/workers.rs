//! Workers whose leases are so short that they run out, and those who sweep up after them.

use std::time::Duration;

use plimsoll_core::store::{
    Claim, Commit, Ending, Exchange, FailRetry, Pick, Renew, Settle, Write,
};
use plimsoll_core::task::{Holder, Lane, NewTask, WorkerId};
use plimsoll_core::{Error, Name, Result, StoreExt};

use super::clients::Desk;

/// How long leases run, in milliseconds, at most.
const LEASE_MAX: u64 = 60;

pub(super) fn lane() -> Result<Lane> {
    Ok(Lane::new("queue", "kind")?)
}

/// Claims, renews and settles until it is time. There are always a few tasks.
pub(super) async fn work(desk: Desk) -> Result<()> {
    let worker = WorkerId {
        name: Name::new(format!("worker {}", desk.number))?,
        incarnation: desk.ids.incarnation(),
    };
    // Always the same, so that no renewal shortens what was told before.
    let lease = Duration::from_millis(1 + desk.ids.below(LEASE_MAX));
    let mut held: Vec<Holder> = Vec::new();
    for _ in 0..4 {
        submit(&desk).await?;
    }
    while !desk.is_over() {
        let exchange = Exchange {
            commits: Vec::new(),
            renew: Some(Renew {
                holders: held.clone(),
                lease,
            })
            .filter(|_| !held.is_empty()),
            claim: Some(Claim {
                pick: Pick::Next {
                    lanes: vec![lane()?],
                    limit: 2,
                },
                worker: worker.clone(),
                lease,
                request: desk.ids.request(),
            }),
        };
        let exchanged = tried(desk.store().exchange(exchange).await)?;
        let claimed = exchanged.and_then(|exchanged| exchanged.claimed);
        let claimed = claimed.map(tried).transpose()?.flatten();
        let claimed = claimed.into_iter().flat_map(|claimed| claimed.tasks);
        held.extend(claimed.map(|task| Holder {
            task: task.id(),
            worker: worker.clone(),
            fence: task.fence,
        }));
        desk.pause(LEASE_MAX).await;
        // What was held for long may be another's by now.
        while held.len() > usize::try_from(desk.ids.below(4)).unwrap_or(0) {
            let holder = held.remove(0);
            if settle(&desk, holder).await? {
                submit(&desk).await?;
            }
        }
    }
    Ok(())
}

/// What a call came to, unless it should be tried again: whoever does this goes on to the next thing.
pub(super) fn tried<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Unavailable(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn submit(desk: &Desk) -> Result<()> {
    let id = desk.ids.task();
    desk.recorder.log().tasks.push(id);
    let task = NewTask::new(id, lane()?, "x").max_attempts(0);
    let submit = Commit::of(Write::Submit(Box::new(task)));
    tried(desk.store().commit_one(submit).await).map(drop)
}

/// Ends an attempt. Answers whether its task has ended.
async fn settle(desk: &Desk, holder: Holder) -> Result<bool> {
    let how = match desk.ids.below(6) {
        0 => Ending::Release { reason: None },
        1 => Ending::Snooze {
            delay: Duration::from_millis(desk.ids.below(5)),
        },
        2 => Ending::Fail {
            error: "on purpose".into(),
            retry: FailRetry::After(Duration::from_millis(desk.ids.below(5))),
            jitter: desk.ids.jitter(),
        },
        _ => Ending::Complete { result: None },
    };
    let completes = matches!(how, Ending::Complete { .. });
    let settle = Commit::of(Write::Settle(Settle { holder, how }));
    match desk.store().commit_one(settle.clone()).await {
        // Whoever settles again is told the same.
        Ok(_) if desk.ids.below(10) == 0 => match desk.store().commit_one(settle).await {
            Ok(_) | Err(Error::LeaseLost(_) | Error::Unavailable(_)) => Ok(completes),
            Err(error) => Err(error),
        },
        Ok(_) => Ok(completes),
        Err(Error::LeaseLost(_) | Error::Unavailable(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends leases that ran out, and lets tasks run that are due.
pub(super) async fn sweep(desk: Desk) -> Result<()> {
    while !desk.is_over() {
        tried(desk.store().sweep(100, &desk.ids).await)?;
        desk.pause(10).await;
    }
    Ok(())
}
