//! What workers and operators do to a task's state.

use futures::FutureExt;
use plimsoll_core::Result;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_engine::records::{Swapped, WatchEvent, from_record};

use super::{
    KEY, STEP_TIMEOUT_MS, State, TaskState, at, cancel, claim, complete, fail, field, pending,
    step, writes,
};
use crate::world::{MINUTE, World, on_each_store};

on_each_store!(
    the_record_has_all_its_fields,
    of_two_workers_one_claims_and_all_of_it_is_written,
    what_a_worker_writes_is_held_although_the_answer_is_lost,
    a_step_needs_the_worker_and_is_taken_once,
    completion_needs_the_worker_and_clears_the_timeout,
    what_has_ended_is_not_begun_again,
    an_operator_cancels_before_a_step_that_is_on_its_way,
    an_operator_cancels_after_a_step_that_came_first,
    who_renews_the_time_to_live_holds_what_that_has_left,
    progress_and_the_end_are_told_by_the_changes,
);

async fn the_record_has_all_its_fields(w: World) -> Result<()> {
    let full = TaskState {
        state: State::Failed,
        worker: Some("w1".into()),
        current_step: Some(2),
        timeout_at: Some(1_700_000_060_000),
        error: Some("no route".into()),
        result_ref: Some("s3://out/123".into()),
        ..pending("job_123", 1_700_000_000_000)
    };
    w.records.typed().put(KEY, &full, None).await?;
    let record = w.records.get(KEY).await?.unwrap();
    let text = |name| std::str::from_utf8(record.field(name).unwrap()).unwrap();
    for (name, value) in [
        ("state", "failed"),
        ("task_type", "email-send"),
        ("task_id", "job_123"),
        ("worker", "w1"),
        ("current_step", "2"),
        ("step_count", "3"),
        ("created_at", "1700000000000"),
        ("updated_at", "1700000000000"),
        ("timeout_at", "1700000060000"),
        ("error", "no route"),
        ("params_ref", "s3://in/123"),
        ("result_ref", "s3://out/123"),
    ] {
        assert_eq!(text(name), value, "{name}");
    }
    assert_eq!(record.fields.len(), 12);
    assert_eq!(from_record::<TaskState>(&record)?, full);
    let fresh = pending("job_123", 7);
    w.records.typed().put(KEY, &fresh, None).await?;
    assert_eq!(w.records.get(KEY).await?.unwrap().fields.len(), 8);
    assert_eq!(w.state().await?, fresh);
    Ok(())
}

async fn of_two_workers_one_claims_and_all_of_it_is_written(w: World) -> Result<()> {
    let now = w.submitted().await?;
    let claims = [
        w.records.swap(claim("w1", now)),
        w.others.swap(claim("w2", now)),
    ];
    let answers = futures::future::join_all(claims).await;
    let answers: Vec<Swapped> = answers.into_iter().collect::<Result<_>>()?;
    let won: Vec<&str> = (answers.iter().zip(["w1", "w2"]))
        .filter_map(|(answer, worker)| answer.is_done().then_some(worker))
        .collect();
    assert_eq!(won.len(), 1);
    let refused = Swapped::Refused(field("state", "pending"));
    assert!(answers.contains(&refused), "{answers:?}");
    let expected = TaskState {
        state: State::Claimed,
        worker: Some(won[0].to_owned()),
        timeout_at: Some((now + STEP_TIMEOUT_MS) as u64),
        ..pending("job_123", now)
    };
    assert_eq!(w.state().await?, expected);
    Ok(())
}

async fn what_a_worker_writes_is_held_although_the_answer_is_lost(w: World) -> Result<()> {
    let now = w.submitted().await?;
    let lost = || w.plan.next(Method::Commit, Fault::ErrorAfter);
    lost();
    let held = w.held(claim("w1", now)).await?;
    assert!(!w.others.swap(claim("w2", now)).await?.is_done());
    assert_eq!(w.state().await?.worker.unwrap(), "w1");
    lost();
    let held = w.held(step("w1", held, now)).await?;
    lost();
    w.held(complete("w1", held, now)).await?;
    let state = w.state().await?;
    let expected = (State::Completed, Some(1));
    assert_eq!((state.state, state.current_step), expected);
    Ok(())
}

async fn a_step_needs_the_worker_and_is_taken_once(w: World) -> Result<()> {
    let (now, held) = w.running("w1").await?;
    let foreign = w.records.swap(step("w2", held, now)).await?;
    assert_eq!(foreign, Swapped::Refused(field("worker", "w2")));
    let later = now + 1_000;
    w.held(step("w1", held, later)).await?;
    w.refuses([step("w1", held, later)], held).await?;
    let state = w.state().await?;
    assert_eq!((state.state, state.current_step), (State::Running, Some(2)));
    assert_eq!(state.updated_at, later as u64);
    assert_eq!(state.timeout_at, Some((later + STEP_TIMEOUT_MS) as u64));
    Ok(())
}

async fn completion_needs_the_worker_and_clears_the_timeout(w: World) -> Result<()> {
    let (now, held) = w.running("w1").await?;
    let foreign = w.records.swap(complete("w2", held, now)).await?;
    assert_eq!(foreign, Swapped::Refused(field("worker", "w2")));
    assert_eq!(w.state().await?.state, State::Running);
    w.held(complete("w1", held, now)).await?;
    let state = w.state().await?;
    assert_eq!((state.state, state.timeout_at), (State::Completed, None));
    assert_eq!(state.result_ref.unwrap(), "s3://out/123");
    Ok(())
}

/// The worker stays the same in the record, so that it is the revision alone that keeps its late writes out.
async fn what_has_ended_is_not_begun_again(w: World) -> Result<()> {
    for end in State::ALL.into_iter().filter(|state| state.has_ended()) {
        let (now, held) = w.running("w1").await?;
        match end {
            State::Completed => drop(w.held(complete("w1", held, now)).await?),
            State::Failed => drop(w.held(fail("w1", held, now)).await?),
            _ => assert!(cancel(&w.others, now).await?),
        }
        let state = w.state().await?;
        assert_eq!((state.state, state.timeout_at), (end, None));
        assert_eq!(state.worker.as_deref(), Some("w1"));
        w.refuses(writes("w1", held, now + 1), held).await?;
        assert!(!cancel(&w.others, now + 1).await?);
        assert_eq!(w.state().await?.state, end);
    }
    Ok(())
}

async fn an_operator_cancels_before_a_step_that_is_on_its_way(w: World) -> Result<()> {
    for write in 0..3 {
        let (now, held) = w.running("w1").await?;
        let others = w.others.clone();
        w.spy.before(Method::Commit, move || {
            let others = others.clone();
            async move { assert!(cancel(&others, now).await.unwrap()) }.boxed()
        });
        let late = writes("w1", held, now)[write].clone();
        assert_eq!(w.records.swap(late).await?, Swapped::Refused(at(held)));
        let state = w.state().await?;
        assert_eq!((state.state, state.timeout_at), (State::Cancelled, None));
        assert_eq!(state.current_step, Some(1));
    }
    Ok(())
}

async fn an_operator_cancels_after_a_step_that_came_first(w: World) -> Result<()> {
    let (now, held) = w.running("w1").await?;
    // The operator has read it, and the step is written before it is cancelled.
    let world = w.clone();
    let (holds, held_then) = std::sync::mpsc::channel();
    w.spy.before(Method::Commit, move || {
        let (world, holds) = (world.clone(), holds.clone());
        async move {
            match world.others.swap(step("w1", held, now)).await.unwrap() {
                Swapped::Done(Some(revision)) => holds.send(revision).unwrap(),
                refused => panic!("{refused:?}"),
            }
        }
        .boxed()
    });
    assert!(w.drive(cancel(&w.records, now)).await?);
    let state = w.state().await?;
    assert_eq!((state.state, state.timeout_at), (State::Cancelled, None));
    assert_eq!(state.current_step, Some(2), "the step was taken before");
    let held = held_then.try_recv().unwrap();
    w.refuses(writes("w1", held, now), held).await
}

async fn who_renews_the_time_to_live_holds_what_that_has_left(w: World) -> Result<()> {
    let (now, held) = w.running("w1").await?;
    let renewed = step("w1", held, now).touch(Some(MINUTE));
    let held = w.held(renewed).await?;
    assert_eq!(w.others.get(KEY).await?.unwrap().revision, held);
    assert_eq!(w.others.ttl(KEY).await?, Some(MINUTE));
    // Whoever else renews it takes it away.
    let taken = w.others.touch(KEY, 2 * MINUTE).await?;
    w.refuses(writes("w1", held, now), held).await?;
    w.held(step("w1", taken, now)).await?;
    Ok(())
}

/// What others were told of a job by messages, they are told by its changes: none is lost between a write and its
/// message.
async fn progress_and_the_end_are_told_by_the_changes(w: World) -> Result<()> {
    let mut watch = w.others.watch("gbe.state.tasks.email-send.")?;
    let begun = watch.next().await?;
    assert!(matches!(begun, WatchEvent::ReplayComplete { .. }));
    let (now, held) = w.running("w1").await?;
    let held = w.held(step("w1", held, now)).await?;
    w.held(complete("w1", held, now)).await?;
    let mut told = Vec::new();
    while told
        .last()
        .is_none_or(|(state, _)| *state != State::Completed)
    {
        match watch.next().await? {
            WatchEvent::Put { record, .. } => {
                let task: TaskState = from_record(&record)?;
                told.push((task.state, task.current_step));
            }
            other => panic!("{other:?}"),
        }
    }
    let expected = [
        (State::Pending, None),
        (State::Claimed, None),
        (State::Running, Some(1)),
        (State::Running, Some(2)),
        (State::Completed, Some(2)),
    ];
    assert_eq!(told, expected);
    Ok(())
}
