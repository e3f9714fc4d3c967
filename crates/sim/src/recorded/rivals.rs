//! Rivals: submit tasks under keys that others submit at the same moment.

use std::time::Duration;

use plimsoll_core::store::{Commit, Write};
use plimsoll_core::task::NewTask;
use plimsoll_core::{IdempotencyKey, Result, StoreExt};

use super::clients::Desk;
use super::workers::{lane, tried};

/// How long a key is everybody's.
const TURN: Duration = Duration::from_millis(200);

/// Submits under the key of the moment until it is time, and under keys of its own in between: a store that has met
/// keys that are taken is then as trusting as before.
pub(super) async fn submit(desk: Desk) -> Result<()> {
    let turn = i64::try_from(TURN.as_micros()).unwrap_or(i64::MAX);
    while !desk.is_over() {
        let now = desk.engine.clock().now().as_micros();
        let next = (now / turn + 1) * turn;
        let wait = Duration::from_micros(u64::try_from(next - now).unwrap_or(0));
        desk.engine.clock().sleep(wait).await;
        under(&desk, format!("everybody {next}")).await?;
        for _ in 0..desk.ids.below(16) {
            under(&desk, format!("own {}", desk.ids.task())).await?;
        }
    }
    Ok(())
}

async fn under(desk: &Desk, key: String) -> Result<()> {
    let id = desk.ids.task();
    desk.recorder.log().tasks.push(id);
    let task = NewTask::new(id, lane()?, "x").key(IdempotencyKey::new(key)?);
    let submit = Commit::of(Write::Submit(Box::new(task)));
    tried(desk.store().commit_one(submit).await).map(drop)
}
