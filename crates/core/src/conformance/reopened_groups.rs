//! New generations: groups that open again after they have drained.

use std::time::Duration;

use crate::conformance::act::{end, open_group};
use crate::conformance::groups::{
    assert_followed, assert_group, follow_up, group, id, seal, spawn,
};
use crate::conformance::world::{World, complete, fail};
use crate::conformance::writes::retry;
use crate::error::{NotFound, Result};
use crate::store::{Commit, StoreExt, Write};

cases!["reopened_groups":
    a_drained_group_opens_again_as_a_new_generation,
    reopening_and_tallying_what_has_not_drained_changes_nothing,
    a_member_that_runs_again_after_the_drain_begins_a_new_generation,
    a_member_that_runs_again_before_the_drain_is_outstanding_again,
];

async fn a_drained_group_opens_again_as_a_new_generation(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.expecting(1);
    open_group(&w, new.then(then.clone()).on_first_failure(alarm.clone())).await?;
    let first = spawn(&w, "g").await?;
    end(&w, first, fail("for good")).await?;
    assert_group(&w, "g", [1, 0, 1, 1, 0], true).await?;
    let reopen = Commit::of(Write::Reopen(id("g")?)).id(w.ids.commit());
    w.store.commit_one(reopen.clone()).await?;
    assert!(w.store.commit_one(reopen).await?.repeated);
    let opened = assert_group(&w, "g", [1, 0, 1, 1, 0], false).await?;
    let state = (opened.generation, opened.sealed, opened.first_failure);
    assert_eq!(state, (1, false, None));
    let (second, third) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, second, fail("for good")).await?;
    end(&w, third, complete()).await?;
    assert_group(&w, "g", [3, 0, 3, 2, 0], false).await?;
    assert_followed(&w, &[alarm.id, then.id, alarm.id.nth(1)]).await?;
    seal(&w, "g").await?;
    let drained = assert_group(&w, "g", [3, 0, 3, 2, 0], true).await?;
    assert_eq!(drained.generation, 1);
    let followed = [alarm.id, then.id, alarm.id.nth(1), then.id.nth(1)];
    assert_followed(&w, &followed).await?;
    assert_eq!(w.task(then.id.nth(1)).await?.spec.payload, "then");
    Ok(())
}

async fn reopening_and_tallying_what_has_not_drained_changes_nothing(w: World) -> Result<()> {
    open_group(&w, group("g")?.then(follow_up(&w, "then")?)).await?;
    spawn(&w, "g").await?;
    w.write_with_id(Write::Arrive(id("g")?, 1)).await?;
    seal(&w, "g").await?;
    let before = w.group("g").await?;
    let history = w.history().await?;
    w.advance(Duration::from_secs(1));
    w.write_with_id(Write::Reopen(id("g")?)).await?;
    w.store.write(Write::Tally(id("g")?)).await?;
    assert_eq!(w.group("g").await?, before);
    assert_eq!(w.history().await?, history);
    for write in [Write::Reopen(id("missing")?), Write::Tally(id("missing")?)] {
        let missing = w.write_with_id(write).await;
        assert_eq!(missing, Err(NotFound::Group(id("missing")?).into()));
    }
    assert_followed(&w, &[]).await
}

async fn a_member_that_runs_again_after_the_drain_begins_a_new_generation(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.then(then.clone());
    open_group(&w, new.on_first_failure(alarm.clone())).await?;
    let (bad, good) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, bad, fail("for good")).await?;
    w.store.cancel(good, None).await?;
    seal(&w, "g").await?;
    assert_group(&w, "g", [2, 0, 2, 1, 1], true).await?;
    w.write_with_id(retry(bad, true)).await?;
    let waits = assert_group(&w, "g", [2, 0, 1, 0, 1], false).await?;
    let state = (waits.generation, waits.sealed, waits.first_failure);
    assert_eq!(state, (1, true, None));
    w.write_with_id(retry(good, true)).await?;
    let waits = assert_group(&w, "g", [2, 0, 0, 0, 0], false).await?;
    assert_eq!(waits.generation, 1);
    end(&w, good, complete()).await?;
    assert_followed(&w, &[alarm.id, then.id]).await?;
    end(&w, bad, fail("again")).await?;
    assert_group(&w, "g", [2, 0, 2, 1, 0], true).await?;
    let followed = [alarm.id, then.id, alarm.id.nth(1), then.id.nth(1)];
    assert_followed(&w, &followed).await
}

async fn a_member_that_runs_again_before_the_drain_is_outstanding_again(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.expecting(2).then(then.clone());
    open_group(&w, new.on_first_failure(alarm.clone())).await?;
    let (bad, good) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, bad, fail("for good")).await?;
    assert_group(&w, "g", [2, 0, 1, 1, 0], false).await?;
    w.write_with_id(retry(bad, true)).await?;
    let waits = assert_group(&w, "g", [2, 0, 0, 0, 0], false).await?;
    assert_eq!(waits.generation, 0);
    end(&w, good, complete()).await?;
    assert_group(&w, "g", [2, 0, 1, 0, 0], false).await?;
    end(&w, bad, fail("again")).await?;
    assert_group(&w, "g", [2, 0, 2, 1, 0], true).await?;
    assert_followed(&w, &[alarm.id, then.id]).await
}
