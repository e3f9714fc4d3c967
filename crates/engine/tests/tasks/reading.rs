//! Looking at tasks.

use futures::{StreamExt, TryStreamExt};
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::{Counts, List, Selector, TaskFilter};
use plimsoll_core::task::{Lane, Status};
use plimsoll_core::{IdempotencyKey, Name, Prefix, Result, TaskId};

use crate::world::{World, code, lane};

#[tokio::test]
async fn a_task_is_found_by_id_and_by_key_or_not() -> Result<()> {
    let w = World::new();
    let key = IdempotencyKey::new("k")?;
    let id = w.tasks.submit(w.task("a").key(key.clone())).await?.id;
    assert_eq!(w.tasks.get(id).await?.id(), id);
    assert_eq!(w.tasks.get_by_key(&key).await?.id(), id);
    let nobody = TaskId::from_u128(7);
    assert_eq!(code(w.tasks.get(nobody).await), "task_not_found");
    assert_eq!(w.tasks.find(nobody).await?, None);
    let other = IdempotencyKey::new("other")?;
    let error = w.tasks.get_by_key(&other).await.unwrap_err();
    assert_eq!(error.to_string(), "no task with key other");
    assert_eq!(w.tasks.find_by_key(&other).await?, None);
    Ok(())
}

#[tokio::test]
async fn all_pages_are_streamed_as_they_are_taken() -> Result<()> {
    let w = World::new();
    let tasks: Vec<_> = (0..25).map(|n| w.task(&n.to_string())).collect();
    w.tasks.submit_all(tasks.clone()).await;
    let selector = Selector::Lane(lane(), Status::Pending);
    let page = w.tasks.list(List::new(selector.clone(), 10)).await?;
    assert_eq!((page.rows.len(), page.next.is_some()), (10, true));
    let mut stream = w.tasks.list_all(List::new(selector, 10));
    let before = w.spy.calls(Method::List);
    stream.try_next().await?;
    assert_eq!(w.spy.calls(Method::List) - before, 1, "one page, not all");
    let rest: Vec<TaskId> = stream.map_ok(|task| task.id()).try_collect().await?;
    let expected: Vec<TaskId> = tasks[1..].iter().map(|task| task.id).collect();
    assert_eq!(rest, expected);
    let pending = w.tasks.list_status(lane(), Status::Pending);
    assert_eq!(pending.count().await, 25);
    let failed = w.tasks.list_status(lane(), Status::Failed);
    assert_eq!(failed.count().await, 0);
    Ok(())
}

#[tokio::test]
async fn a_stream_tells_an_error_and_ends() -> Result<()> {
    let w = World::new().hasty();
    w.submitted().await?;
    for _ in 0..5 {
        w.plan.next(Method::List, Fault::ErrorBefore);
    }
    let pending = w.tasks.list_status(lane(), Status::Pending);
    let answers: Vec<_> = pending.collect().await;
    assert_eq!(answers.len(), 1);
    assert_eq!(code(answers[0].clone()), "unavailable");
    Ok(())
}

#[tokio::test]
async fn lists_go_by_owner_key_and_filter() -> Result<()> {
    let w = World::new();
    let ada = Name::new("ada")?;
    let (label, blue) = (Name::new("colour")?, Name::new("blue")?);
    let mine = w
        .task("a")
        .owner(ada.clone())
        .key(IdempotencyKey::new("order-1")?);
    let labelled = (w.task("b").owner(ada.clone())).label(label.clone(), blue.clone());
    w.tasks.submit_all([mine.clone(), labelled.clone()]).await;
    let ids = async |list| -> Result<Vec<TaskId>> {
        let page = w.tasks.list(list).await?;
        Ok(page.rows.iter().map(|task| task.id()).collect())
    };
    let owned = List::new(Selector::Owner(ada), 10);
    assert_eq!(ids(owned.clone()).await?, [mine.id, labelled.id]);
    let by_key = List::new(Selector::Key(Prefix::new("order-")?), 10);
    assert_eq!(ids(by_key).await?, [mine.id]);
    let filter = TaskFilter {
        labels: [(label, blue)].into(),
        ..TaskFilter::default()
    };
    assert_eq!(ids(List { filter, ..owned }).await?, [labelled.id]);
    Ok(())
}

#[tokio::test]
async fn counts_and_peeks_tell_what_is_there() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let waiting = w.submitted().await?;
    let peeked = w.tasks.peek([lane()], 5).await?;
    assert_eq!(peeked.len(), 1);
    assert_eq!(peeked[0].id(), waiting);
    held.complete("").await?;
    let other = w.tasks.task("other", "k", "")?;
    w.tasks.submit(other).await?;
    let counts = Counts {
        queue: Some(Name::new("q")?),
        kind: None,
    };
    let counts = w.tasks.counts(counts).await?;
    assert_eq!(counts.len(), 1);
    assert_eq!(counts[0].lane, Lane::new("q", "k")?);
    let by_status = [(Status::Pending, 1), (Status::Completed, 1)];
    assert_eq!(counts[0].by_status, by_status.into());
    Ok(())
}

#[tokio::test]
async fn tasks_of_a_status_are_found_in_every_lane() -> Result<()> {
    let w = World::new();
    let mut expected = Vec::new();
    for queue in ["a", "b", "c"] {
        for kind in ["x", "y"] {
            let task = w.tasks.task(queue, kind, "")?;
            expected.push(task.id);
            w.tasks.submit(task).await?;
        }
    }
    let done = expected.pop().unwrap();
    w.tasks.cancel(done, None).await?;
    let find = async |status| {
        let found = w.tasks.list_everywhere(status).map_ok(|task| task.id());
        found.try_collect::<Vec<_>>().await
    };
    assert_eq!(find(Status::Pending).await?, expected);
    assert_eq!(find(Status::Cancelled).await?, [done]);
    assert_eq!(find(Status::Failed).await?, []);
    Ok(())
}
