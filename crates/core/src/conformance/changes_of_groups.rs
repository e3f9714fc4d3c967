//! What the history tells about groups.

use crate::change::{GroupEvent, TaskEvent};
use crate::conformance::changes::{appended_by, of_group, of_task};
use crate::conformance::world::{World, complete, fail_with};
use crate::conformance::writes::{cancel, open, retry, settle, submit};
use crate::error::Result;
use crate::group::NewGroup;
use crate::names::GroupId;
use crate::store::{FailRetry, StoreExt, Write};

cases!["changes_of_groups":
    opening_sealing_reopening_and_deleting_a_group_append_their_changes,
    a_draining_group_appends_the_drain_and_its_task_in_that_commit if JoinsInCommit,
];

async fn opening_sealing_reopening_and_deleting_a_group_append_their_changes(
    w: World,
) -> Result<()> {
    let id = GroupId::new("g")?;
    let member = w.new_task("member").group(id.clone());
    let changes = appended_by(&w, open(NewGroup::new(id.clone()))).await?;
    assert_eq!(changes, [of_group("g", 0, GroupEvent::Opened)?]);
    let changes = appended_by(&w, submit(member.clone())).await?;
    assert_eq!(
        changes,
        [of_task(&w, member.id, TaskEvent::Submitted).await?]
    );
    let changes = appended_by(&w, Write::Arrive(id.clone(), 2)).await?;
    assert_eq!(changes, [], "an arrival is no event");
    let changes = appended_by(&w, Write::Seal(id.clone())).await?;
    assert_eq!(changes, [of_group("g", 0, GroupEvent::Sealed)?]);
    assert_eq!(appended_by(&w, Write::Seal(id.clone())).await?, []);
    w.store.cancel(member.id, None).await?;
    assert!(w.group("g").await?.drained_at.is_some());
    for write in [Write::Tally(id.clone()), Write::Seal(id.clone())] {
        assert_eq!(appended_by(&w, write).await?, [], "it has drained already");
    }
    let changes = appended_by(&w, Write::Reopen(id.clone())).await?;
    assert_eq!(changes, [of_group("g", 1, GroupEvent::Reopened)?]);
    assert_eq!(appended_by(&w, Write::Reopen(id.clone())).await?, []);
    let changes = appended_by(&w, Write::DeleteGroup(id)).await?;
    assert_eq!(changes, [of_group("g", 1, GroupEvent::Deleted)?]);
    Ok(())
}

async fn a_draining_group_appends_the_drain_and_its_task_in_that_commit(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    let (then, alarm) = (w.new_task("then"), w.new_task("alarm"));
    let group = NewGroup::new(id.clone())
        .then(then.clone())
        .on_first_failure(alarm.clone());
    w.store.write(open(group)).await?;
    let (first, holder) = w.claimed(w.new_task("first").group(id.clone())).await?;
    let (second, last) = w.claimed(w.new_task("second").group(id.clone())).await?;
    let how = fail_with("no", FailRetry::Fatal);
    let changes = appended_by(&w, settle(&holder, how)).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, first.id(), TaskEvent::Failed).await?,
            of_group("g", 0, GroupEvent::FirstFailure)?,
            of_task(&w, alarm.id, TaskEvent::Submitted).await?,
        ]
    );
    w.store.write(Write::Seal(id.clone())).await?;
    let changes = appended_by(&w, settle(&last, complete())).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, second.id(), TaskEvent::Completed).await?,
            of_group("g", 0, GroupEvent::Drained)?,
            of_task(&w, then.id, TaskEvent::Submitted).await?,
        ]
    );
    let changes = appended_by(&w, retry(first.id(), true)).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, first.id(), TaskEvent::Retried).await?,
            of_group("g", 1, GroupEvent::Reopened)?,
        ]
    );
    let changes = appended_by(&w, cancel(first.id(), "enough")).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, first.id(), TaskEvent::Cancelled).await?,
            of_group("g", 1, GroupEvent::Drained)?,
            of_task(&w, then.id.nth(1), TaskEvent::Submitted).await?,
        ]
    );
    let empty = NewGroup::new(GroupId::new("empty")?).expecting(0);
    assert_eq!(
        appended_by(&w, open(empty)).await?,
        [
            of_group("empty", 0, GroupEvent::Opened)?,
            of_group("empty", 0, GroupEvent::Drained)?,
        ]
    );
    Ok(())
}
