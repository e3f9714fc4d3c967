//! Groups in groups: the outer one waits for what follows the inner one.

use crate::conformance::act::{end, open_group};
use crate::conformance::groups::{
    assert_followed, assert_group, follow_up, group, id, member, seal, spawn,
};
use crate::conformance::world::{World, complete, fail};
use crate::conformance::writes::{open, retry, settle, submit};
use crate::error::{Conflict, NotFound, Result};
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::store::{Commit, StoreExt, Write};
use crate::task::Status;

cases!["nested_groups":
    an_outer_group_waits_for_the_follow_up_of_an_inner_one,
    an_inner_group_needs_an_outer_one_that_takes_its_follow_up,
    a_member_may_leave_an_inner_group_in_its_place_though_the_outer_one_is_complete,
    an_outer_group_waits_again_when_an_inner_one_is_opened_again,
    an_outer_group_that_waits_again_can_still_be_opened_with_its_definition,
    deleting_an_inner_group_gives_up_its_place_in_the_outer_one,
];

async fn an_outer_group_waits_for_the_follow_up_of_an_inner_one(w: World) -> Result<()> {
    let last = follow_up(&w, "last")?;
    let join = follow_up(&w, "join")?.group(id("outer")?);
    open_group(&w, group("outer")?.then(last.clone())).await?;
    let (_, held) = w.claimed(member(&w, "outer")?).await?;
    let inner = group("inner")?.then(join.clone());
    let item = member(&w, "inner")?;
    let commit = Commit::of(settle(&held, complete()))
        .write(open(inner))
        .write(submit(item.clone()))
        .write(Write::Seal(id("inner")?))
        .write(Write::Seal(id("outer")?));
    w.store.commit_one(commit).await?;
    assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_followed(&w, &[]).await?;
    end(&w, item.id, complete()).await?;
    assert_group(&w, "inner", [1, 0, 1, 0, 0], true).await?;
    assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_followed(&w, &[join.id]).await?;
    end(&w, join.id, complete()).await?;
    assert_group(&w, "outer", [2, 0, 2, 0, 0], true).await?;
    assert_followed(&w, &[join.id, last.id]).await
}

async fn an_inner_group_needs_an_outer_one_that_takes_its_follow_up(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    open_group(&w, group("sealed")?).await?;
    spawn(&w, "sealed").await?;
    seal(&w, "sealed").await?;
    open_group(&w, group("full")?.expecting(1)).await?;
    spawn(&w, "full").await?;
    open_group(&w, group("drained")?.expecting(0)).await?;
    let names = ["sealed", "full", "drained"];
    let mut before = Vec::new();
    for name in names {
        before.push(w.group(name).await?);
    }
    let history = w.history().await?;
    let sealed = Conflict::GroupSealed {
        group: id("sealed")?,
    };
    let full = Conflict::GroupFull {
        group: id("full")?,
        expected: 1,
    };
    let drained = Conflict::GroupDrained {
        group: id("drained")?,
    };
    for (outer, extends, error) in [
        ("sealed", false, sealed.into()),
        ("full", false, full.into()),
        ("drained", true, drained.into()),
        ("missing", true, NotFound::Group(id("missing")?).into()),
    ] {
        let then = follow_up(&w, "join")?.group(id(outer)?);
        let inner = NewGroup {
            extends,
            ..group("inner")?.then(then)
        };
        let commit = Commit::of(settle(&held, complete())).write(open(inner));
        assert_eq!(w.store.commit_one(commit).await, Err(error));
        let missing = w.group("inner").await;
        assert_eq!(missing, Err(NotFound::Group(id("inner")?).into()));
    }
    assert_eq!(w.task(task.id()).await?, task);
    for (name, before) in names.into_iter().zip(before) {
        assert_eq!(w.group(name).await?, before);
    }
    assert_eq!(w.history().await?, history);
    Ok(())
}

async fn a_member_may_leave_an_inner_group_in_its_place_though_the_outer_one_is_complete(
    w: World,
) -> Result<()> {
    for (outer, new) in [
        ("sealed", group("sealed")?),
        ("full", group("full")?.expecting(1)),
    ] {
        let last = follow_up(&w, outer)?;
        open_group(&w, new.then(last.clone())).await?;
        let (_, held) = w.claimed(member(&w, outer)?).await?;
        if outer == "sealed" {
            seal(&w, outer).await?;
        }
        let join = follow_up(&w, "join")?.group(id(outer)?);
        let inner_id = format!("inner of {outer}");
        let inner = group(&inner_id)?
            .expecting(1)
            .then(join.clone())
            .extending();
        let commit = Commit::of(settle(&held, complete())).write(open(inner));
        w.store.commit_one(commit).await?;
        assert_group(&w, outer, [2, 0, 1, 0, 0], false).await?;
        let item = spawn(&w, &inner_id).await?;
        end(&w, item, complete()).await?;
        assert_group(&w, outer, [2, 0, 1, 0, 0], false).await?;
        assert_eq!(w.store.task(last.id).await?, None);
        end(&w, join.id, complete()).await?;
        assert_group(&w, outer, [2, 0, 2, 0, 0], true).await?;
        assert_eq!(w.status(last.id).await?, Status::Pending);
    }
    Ok(())
}

/// An outer group that expects this many, and an inner one of one member that has failed, whose
/// follow-up has completed: that member, the inner follow-up and the definition of the outer.
async fn nested(w: &World, expected: u64) -> Result<(TaskId, TaskId, NewGroup)> {
    let outer = group("outer")?
        .expecting(expected)
        .then(follow_up(w, "last")?);
    open_group(w, outer.clone()).await?;
    let join = follow_up(w, "join")?.group(id("outer")?);
    open_group(w, group("inner")?.expecting(1).then(join.clone())).await?;
    let item = spawn(w, "inner").await?;
    end(w, item, fail("for good")).await?;
    assert_followed(w, &[join.id]).await?;
    end(w, join.id, complete()).await?;
    Ok((item, join.id, outer))
}

async fn an_outer_group_waits_again_when_an_inner_one_is_opened_again(w: World) -> Result<()> {
    let (item, join, outer) = nested(&w, 1).await?;
    let last = outer.then.map_or(join, |then| then.id);
    let drained = assert_group(&w, "outer", [1, 0, 1, 0, 0], true).await?;
    assert_eq!(drained.generation, 0);
    w.write_with_id(retry(item, true)).await?;
    let inner = assert_group(&w, "inner", [1, 0, 0, 0, 0], false).await?;
    let waits = assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_eq!((inner.generation, waits.generation), (1, 1));
    end(&w, item, complete()).await?;
    assert_group(&w, "inner", [1, 0, 1, 0, 0], true).await?;
    assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_followed(&w, &[join, last, join.nth(1)]).await?;
    end(&w, join.nth(1), complete()).await?;
    assert_group(&w, "outer", [2, 0, 2, 0, 0], true).await?;
    assert_followed(&w, &[join, last, join.nth(1), last.nth(1)]).await?;
    w.write_with_id(Write::Reopen(id("inner")?)).await?;
    assert_group(&w, "outer", [3, 0, 2, 0, 0], false).await?;
    Ok(())
}

async fn an_outer_group_that_waits_again_can_still_be_opened_with_its_definition(
    w: World,
) -> Result<()> {
    let (item, join, outer) = nested(&w, 2).await?;
    let last = outer.then.as_ref().map_or(join, |then| then.id);
    assert_group(&w, "outer", [1, 0, 1, 0, 0], false).await?;
    w.write_with_id(retry(item, true)).await?;
    let waits = assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_eq!(waits.generation, 0);
    // Somebody whose first reply was lost repeats what it said.
    open_group(&w, outer).await?;
    assert_eq!(w.group("outer").await?, waits);
    end(&w, item, complete()).await?;
    assert_followed(&w, &[join, join.nth(1)]).await?;
    end(&w, join.nth(1), complete()).await?;
    assert_group(&w, "outer", [2, 0, 2, 0, 0], false).await?;
    let sibling = spawn(&w, "outer").await?;
    end(&w, sibling, complete()).await?;
    assert_group(&w, "outer", [3, 0, 3, 0, 0], true).await?;
    assert_followed(&w, &[join, join.nth(1), last]).await
}

async fn deleting_an_inner_group_gives_up_its_place_in_the_outer_one(w: World) -> Result<()> {
    let last = follow_up(&w, "last")?;
    open_group(&w, group("outer")?.then(last.clone())).await?;
    let kept = follow_up(&w, "kept")?.group(id("outer")?);
    let lost = follow_up(&w, "lost")?.group(id("outer")?);
    open_group(&w, group("drained")?.expecting(0).then(kept.clone())).await?;
    open_group(&w, group("inner")?.then(lost.clone())).await?;
    let item = spawn(&w, "inner").await?;
    seal(&w, "outer").await?;
    assert_group(&w, "outer", [2, 0, 0, 0, 0], false).await?;
    assert_followed(&w, &[kept.id]).await?;
    w.store.write(Write::DeleteGroup(id("drained")?)).await?;
    assert_group(&w, "outer", [2, 0, 0, 0, 0], false).await?;
    end(&w, kept.id, complete()).await?;
    assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    w.store.write(Write::DeleteGroup(id("inner")?)).await?;
    assert_group(&w, "outer", [2, 0, 2, 0, 1], true).await?;
    assert_followed(&w, &[kept.id, last.id]).await?;
    end(&w, item, complete()).await?;
    assert_followed(&w, &[kept.id, last.id]).await
}
