//! Interests: what a reader of the history is shown, and what it moves past.

use crate::change::{Change, Interest, TaskChange, TaskEvent};
use crate::conformance::changes::{current, newest};
use crate::conformance::reading_history::{key_of, mixed, page, told};
use crate::conformance::world::{World, lane, name};
use crate::error::Result;
use crate::names::{GroupId, Prefix};
use crate::store::Start;

cases!["interests":
    an_interest_in_records_shows_keys_with_its_prefix,
    an_interest_in_tasks_shows_those_that_meet_every_condition,
    interests_add_up_and_groups_are_shown_by_prefix,
    a_reader_moves_past_entries_that_it_is_not_shown,
];

/// What these interests show must be what is in the history and passes `wanted`.
async fn assert_shown(
    w: &World,
    interests: &[Interest],
    count: usize,
    wanted: impl Fn(&Change) -> bool,
) -> Result<()> {
    let mut expected = w.history().await?.entries;
    for entry in &mut expected {
        entry.changes.retain(&wanted);
    }
    expected.retain(|entry| !entry.changes.is_empty());
    let changes: usize = expected.iter().map(|entry| entry.changes.len()).sum();
    assert_eq!(changes, count, "{interests:?} should show so many changes");
    for limit in [1, 1_000] {
        let found = told(w, interests, limit).await?;
        assert_eq!(found, expected, "{interests:?} in pages of {limit}");
    }
    Ok(())
}

fn task_of(change: &Change) -> Option<&TaskChange> {
    match change {
        Change::Task(task) => Some(task),
        Change::Put(_) | Change::Removed { .. } | Change::Group { .. } => None,
    }
}

async fn an_interest_in_records_shows_keys_with_its_prefix(w: World) -> Result<()> {
    mixed(&w).await?;
    for (prefix, count) in [("jobs.", 3), ("jobs_", 1), ("jobs", 4), ("jobs.2", 1)] {
        let interest = [Interest::Records(Prefix::new(prefix)?)];
        assert_shown(&w, &interest, count, |change| {
            key_of(change).starts_with(prefix)
        })
        .await?;
    }
    let any = [Interest::Records(Prefix::any())];
    assert_shown(&w, &any, 5, |change| !key_of(change).is_empty()).await
}

async fn an_interest_in_tasks_shows_those_that_meet_every_condition(w: World) -> Result<()> {
    let ids = mixed(&w).await?;
    let shown = async |interest: Interest, count, wanted: &(dyn Fn(&TaskChange) -> bool + Sync)| {
        let interests = [interest];
        assert_shown(&w, &interests, count, |change| {
            task_of(change).is_some_and(wanted)
        })
        .await
    };
    let (queue, kind) = (Some(name("queue")?), Some(name("kind")?));
    let group = Some(GroupId::new("run.1")?);
    let interest = |queue, kind, id, group, terminal| Interest::Tasks {
        queue,
        kind,
        id,
        group,
        terminal,
    };
    let any = interest(None, None, None, None, false);
    shown(any, 6, &|_| true).await?;
    let of_queue = interest(queue.clone(), None, None, None, false);
    shown(of_queue, 4, &|task| task.lane.queue.as_str() == "queue").await?;
    let of_kind = interest(None, kind.clone(), None, None, false);
    shown(of_kind, 5, &|task| task.lane.kind.as_str() == "kind").await?;
    let of_lane = interest(queue, kind, None, None, false);
    shown(of_lane, 3, &|task| task.lane == lane()).await?;
    let of_id = interest(None, None, Some(ids[2]), None, false);
    shown(of_id, 2, &|task| task.id == ids[2]).await?;
    let of_group = interest(None, None, None, group.clone(), false);
    shown(of_group, 3, &|task| task.group == group).await?;
    let ended = interest(None, None, None, None, true);
    shown(ended, 2, &|task| task.status.is_terminal()).await?;
    let end_of_far = interest(None, None, Some(ids[2]), None, true);
    shown(end_of_far, 1, &|task| {
        task.id == ids[2] && task.event == TaskEvent::Cancelled
    })
    .await?;
    let nothing = interest(None, None, Some(ids[2]), group, false);
    shown(nothing, 0, &|_| false).await
}

async fn interests_add_up_and_groups_are_shown_by_prefix(w: World) -> Result<()> {
    let ids = mixed(&w).await?;
    for (prefix, count) in [("run", 1), ("", 2), ("un", 0)] {
        let interest = [Interest::Groups(Prefix::new(prefix)?)];
        assert_shown(
            &w,
            &interest,
            count,
            |change| matches!(change, Change::Group { id, .. } if id.as_str().starts_with(prefix)),
        )
        .await?;
    }
    let interests = [
        Interest::Records(Prefix::new("locks.")?),
        Interest::Groups(Prefix::new("walk")?),
        Interest::Tasks {
            queue: None,
            kind: None,
            id: Some(ids[1]),
            group: None,
            terminal: false,
        },
        Interest::Records(Prefix::new("lock")?),
    ];
    assert_shown(&w, &interests, 3, |change| {
        key_of(change) == "locks.1"
            || task_of(change).is_some_and(|task| task.id == ids[1])
            || matches!(change, Change::Group { id, .. } if id.as_str() == "walk.1")
    })
    .await
}

async fn a_reader_moves_past_entries_that_it_is_not_shown(w: World) -> Result<()> {
    for n in 0..10 {
        w.put(&format!("noise.{n}"), [("value", "1")]).await?;
    }
    let wanted = [Interest::Records(Prefix::new("signal")?)];
    let mut start = Start::Oldest;
    let mut pages = 0;
    loop {
        let page = page(&w, start, &wanted, 1).await?;
        assert_eq!(page.entries, []);
        start = Start::After(page.next);
        pages += 1;
        if !page.more {
            break;
        }
        assert!(pages < 20, "the reader does not come to the end");
    }
    let newest = newest(&w).await?;
    assert_eq!(start, Start::After(newest));
    w.put("signal", [("value", "1")]).await?;
    let page = page(&w, start, &wanted, 1).await?;
    let signal = current(&w, "signal").await?;
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].changes, [Change::Put(signal)]);
    Ok(())
}
