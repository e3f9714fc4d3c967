//! Counts: what lists would find, without reading it.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::{Change, TaskEvent};
use crate::conformance::act::retry_now;
use crate::conformance::lists::{brought_to, in_lane};
use crate::conformance::observe::listed;
use crate::conformance::world::{LEASE, World, fail, name};
use crate::error::Result;
use crate::store::{Counts, Ending, LaneCounts, List, Selector, StoreExt, Write};
use crate::task::{Lane, RetryPolicy, Status};

cases!["counts":
    counts_equal_what_lists_find_after_a_mixed_history,
    counts_can_be_asked_for_a_queue_or_a_kind,
    a_lane_that_lost_its_last_task_is_not_counted,
];

/// Tasks in several lanes and every status, some of which went there by a long way.
async fn mixed_history(w: &World) -> Result<Vec<Lane>> {
    let lanes = [("a", "x"), ("a", "y"), ("b", "x")];
    for (index, (queue, kind)) in lanes.into_iter().enumerate() {
        let make = || in_lane(w.new_task("work"), queue, kind);
        for (position, status) in Status::ALL.into_iter().enumerate() {
            for _ in 0..(position + index) % 3 {
                brought_to(w, status, make()?).await?;
            }
        }
        let (_, held) = w.claimed(make()?).await?;
        w.store.settle(held, fail("once")).await?;
        let (_, held) = w.claimed(make()?).await?;
        let release = Ending::Release { reason: None };
        w.store.settle(held, release).await?;
        let again = brought_to(w, Status::Failed, make()?.retry(RetryPolicy::never())).await?;
        retry_now(w, again, true).await?;
        w.claimed(make()?.retry(RetryPolicy::never())).await?;
        let gone = brought_to(w, Status::Completed, make()?).await?;
        w.store.write(Write::DeleteTask(gone)).await?;
    }
    w.advance(LEASE);
    w.sweep().await?;
    let held = in_lane(w.new_task("work"), "a", "y")?;
    brought_to(w, Status::Claimed, held).await?;
    lanes
        .into_iter()
        .map(|(queue, kind)| Ok(Lane::new(queue, kind)?))
        .collect()
}

/// What lists find, as counts would say it.
async fn counted_by_listing(w: &World, lanes: &[Lane]) -> Result<Vec<LaneCounts>> {
    let mut counts = Vec::new();
    for lane in lanes {
        let mut by_status = BTreeMap::new();
        for status in Status::ALL {
            let selector = Selector::Lane(lane.clone(), status);
            let found = listed(w, List::new(selector, 1_000)).await?;
            assert!(found.iter().all(|task| task.status == status));
            if !found.is_empty() {
                by_status.insert(status, found.len() as u64);
            }
        }
        counts.push(LaneCounts {
            lane: lane.clone(),
            by_status,
        });
    }
    Ok(counts)
}

async fn counts_equal_what_lists_find_after_a_mixed_history(w: World) -> Result<()> {
    let lanes = mixed_history(&w).await?;
    let counts = w.store.counts(Counts::default()).await?;
    assert_eq!(counts, counted_by_listing(&w, &lanes).await?);
    let statuses: BTreeSet<Status> = (counts.iter())
        .flat_map(|lane| lane.by_status.keys().copied())
        .collect();
    assert_eq!(statuses, BTreeSet::from(Status::ALL));
    let total: u64 = counts.iter().flat_map(|lane| lane.by_status.values()).sum();
    let history = w.history().await?;
    let mut alive = BTreeSet::new();
    for change in history.entries.iter().flat_map(|entry| &entry.changes) {
        if let Change::Task(task) = change {
            match task.event {
                TaskEvent::Deleted => alive.remove(&task.id),
                _ => alive.insert(task.id),
            };
        }
    }
    assert_eq!(total, alive.len() as u64);
    Ok(())
}

async fn counts_can_be_asked_for_a_queue_or_a_kind(w: World) -> Result<()> {
    let lanes = mixed_history(&w).await?;
    let all = counted_by_listing(&w, &lanes).await?;
    for (queue, kind) in [
        (Some("a"), None),
        (None, Some("x")),
        (Some("b"), Some("x")),
        (Some("b"), Some("y")),
        (Some("c"), None),
    ] {
        let expected: Vec<LaneCounts> = (all.iter())
            .filter(|counts| queue.is_none_or(|queue| counts.lane.queue.as_str() == queue))
            .filter(|counts| kind.is_none_or(|kind| counts.lane.kind.as_str() == kind))
            .cloned()
            .collect();
        let counts = Counts {
            queue: queue.map(name).transpose()?,
            kind: kind.map(name).transpose()?,
        };
        assert_eq!(
            w.store.counts(counts).await?,
            expected,
            "{queue:?} {kind:?}"
        );
    }
    Ok(())
}

async fn a_lane_that_lost_its_last_task_is_not_counted(w: World) -> Result<()> {
    assert_eq!(w.store.counts(Counts::default()).await?, []);
    let gone = brought_to(&w, Status::Cancelled, w.new_task("work")).await?;
    let other = in_lane(w.new_task("work"), "other", "kind")?;
    w.submit(other.clone()).await?;
    w.store.write(Write::DeleteTask(gone)).await?;
    let left = LaneCounts {
        lane: other.lane,
        by_status: BTreeMap::from([(Status::Pending, 1)]),
    };
    assert_eq!(w.store.counts(Counts::default()).await?, [left]);
    Ok(())
}
