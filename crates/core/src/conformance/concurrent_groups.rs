//! Many at once on groups: they drain once.

use crate::change::{Change, GroupEvent, TaskEvent};
use crate::conformance::act::insist;
use crate::conformance::concurrency::{all, changes, handles, insist_on, times};
use crate::conformance::parallel;
use crate::conformance::world::{World, complete, fail_with, holder};
use crate::conformance::writes::{open, settle};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::names::GroupId;
use crate::store::{Commit, FailRetry, StoreExt, Write};
use crate::task::{Lane, NewTask, Status};

cases!["concurrent_groups":
    sealing_while_the_last_members_end_drains_once,
    two_hundred_members_settled_by_many_workers_drain_once,
];

/// A group, whose `then` is in another lane so that workers do not claim it.
pub(super) async fn open_group(w: &World, id: &str) -> Result<TaskId> {
    let then = NewTask {
        lane: Lane::new("queue", "then")?,
        ..w.new_task("then")
    };
    let group = NewGroup::new(GroupId::new(id)?).then(then.clone());
    w.store.write(open(group)).await?;
    Ok(then.id)
}

/// The group has drained once, and has submitted its task once.
async fn assert_drained_once(w: &World, group: &str, then: TaskId) -> Result<()> {
    assert!(w.group(group).await?.drained_at.is_some());
    assert_eq!(w.status(then).await?, Status::Pending);
    let entries = w.history().await?.entries;
    assert_eq!(times(&entries, TaskEvent::Submitted)[&then], 1);
    let drains = changes(&entries).filter(|change| {
        matches!(change, Change::Group { id, event: GroupEvent::Drained, .. } if id.as_str() == group)
    });
    assert_eq!(drains.count(), 1);
    Ok(())
}

async fn sealing_while_the_last_members_end_drains_once(w: World) -> Result<()> {
    let worlds = handles(&w, 8).await?;
    for turn in 0..8 {
        let name = format!("group-{turn}");
        let id = GroupId::new(&name)?;
        let then = open_group(&w, &name).await?;
        let mut held = Vec::new();
        for _ in 0..7 {
            let member = w.new_task("member").group(id.clone());
            held.push(Some(w.claimed(member).await?.1));
        }
        held.insert(turn, None);
        let calls = (worlds.iter().cloned().zip(held)).map(|(w, held)| {
            let id = id.clone();
            async move {
                match held {
                    Some(held) => insist_on(&w, settle(&held, complete())).await,
                    None => insist_on(&w, Write::Seal(id)).await,
                }
            }
        });
        all(parallel(calls).await)?;
        let group = w.group(&name).await?;
        assert_eq!((group.spawned, group.done, group.sealed), (7, 7, true));
        assert_drained_once(&w, &name, then).await?;
    }
    Ok(())
}

async fn two_hundred_members_settled_by_many_workers_drain_once(w: World) -> Result<()> {
    let id = GroupId::new("group")?;
    let then = open_group(&w, "group").await?;
    let members: Vec<NewTask> = (0..200)
        .map(|_| w.new_task("member").group(id.clone()))
        .collect();
    for members in members.chunks(100) {
        let submits = members.iter().cloned().map(Box::new).map(Write::Submit);
        insist(w.store.as_ref(), submits.fold(Commit::new(), Commit::write)).await?;
    }
    w.store.write(Write::Seal(id)).await?;
    let workers = (handles(&w, 12).await?.into_iter().enumerate()).map(|(n, w)| async move {
        let worker = w.worker(&format!("worker-{n}"))?;
        let mut failed = 0;
        loop {
            let tasks = w.claim(&worker, 5).await?;
            if tasks.is_empty() {
                return Ok(failed);
            }
            for (turn, task) in tasks.iter().enumerate() {
                let fails = turn == 0;
                failed += u64::from(fails);
                let how = if fails {
                    fail_with("no", FailRetry::Fatal)
                } else {
                    complete()
                };
                insist_on(&w, settle(&holder(task), how)).await?;
                tokio::task::yield_now().await;
            }
        }
    });
    let failed: u64 = all(parallel(workers).await)?.into_iter().sum();
    // A claim among many may come back empty while others hold what is left for a moment.
    let last = w.worker("last")?;
    loop {
        let tasks = w.claim(&last, 100).await?;
        if tasks.is_empty() {
            break;
        }
        for task in &tasks {
            insist_on(&w, settle(&holder(task), complete())).await?;
        }
    }
    let group = w.group("group").await?;
    assert_eq!((group.spawned, group.done), (200, 200));
    assert_eq!((group.failed, group.cancelled), (failed, 0));
    assert_drained_once(&w, "group", then).await
}
