//! Task ids: the same id is the same submission, and belongs to one task.

use std::time::Duration;

use crate::conformance::act::{attempt, open_group};
use crate::conformance::observe::{created, events_since, here};
use crate::conformance::submits::as_submitted;
use crate::conformance::world::{World, complete, conflict, holder, name};
use crate::error::{Conflict, NotFound, Result};
use crate::group::NewGroup;
use crate::names::{GroupId, IdempotencyKey};
use crate::store::{StoreExt, Write};
use crate::task::{Due, KeyLifetime, Lane, NewTask, OnConflict, Priority, Status};

cases!["task_ids":
    the_same_id_again_is_the_same_submission_whatever_became_of_it,
    an_id_that_another_task_has_is_refused,
    an_id_can_be_submitted_again_once_its_task_is_deleted,
    the_same_id_in_another_namespace_is_another_task,
];

async fn the_same_id_again_is_the_same_submission_whatever_became_of_it(w: World) -> Result<()> {
    let group = NewGroup::new(GroupId::new("group")?);
    open_group(&w, group).await?;
    let new = w.new_task("work").group(GroupId::new("group")?).key_with(
        IdempotencyKey::new("key")?,
        KeyLifetime::WhileActive,
        OnConflict::Reject,
    );
    // What the task is made of tells submissions apart, not how it is to be run.
    let again = NewTask {
        priority: Priority::HIGHEST,
        due: Due::After(Duration::from_secs(60)),
        owner: Some(name("somebody")?),
        ..new.clone()
    };
    w.submit(new.clone()).await?;
    for step in ["submitted", "claimed", "completed", "its key given away"] {
        match step {
            "claimed" => assert_eq!(w.claim(&w.worker("worker")?, 1).await?.len(), 1),
            "completed" => {
                let held = holder(&w.task(new.id).await?);
                w.store.settle(held, complete()).await?;
            }
            "its key given away" => {
                let id = w.ids.task();
                let other = NewTask { id, ..new.clone() };
                assert_eq!(w.store.submit(other).await?, created(id));
            }
            _ => {}
        }
        let before = w.task(new.id).await?;
        let group = w.group("group").await?;
        let start = here(&w).await?;
        w.advance(Duration::from_secs(1));
        for same in [&new, &again] {
            assert_eq!(w.store.submit(same.clone()).await?, created(new.id));
        }
        assert_eq!(w.task(new.id).await?, before, "{step}");
        assert_eq!(w.group("group").await?, group);
        assert_eq!(events_since(&w, start).await?, vec![]);
    }
    Ok(())
}

async fn an_id_that_another_task_has_is_refused(w: World) -> Result<()> {
    let key = |text: &str| IdempotencyKey::new(text);
    let new = w.new_task("work").key(key("key")?);
    let plain = w.new_task("work");
    let before = w.submit(new.clone()).await?;
    w.submit(plain.clone()).await?;
    let start = here(&w).await?;
    let payload = NewTask {
        payload: "other".into(),
        ..new.clone()
    };
    let queue = NewTask {
        lane: Lane::new("other", "kind")?,
        ..new.clone()
    };
    let kind = NewTask {
        lane: Lane::new("queue", "other")?,
        ..new.clone()
    };
    let no_key = NewTask {
        key: None,
        ..new.clone()
    };
    let other_key = new.clone().key(key("other key")?);
    let with_key = plain.clone().key(key("new key")?);
    for taken in [payload, queue, kind, no_key, other_key, with_key] {
        let task = taken.id;
        let answer = conflict(w.store.submit(taken).await);
        assert_eq!(answer, Conflict::IdTaken { task });
    }
    assert_eq!(w.task(new.id).await?, before);
    assert_eq!(w.by_key("key").await?, Some(before));
    assert_eq!(w.by_key("other key").await?, None);
    assert_eq!(w.by_key("new key").await?, None);
    assert_eq!(events_since(&w, start).await?, vec![]);
    Ok(())
}

async fn an_id_can_be_submitted_again_once_its_task_is_deleted(w: World) -> Result<()> {
    let new = w.new_task("work");
    w.submit(new.clone()).await?;
    attempt(&w, new.id, complete()).await?;
    let ended = w.task(new.id).await?.revision;
    w.store.write(Write::DeleteTask(new.id)).await?;
    assert_eq!(w.store.task(new.id).await?, None);
    let other = NewTask {
        payload: "other work".into(),
        ..new
    };
    let again = w.submit(other.clone()).await?;
    assert_eq!(again, as_submitted(&other, w.now(), again.revision));
    assert!(again.revision > ended, "revisions grow over deletion");
    Ok(())
}

async fn the_same_id_in_another_namespace_is_another_task(w: World) -> Result<()> {
    let other = w.elsewhere().await?;
    let new = w.new_task("here");
    let there = NewTask {
        payload: "there".into(),
        ..new.clone()
    };
    let before = w.submit(new.clone()).await?;
    assert_eq!(other.task(new.id).await?, None);
    assert_eq!(other.submit(there).await?, created(new.id));
    other.cancel(new.id, None).await?;
    assert_eq!(w.task(new.id).await?, before);
    let task = other.task(new.id).await?;
    let task = task.ok_or(NotFound::Task(new.id))?;
    assert_eq!(task.spec.payload, "there");
    assert_eq!(task.status, Status::Cancelled);
    assert_eq!(w.claim(&w.worker("worker")?, 2).await?.len(), 1);
    Ok(())
}
