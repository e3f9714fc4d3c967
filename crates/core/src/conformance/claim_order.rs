//! The order of claims: which tasks of which lanes are taken first.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::claims::{ids, of_lanes, sorted, three_lanes, work_in};
use crate::conformance::observe::{events_of, seen};
use crate::conformance::world::{LEASE, World, complete, holder};
use crate::error::Result;
use crate::ids::TaskId;
use crate::store::{Ending, Outcome, StoreExt, Write};
use crate::task::{Lane, NewTask, Priority, Status};

cases!["claim_order":
    a_claim_never_takes_more_than_its_limit,
    the_most_urgent_task_of_all_lanes_is_taken_first,
    within_a_priority_the_first_runnable_task_of_all_lanes_is_taken_first if FirstInFirstOut,
    of_tasks_runnable_at_the_same_moment_the_lowest_id_is_taken_first if FirstInFirstOut,
    a_promoted_task_takes_the_place_of_its_due_moment if FirstInFirstOut,
    a_released_task_returns_to_its_old_place if FirstInFirstOut,
    a_new_priority_changes_the_order,
    a_task_of_a_lane_not_asked_for_is_never_taken,
    names_full_of_metacharacters_are_lanes_of_their_own,
];

/// Ids that were made in another order than they are answered in.
fn ids_from_last_to_first(w: &World, count: usize) -> Vec<TaskId> {
    let mut ids: Vec<TaskId> = (0..count).map(|_| w.ids.task()).collect();
    ids.reverse();
    ids
}

async fn a_claim_never_takes_more_than_its_limit(w: World) -> Result<()> {
    let all = w.submit_many(5).await?;
    let worker = w.worker("worker")?;
    let mut taken = Vec::new();
    for expected in [2, 2, 1, 0] {
        let tasks = w.claim(&worker, 2).await?;
        assert_eq!(tasks.len(), expected);
        taken.extend(ids(&tasks));
    }
    assert_eq!(sorted(taken), all);
    Ok(())
}

async fn the_most_urgent_task_of_all_lanes_is_taken_first(w: World) -> Result<()> {
    let lanes = three_lanes()?;
    // In every order but the right one: neither growing nor falling, neither by lane nor by id.
    let order = [4, 10, 0, 7, 2, 9, 5, 1, 8, 3, 6];
    for (turn, priority) in order.into_iter().enumerate() {
        let task = work_in(&w, &lanes[turn % lanes.len()]);
        w.submit(task.priority(Priority::new(priority)?)).await?;
        w.advance(Duration::from_millis(1));
    }
    let worker = w.worker("worker")?;
    let mut taken = Vec::new();
    for limit in [4, 1, 6] {
        let claimed = w.store.claim(of_lanes(&w, &worker, &lanes, limit)).await?;
        assert_eq!(claimed.tasks.len(), limit);
        taken.extend(claimed.tasks.iter().map(|task| task.priority.get()));
    }
    assert_eq!(taken, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    Ok(())
}

async fn within_a_priority_the_first_runnable_task_of_all_lanes_is_taken_first(
    w: World,
) -> Result<()> {
    let mut lanes = three_lanes()?;
    let order = ids_from_last_to_first(&w, 7);
    for (turn, id) in order.iter().enumerate() {
        let task = NewTask {
            id: *id,
            ..work_in(&w, &lanes[[0, 1, 2, 2, 1, 0, 1][turn]])
        };
        w.submit(task).await?;
        w.advance(Duration::from_millis(1));
    }
    lanes.reverse();
    let worker = w.worker("worker")?;
    let first = w.store.claim(of_lanes(&w, &worker, &lanes, 4)).await?;
    let second = w.store.claim(of_lanes(&w, &worker, &lanes, 4)).await?;
    assert_eq!(ids(&first.tasks), order[..4]);
    assert_eq!(ids(&second.tasks), order[4..]);
    Ok(())
}

async fn of_tasks_runnable_at_the_same_moment_the_lowest_id_is_taken_first(w: World) -> Result<()> {
    let lanes = three_lanes()?;
    let order = ids_from_last_to_first(&w, 6);
    for (turn, id) in order.iter().enumerate() {
        let task = NewTask {
            id: *id,
            ..work_in(&w, &lanes[turn % lanes.len()])
        };
        w.submit(task).await?;
    }
    let worker = w.worker("worker")?;
    let claimed = w.store.claim(of_lanes(&w, &worker, &lanes, 6)).await?;
    assert_eq!(ids(&claimed.tasks), sorted(order));
    Ok(())
}

async fn a_promoted_task_takes_the_place_of_its_due_moment(w: World) -> Result<()> {
    let later = Duration::from_secs(10);
    let due = w.submit(w.new_task("due").after(later)).await?;
    w.advance(later - Duration::from_millis(1));
    let earlier = w.submit(w.new_task("earlier")).await?.id();
    w.advance(Duration::from_millis(2));
    let after = w.submit(w.new_task("after")).await?.id();
    w.advance(Duration::from_secs(5));
    w.sweep().await?;
    assert_eq!(w.task(due.id()).await?.runnable_at, due.runnable_at);
    let taken = w.claim(&w.worker("worker")?, 3).await?;
    assert_eq!(ids(&taken), [earlier, due.id(), after]);
    Ok(())
}

async fn a_released_task_returns_to_its_old_place(w: World) -> Result<()> {
    let mut order = ids_from_last_to_first(&w, 3);
    for id in &order {
        let task = NewTask {
            id: *id,
            ..w.new_task("work")
        };
        w.submit(task).await?;
        w.advance(Duration::from_millis(1));
    }
    let worker = w.worker("worker")?;
    let taken = w.claim(&worker, 2).await?;
    assert_eq!(ids(&taken), order[..2]);
    w.advance(Duration::from_secs(1));
    let release = Ending::Release { reason: None };
    w.store.settle(holder(&taken[1]), release).await?;
    w.store.settle(holder(&taken[0]), complete()).await?;
    order.remove(0);
    assert_eq!(ids(&w.claim(&worker, 3).await?), order);
    Ok(())
}

async fn a_new_priority_changes_the_order(w: World) -> Result<()> {
    let all = w.submit_many(3).await?;
    let later = w.submit(w.new_task("later").after(LEASE)).await?.id();
    let lowest = Write::Prioritise(all[0], Priority::LOWEST);
    let outcome = w.store.write(lowest.clone()).await?;
    let low = w.task(all[0]).await?;
    assert_eq!(
        outcome,
        Outcome::Changed {
            status: Status::Pending,
            revision: low.revision
        }
    );
    assert_eq!(
        events_of(&w, all[0]).await?,
        [
            (TaskEvent::Submitted, Status::Pending),
            (TaskEvent::Amended, Status::Pending)
        ]
    );
    w.store
        .write(Write::Prioritise(all[2], Priority::new(9)?))
        .await?;
    w.store
        .write(Write::Prioritise(later, Priority::HIGHEST))
        .await?;
    let before = seen(&w, &[all[0]]).await?;
    assert_eq!(
        w.store.write(lowest).await?,
        Outcome::Already {
            status: Status::Pending
        }
    );
    assert_eq!(seen(&w, &[all[0]]).await?, before);
    w.advance(LEASE);
    w.sweep().await?;
    let taken = w.claim(&w.worker("worker")?, 4).await?;
    assert_eq!(ids(&taken), [later, all[2], all[1], all[0]]);
    Ok(())
}

async fn a_task_of_a_lane_not_asked_for_is_never_taken(w: World) -> Result<()> {
    let mut others = Vec::new();
    for (queue, kind) in [
        ("queue", "other"),
        ("other", "kind"),
        ("kind", "queue"),
        ("queue", "kind2"),
        ("queue2", "kind"),
        ("Queue", "Kind"),
    ] {
        let task = work_in(&w, &Lane::new(queue, kind)?);
        others.push(w.submit(task.priority(Priority::HIGHEST)).await?);
    }
    let own = w.submit(w.new_task("work")).await?.id();
    let taken = w.claim(&w.worker("worker")?, 10).await?;
    assert_eq!(ids(&taken), [own]);
    for other in others {
        assert_eq!(w.task(other.id()).await?, other);
    }
    Ok(())
}

async fn names_full_of_metacharacters_are_lanes_of_their_own(w: World) -> Result<()> {
    let mut lanes = vec![Lane::new("plain", "kind")?, Lane::new("queue", "plain")?];
    for text in [
        "%",
        "_",
        "*",
        "**",
        ">",
        "?",
        "[a-z]*",
        "plai_",
        "plai%",
        "pl*",
        "{plain}",
        "$1",
        "'",
        "\"",
        "\\",
        "'; DROP TABLE tasks; --",
        "KEYS[1]",
        "a\nb",
        "\t",
        " ",
        "ä",
        "\u{1f980}",
    ] {
        lanes.push(Lane::new(text, "kind")?);
        lanes.push(Lane::new("queue", text)?);
    }
    for between in [".", ":", "/", "|", ",", "-", " ", "\u{1f}"] {
        let ends = format!("a{between}b");
        lanes.push(Lane::new(&ends, "c")?);
        lanes.push(Lane::new("a", format!("b{between}c"))?);
    }
    let mut expected = Vec::new();
    for lane in &lanes {
        expected.push(w.submit(work_in(&w, lane)).await?.id());
    }
    let worker = w.worker("worker")?;
    for (lane, id) in lanes.iter().zip(expected) {
        let claim = of_lanes(&w, &worker, std::slice::from_ref(lane), 10);
        let claimed = w.store.claim(claim).await?;
        assert_eq!(ids(&claimed.tasks), [id], "{lane}");
        assert_eq!(claimed.tasks[0].spec.lane, *lane);
    }
    Ok(())
}
