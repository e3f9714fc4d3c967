//! Peeks: what the next claim would take, without taking it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::conformance::claims::{ids, of_lanes, three_lanes, work_in};
use crate::conformance::lists::{brought_to, in_lane};
use crate::conformance::observe::seen;
use crate::conformance::world::{LEASE, World, lane};
use crate::error::Result;
use crate::ids::TaskId;
use crate::store::{Claim, Peek, Pick};
use crate::task::{Lane, Priority, Status, Task};

cases!["peeks":
    a_peek_shows_what_the_next_claim_takes_and_changes_nothing,
    a_peek_shows_what_the_next_claim_takes if FirstInFirstOut,
    a_peek_shows_only_pending_tasks_of_its_lanes_and_changes_nothing,
];

async fn a_peek_shows_what_the_next_claim_takes_and_changes_nothing(w: World) -> Result<()> {
    let lanes = three_lanes()?;
    let mut all = Vec::new();
    for (turn, priority) in [3, 9, 1, 7, 5].into_iter().enumerate() {
        let task = work_in(&w, &lanes[turn % lanes.len()]);
        let task = task.priority(Priority::new(priority)?);
        all.push(w.submit(task).await?.id());
    }
    let urgent = w.new_task("scheduled").priority(Priority::HIGHEST);
    all.push(w.submit(urgent.after(LEASE)).await?.id());
    let before = seen(&w, &all).await?;
    let peek = |limit| Peek {
        lanes: lanes.to_vec(),
        limit,
    };
    let three = w.store.peek(peek(3)).await?;
    assert_eq!(ids(&three), [all[1], all[3], all[4]]);
    assert_eq!(w.store.peek(peek(3)).await?, three);
    for task in &three {
        assert_eq!(w.task(task.id()).await?, *task);
    }
    assert_eq!(seen(&w, &all).await?, before);
    let worker = w.worker("worker")?;
    let claimed = w.store.claim(of_lanes(&w, &worker, &lanes, 3)).await?;
    assert_eq!(ids(&claimed.tasks), ids(&three));
    assert_eq!(ids(&w.store.peek(peek(10)).await?), [all[0], all[2]]);
    Ok(())
}

async fn a_peek_shows_what_the_next_claim_takes(w: World) -> Result<()> {
    let lanes = vec![lane(), Lane::new("queue", "kind2")?];
    let mut expected = BTreeMap::new();
    for n in 0..8_u8 {
        let priority = [5, 9, 5, 0][usize::from(n % 4)];
        let mut task = w.new_task("work").priority(Priority::new(priority)?);
        task.lane = lanes[usize::from(n % 2)].clone();
        expected.insert((10 - priority, n), w.submit(task).await?.id());
        if n == 3 {
            w.advance(Duration::from_secs(1));
        }
    }
    let expected: Vec<TaskId> = expected.into_values().collect();
    for limit in [1, 3, 8, 20] {
        let peek = Peek {
            lanes: lanes.clone(),
            limit,
        };
        let peeked: Vec<TaskId> = w.store.peek(peek).await?.iter().map(Task::id).collect();
        assert_eq!(peeked, expected[..limit.min(8)], "limit {limit}");
    }
    let claim = Claim {
        pick: Pick::Next { lanes, limit: 5 },
        ..w.next(&w.worker("worker")?, 5)
    };
    let claimed = w.store.claim(claim).await?.tasks;
    let claimed: Vec<TaskId> = claimed.iter().map(Task::id).collect();
    assert_eq!(claimed, expected[..5]);
    Ok(())
}

async fn a_peek_shows_only_pending_tasks_of_its_lanes_and_changes_nothing(w: World) -> Result<()> {
    let mut ids = BTreeMap::new();
    for status in Status::ALL {
        ids.insert(status, brought_to(&w, status, w.new_task("work")).await?);
    }
    w.submit(in_lane(w.new_task("work"), "queue", "other")?)
        .await?;
    w.submit(in_lane(w.new_task("work"), "other", "kind")?)
        .await?;
    let (before, history) = (w.task(ids[&Status::Pending]).await?, w.history().await?);
    let peek = Peek {
        lanes: vec![lane(), Lane::new("empty", "lane")?],
        limit: 10,
    };
    for _ in 0..2 {
        let peeked = w.store.peek(peek.clone()).await?;
        assert_eq!(peeked.as_slice(), std::slice::from_ref(&before));
    }
    assert_eq!(w.history().await?, history);
    w.claim(&w.worker("second")?, 10).await?;
    assert_eq!(w.store.peek(peek).await?, []);
    Ok(())
}
