//! Tasks of which somebody has removed the state, by hand: they can be told from the others.

use super::*;

/// The second answer is that this task is nowhere, the others are receipts.
#[track_caller]
fn assert_second_is_nowhere<T: std::fmt::Debug>(answers: &[Result<T, Error>], id: TaskId) {
    let nowhere = format!("task {id} has no state");
    for (place, answer) in answers.iter().enumerate() {
        match (place, answer) {
            (1, Err(Error::Corrupt(what))) => assert_eq!(**what, *nowhere),
            (1, other) => panic!("{other:?}"),
            (_, answer) => assert!(answer.is_ok(), "{answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_task_whose_row_is_gone_does_not_hold_up_others() {
    let world = World::<1>::new().await;
    let [store] = &world.stores;
    let ids: Vec<TaskId> = (0..3).map(|_| world.ids.task()).collect();
    let new = ids.iter().map(|id| NewTask::new(*id, lane(), "x"));
    write(store, new.map(|new| Write::Submit(Box::new(new)))).await;
    let gone = format!("DELETE FROM plimsoll.tasks WHERE id = '{}'", ids[1]);
    world.tamper(&gone).await;
    let by_id = |id: &TaskId| {
        let pick = Pick::Ids(vec![*id]);
        let (worker, request) = (world.worker.clone(), world.ids.request());
        let lease = LEASE;
        store.claim(Claim {
            pick,
            worker,
            lease,
            request,
        })
    };
    let refused = by_id(&ids[1]).await.expect("a claim").refused;
    assert!(matches!(refused[..], [(id, Error::Corrupt(_))] if id == ids[1]));
    let cancels = ids.iter().map(|task| {
        let (task, reason) = (*task, None);
        Commit::of(Write::Cancel(Cancel { task, reason }))
    });
    let answers = store.commit(cancels.collect()).await;
    assert_second_is_nowhere(&answers, ids[1]);
    assert_eq!(world.rows("tasks_done").await, 2);
}

#[tokio::test]
async fn a_task_that_no_claim_holds_does_not_hold_up_others() {
    let world = World::<2>::new().await;
    let tasks = world.claimed(3).await;
    let id = tasks[1].id();
    let gone =
        format!("UPDATE plimsoll.claims SET gone = ARRAY['{id}'::uuid] WHERE '{id}' = ANY(tasks)");
    world.tamper(&gone).await;
    for store in &world.stores {
        let renewals = world.renew(store, &tasks).await;
        let lost = |renewal: &Renewal| matches!(renewal, Renewal::Lost(_));
        let lost: Vec<bool> = renewals.iter().map(lost).collect();
        assert_eq!(lost, [false, true, false]);
    }
    let settles = tasks.iter().map(|task| Commit::of(complete(task)));
    let answers = world.stores[0].commit(settles.collect()).await;
    assert_second_is_nowhere(&answers, id);
    assert_eq!(world.rows("tasks_done").await, 2);
}
