//! Claims beside others who are taking what is first in line.

use super::*;

const TASKS: usize = 200;

/// Takes from two lanes, all tasks of which are in one.
async fn of_two_lanes(world: &World<1>, limit: usize) -> Vec<TaskId> {
    let other = Lane::new("queue", "other").expect("a lane");
    let claim = Claim {
        pick: Pick::Next {
            lanes: vec![lane(), other],
            limit,
        },
        worker: world.worker.clone(),
        lease: LEASE,
        request: world.ids.request(),
    };
    let claimed = world.stores[0].claim(claim).await.expect("a claim");
    claimed.tasks.iter().map(Task::id).collect()
}

#[tokio::test]
async fn what_others_are_taking_does_not_hide_what_is_behind_it() {
    let world = World::<1>::new().await;
    assert!(of_two_lanes(&world, 1).await.is_empty());
    let new = (0..TASKS).map(|_| NewTask::new(world.ids.task(), lane(), "x"));
    let mut ids: Vec<TaskId> = Vec::new();
    let writes: Vec<Write> = new
        .map(|new| {
            ids.push(new.id);
            Write::Submit(Box::new(new))
        })
        .collect();
    write(&world.stores[0], writes.into_iter()).await;
    ids.sort_unstable();
    // All but the last: whoever wants few would not see these.
    lock(&world, &ids[..TASKS - 20]).await;
    assert_eq!(of_two_lanes(&world, 1).await, ids[TASKS - 20..][..1]);
    assert_eq!(of_two_lanes(&world, 50).await, ids[TASKS - 19..]);
    assert!(of_two_lanes(&world, 50).await.is_empty());
    free(&world).await;
    // Those in the middle.
    ids.truncate(TASKS - 20);
    lock(&world, &ids[10..ids.len() - 20]).await;
    let expected = [&ids[..10], &ids[ids.len() - 20..]].concat();
    assert_eq!(of_two_lanes(&world, 50).await, expected);
    free(&world).await;
    assert_eq!(of_two_lanes(&world, 500).await, ids[10..ids.len() - 20]);
}

/// Somebody is taking these.
async fn lock(world: &World<1>, ids: &[TaskId]) {
    let name = world.stores[0].namespace();
    let lock = format!(
        "BEGIN; SELECT 1 FROM plimsoll.tasks WHERE id BETWEEN '{}' AND '{}' AND ns = \
         (SELECT ns FROM plimsoll.namespaces WHERE name = '{name}') FOR UPDATE",
        ids[0],
        ids[ids.len() - 1]
    );
    world.sql.batch_execute(&lock).await.expect("locked");
}

async fn free(world: &World<1>) {
    world.sql.batch_execute("ROLLBACK").await.expect("free");
}
