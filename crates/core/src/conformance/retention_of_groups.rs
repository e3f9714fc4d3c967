//! Retention of groups: drained ones go by age, and their members live on.

use std::time::Duration;

use crate::conformance::act::{open_group, retry_now, run};
use crate::conformance::retention::{DAY, TICK, nothing_but_a_limit};
use crate::conformance::world::{World, complete, fail, holder, steady_retry};
use crate::error::{Error, NotFound, Result};
use crate::group::NewGroup;
use crate::names::GroupId;
use crate::store::{Compact, Compacted, StoreExt, Write};
use crate::task::Status;

cases!["retention_of_groups":
    drained_groups_go_by_age_and_others_stay,
    a_member_of_a_removed_group_can_still_run_again,
];

pub(super) async fn has_group(w: &World, id: &str) -> Result<bool> {
    match w.group(id).await {
        Ok(_) => Ok(true),
        Err(Error::NotFound(NotFound::Group(_))) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn drained_groups_go_by_age_and_others_stay(w: World) -> Result<()> {
    let id = |text: &str| GroupId::new(text);
    for name in ["first", "second", "third", "reopened", "open", "waits"] {
        open_group(&w, NewGroup::new(id(name)?)).await?;
    }
    let waiting = w.new_task("member").group(id("waits")?);
    w.submit(waiting).await?;
    for name in ["third", "first", "second", "reopened", "waits"] {
        w.advance(Duration::from_secs(1));
        w.store.write(Write::Seal(id(name)?)).await?;
        has_group(&w, name).await?;
    }
    w.write_with_id(Write::Reopen(id("reopened")?)).await?;
    w.advance(DAY - Duration::from_secs(3));
    let compact = |limit| Compact {
        groups: Some(DAY),
        limit,
        ..Compact::default()
    };
    let removed = |groups, more| Compacted {
        groups,
        more,
        ..Compacted::default()
    };
    // The commit that opens a group again has an id, which is forgotten on the way.
    let left = |answer: Compacted| Compacted {
        remembered: 0,
        ..answer
    };
    // Of those that drained, "second" is a second too young.
    assert_eq!(left(w.store.compact(compact(1)).await?), removed(1, true));
    assert!(!has_group(&w, "third").await?);
    assert!(has_group(&w, "first").await?);
    assert_eq!(left(w.store.compact(compact(1)).await?), removed(1, false));
    assert!(!has_group(&w, "first").await?);
    w.advance(Duration::from_secs(1) - TICK);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(0, false));
    w.advance(TICK);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(1, false));
    assert!(!has_group(&w, "second").await?);
    w.advance(DAY * 1_000);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(0, false));
    for name in ["reopened", "open", "waits"] {
        assert!(has_group(&w, name).await?, "{name} is gone");
    }
    w.store.write(Write::Seal(id("reopened")?)).await?;
    has_group(&w, "reopened").await?;
    w.advance(DAY - TICK);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(0, false));
    w.advance(TICK);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(1, false));
    assert!(!has_group(&w, "reopened").await?);
    Ok(())
}

async fn a_member_of_a_removed_group_can_still_run_again(w: World) -> Result<()> {
    let then = w.new_task("then");
    let group = GroupId::new("g")?;
    let new = NewGroup::new(group.clone()).expecting(1).then(then.clone());
    open_group(&w, new).await?;
    let member = w.new_task("member").retry(steady_retry(1)).group(group);
    let task = run(&w, member, fail("for good")).await?;
    assert!(has_group(&w, "g").await?);
    w.advance(DAY);
    let compact = Compact {
        groups: Some(DAY),
        ..nothing_but_a_limit()
    };
    assert_eq!(w.store.compact(compact).await?.groups, 1);
    assert_eq!(w.status(then.id).await?, Status::Pending);
    retry_now(&w, task, true).await?;
    let claimed = w.claim_ids(&w.worker("worker")?, &[task]).await?;
    w.store
        .settle(holder(&claimed.tasks[0]), complete())
        .await?;
    assert_eq!(w.status(task).await?, Status::Completed);
    assert_eq!(w.store.task(then.id.nth(1)).await?, None);
    assert!(!has_group(&w, "g").await?);
    Ok(())
}
