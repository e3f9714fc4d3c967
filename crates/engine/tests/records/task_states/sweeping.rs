//! What a sweeper finds, resets and puts in the queue again, and what is left to the worker that had it.

use futures::{FutureExt, TryStreamExt};
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::record::Record;
use plimsoll_core::store::{List, Selector};
use plimsoll_core::task::{Lane, Status};
use plimsoll_core::{Result, Revision};
use plimsoll_engine::Records;
use plimsoll_engine::records::{Scan, Swapped};

use super::{
    STEP_TIMEOUT_MS, STUCK_MS, State, TASKS, TaskState, at, claim, complete, field, pending, reset,
    step, writes,
};
use crate::world::{World, on_each_store};

on_each_store!(
    the_sweeper_finds_what_is_stuck_and_nothing_else,
    the_index_finds_the_same_and_holds_nothing_that_has_ended,
    the_sweeper_does_not_reset_who_moved_meanwhile,
    of_two_sweepers_one_resets,
    a_job_that_waits_behind_others_is_in_the_queue_once,
    a_worker_that_was_swept_can_write_nothing_more,
    a_worker_that_claims_again_is_kept_apart_from_its_earlier_self,
);

/// The document's question: what is not in a terminal state and was not updated for long.
async fn stuck(records: &Records, now: i64) -> Result<Vec<Record>> {
    open_and_old(records.scan(TASKS), now).await
}

/// The same, of those alone whose time is up. That is fewer to read, and no other answer, as long as no job is given more
/// time than it takes to be stuck.
async fn overdue(records: &Records, now: i64) -> Result<Vec<Record>> {
    open_and_old(records.scan(TASKS).range("timeout_at", ..now), now).await
}

async fn open_and_old(scan: Scan, now: i64) -> Result<Vec<Record>> {
    let old = scan.lt("updated_at", now - STUCK_MS);
    let stuck = old.ne("state", "completed").ne("state", "failed");
    stuck.ne("state", "cancelled").stream().try_collect().await
}

/// In each state one that is just old enough to be stuck, and one that is not.
async fn of_each_state_and_age(w: &World, now: i64) -> Result<()> {
    for (n, state) in State::ALL.into_iter().enumerate() {
        for (age, at) in [("old", now - STUCK_MS - 1), ("young", now - STUCK_MS)] {
            let timeout_at = (!state.has_ended()).then_some((at + STEP_TIMEOUT_MS) as u64);
            let task = TaskState {
                state,
                timeout_at,
                ..pending(&format!("{n}"), at)
            };
            let key = format!("{TASKS}email-send.{n}-{age}");
            w.others.typed().put(key, &task, None).await?;
        }
    }
    let other = pending("x", 0);
    w.others
        .typed()
        .put("gbe.state.other.x", &other, None)
        .await?;
    Ok(())
}

/// The ends of their keys, in order.
fn ids(records: &[Record]) -> Vec<&str> {
    let ids = records.iter().map(|record| record.key.as_str());
    let mut ids: Vec<_> = ids.map(|key| key.rsplit('.').next().unwrap()).collect();
    ids.sort_unstable();
    ids
}

async fn the_sweeper_finds_what_is_stuck_and_nothing_else(w: World) -> Result<()> {
    let now = w.now().await?;
    of_each_state_and_age(&w, now).await?;
    let found = stuck(&w.records, now).await?;
    assert_eq!(ids(&found), ["0-old", "1-old", "2-old"]);
    for record in found {
        assert!(w.records.swap(reset(&w, &record, now)?).await?.is_done());
    }
    assert!(stuck(&w.records, now).await?.is_empty());
    Ok(())
}

async fn the_index_finds_the_same_and_holds_nothing_that_has_ended(w: World) -> Result<()> {
    const ENDED: usize = 50;
    let now = w.now().await?;
    w.records.declare_index(TASKS, "timeout_at").await?;
    of_each_state_and_age(&w, now).await?;
    let states = w.others.typed::<TaskState>();
    for n in 0..ENDED {
        let (key, at) = (format!("{TASKS}letter.{n}"), now - 2 * STUCK_MS);
        states.put(&key, &pending("x", at), None).await?;
        let end = |task: Option<TaskState>| {
            Some(TaskState {
                state: State::Completed,
                timeout_at: None,
                ..task?
            })
        };
        assert!(states.update(&key, end).await?.is_some());
    }
    let (begun, held) = w.running("w1").await?;
    let range = || w.records.scan(TASKS).range("timeout_at", ..);
    let all = range().page_size(10).page(None).await?;
    let open = [
        "0-old", "0-young", "1-old", "1-young", "2-old", "2-young", "job_123",
    ];
    assert_eq!((ids(&all.rows), all.next), (open.to_vec(), None));

    let found = overdue(&w.records, now).await?;
    assert_eq!(ids(&found), ["0-old", "1-old", "2-old"]);
    assert_eq!(ids(&found), ids(&stuck(&w.records, now).await?));
    // What is reset is not overdue for a while, and is still held.
    for record in found {
        assert!(w.records.swap(reset(&w, &record, now)?).await?.is_done());
    }
    assert_eq!(overdue(&w.records, now).await?, []);
    let open_then: Vec<Record> = range().stream().try_collect().await?;
    assert_eq!(ids(&open_then), open);
    w.held(complete("w1", held, begun)).await?;
    let open_then: Vec<Record> = range().stream().try_collect().await?;
    assert_eq!(ids(&open_then), open[..6]);
    Ok(())
}

async fn the_sweeper_does_not_reset_who_moved_meanwhile(w: World) -> Result<()> {
    let (begun, held) = w.running("w1").await?;
    let now = begun + STUCK_MS + 1;
    let found = stuck(&w.records, now).await?.pop().unwrap();
    // The sweeper's commit is on its way when the worker wakes up.
    let others = w.others.clone();
    w.spy.before(Method::Commit, move || {
        let others = others.clone();
        async move {
            let step = others.swap(step("w1", held, now)).await.unwrap();
            assert!(step.is_done());
        }
        .boxed()
    });
    let answer = w.records.swap(reset(&w, &found, now)?).await?;
    assert_eq!(answer, Swapped::Refused(at(found.revision)));
    let state = w.state().await?;
    assert_eq!((state.state, state.current_step), (State::Running, Some(2)));
    assert_eq!(state.worker.unwrap(), "w1");
    assert_eq!(w.queued().await?, 0);
    Ok(())
}

async fn of_two_sweepers_one_resets(w: World) -> Result<()> {
    let now = w.running("w1").await?.0 + STUCK_MS + 1;
    let mut resets = 0;
    let found = [stuck(&w.records, now).await?, stuck(&w.others, now).await?];
    for record in found.concat() {
        w.plan.next(Method::Commit, Fault::ErrorAfter);
        let reset = w.records.swap(reset(&w, &record, now)?).await?;
        resets += u32::from(reset.is_done());
    }
    assert_eq!(resets, 1);
    assert_eq!(w.queued().await?, 1, "it is in the queue again, once");
    Ok(())
}

/// Nobody has come to it yet, so that it is found stuck again and again. Its task is still the same.
async fn a_job_that_waits_behind_others_is_in_the_queue_once(w: World) -> Result<()> {
    let mut now = w.submitted().await?;
    for _ in 0..3 {
        now += STUCK_MS + 1;
        let found = stuck(&w.records, now).await?.pop().unwrap();
        assert!(w.records.swap(reset(&w, &found, now)?).await?.is_done());
        assert_eq!(w.queued().await?, 1);
    }
    // A task that has ended does not stand for it any more.
    let waiting = Selector::Lane(Lane::new("email", "send")?, Status::Pending);
    let waiting = w.bare.list(List::new(waiting, 10)).await?.rows;
    w.tasks.cancel(waiting[0].id(), None).await?;
    assert_eq!(w.queued().await?, 0);
    now += STUCK_MS + 1;
    let found = stuck(&w.records, now).await?.pop().unwrap();
    assert!(w.records.swap(reset(&w, &found, now)?).await?.is_done());
    assert_eq!(w.queued().await?, 1);
    Ok(())
}

/// Now, after the job was taken from its worker, and what that one believes to hold.
async fn swept(w: &World, worker: &str) -> Result<(i64, Revision)> {
    let (begun, frozen) = w.running(worker).await?;
    let now = begun + STUCK_MS + 1;
    let found = stuck(&w.records, now).await?.pop().unwrap();
    assert!(w.records.swap(reset(w, &found, now)?).await?.is_done());
    Ok((now, frozen))
}

async fn a_worker_that_was_swept_can_write_nothing_more(w: World) -> Result<()> {
    let (now, frozen) = swept(&w, "w1").await?;
    let lost = Swapped::Refused(field("worker", "w1"));
    for late in writes("w1", frozen, now) {
        assert_eq!(w.records.swap(late).await?, lost);
    }
    let state = w.state().await?;
    assert_eq!((state.state, state.worker), (State::Pending, None));
    assert!(w.others.swap(claim("w2", now)).await?.is_done());
    for late in writes("w1", frozen, now) {
        assert_eq!(w.records.swap(late).await?, lost);
    }
    assert_eq!(w.state().await?.worker.unwrap(), "w2");
    Ok(())
}

/// Both have the same name, as after a restart: only what they hold tells them apart.
async fn a_worker_that_claims_again_is_kept_apart_from_its_earlier_self(w: World) -> Result<()> {
    let (now, frozen) = swept(&w, "w1").await?;
    let mut held = w.held(claim("w1", now)).await?;
    for _ in 0..2 {
        w.refuses(writes("w1", frozen, now), frozen).await?;
        held = w.held(step("w1", held, now)).await?;
    }
    w.refuses(writes("w1", frozen, now), frozen).await?;
    w.held(complete("w1", held, now)).await?;
    w.refuses(writes("w1", frozen, now), frozen).await?;
    let state = w.state().await?;
    assert_eq!(
        (state.state, state.current_step),
        (State::Completed, Some(2))
    );
    Ok(())
}
