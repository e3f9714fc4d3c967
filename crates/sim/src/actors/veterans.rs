//! Tasks that ended before the run begins, each so long ago that it is kept long enough at some
//! moment of the storm. Nobody submits them again, and operators may have them run again.

use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::clock::Clock;
use plimsoll_core::store::{Claim, Commit, Ending, FailRetry, Pick, Settle, Write};
use plimsoll_core::task::{Lane, NewTask, WorkerId};
use plimsoll_core::{Error, Name, Result, Store, StoreExt};

use super::housekeeping::KEPT;
use super::orders::QUEUES;
use crate::dice::Dice;
use crate::world::World;

/// Lets them come to their ends, the oldest first.
pub(crate) fn serve(world: &World, dice: &Dice) -> Result<()> {
    let now = world.clock.now();
    let due = (0..dice.below(9)).map(|_| dice.time(Duration::ZERO, world.profile.storm));
    let mut due: Vec<Duration> = due.collect();
    due.sort();
    for due in due {
        world
            .clock
            .jump_to(now.saturating_minus(KEPT).saturating_plus(due));
        // The memory store answers at once.
        (one(world, dice).now_or_never()).unwrap_or(Err(Error::Closed))?;
    }
    world.clock.jump_to(now);
    Ok(())
}

async fn one(world: &World, dice: &Dice) -> Result<()> {
    let (memory, ids) = (&world.memory, dice.ids());
    let lane = Lane::new(*dice.pick(&QUEUES), "plain")?;
    let task = NewTask::new(ids.task(), lane, "veteran");
    let id = task.id;
    let submitted = memory.submit(task).await?;
    let claim = Claim {
        request: ids.request(),
        worker: WorkerId {
            name: Name::new("veteran")?,
            incarnation: ids.incarnation(),
        },
        pick: Pick::Ids(vec![id]),
        lease: Duration::from_secs(1),
    };
    let claimed = memory.claim(claim).await?.tasks;
    world.checker().look();
    let holder = claimed.first().and_then(|task| task.holder());
    let how = match dice.below(3) {
        0 => Ending::Complete { result: None },
        1 => Ending::Cancel { reason: None },
        _ => Ending::Fail {
            error: "for good".into(),
            retry: FailRetry::Fatal,
            jitter: ids.jitter(),
        },
    };
    let settle = holder.map(|holder| Write::Settle(Settle { holder, how }));
    let commit = settle.into_iter().fold(Commit::new(), Commit::write);
    (world.checker()).asked("veteran", std::slice::from_ref(&commit));
    memory.commit_one(commit).await?;
    let mut checker = world.checker();
    checker.look();
    checker.submitted(id, &submitted);
    Ok(())
}
