//! Lifecycles: a holder moves its task along the stages, and no other way.

use crate::conformance::observe::lines;
use crate::conformance::world::{
    RETRY_DELAY, World, complete, conflict, fail, fail_with, holder, invalid, lost, name,
};
use crate::conformance::writes::{cancel, log, retry, settle};
use crate::error::{Conflict, Error, Lost, Result};
use crate::ids::{Fence, TaskId};
use crate::lifecycle::{Lifecycle, Phase};
use crate::log::{Level, NewLine};
use crate::store::{Amend, Commit, Ending, FailRetry, StoreExt, Write};
use crate::task::{Holder, NewTask, Status, Task};

cases!["lifecycles":
    every_pair_of_phases_is_moved_or_refused_as_the_table_says,
    a_refusal_names_where_the_task_is_and_where_it_may_go,
    a_claim_begins_in_the_first_stage_each_time,
    the_same_stage_again_is_no_move,
    moves_and_the_end_of_the_attempt_are_one_commit,
    an_illegal_move_undoes_its_whole_commit,
    a_success_in_the_wrong_stage_is_refused_also_while_cancelling,
    a_stale_holder_moves_nothing,
    without_a_lifecycle_every_stage_may_follow_every_other,
    a_task_submitted_by_the_store_has_its_lifecycle,
    a_line_carries_the_stage_its_task_was_in,
    a_first_stage_beside_a_lifecycle_is_invalid,
];

const STAGES: [&str; 5] = [
    "validating",
    "planning",
    "downloading_inputs",
    "processing",
    "uploading_outputs",
];

/// The nine states of a media pipeline, and where each may go.
const TABLE: [(&str, &[&str]); 9] = [
    ("pending", &["validating", "cancelled"]),
    ("validating", &["planning", "failed", "cancelled"]),
    ("planning", &["downloading_inputs", "failed", "cancelled"]),
    ("downloading_inputs", &["processing", "failed", "cancelled"]),
    ("processing", &["uploading_outputs", "failed", "cancelled"]),
    ("uploading_outputs", &["completed", "failed", "cancelled"]),
    ("completed", &[]),
    ("failed", &["pending"]),
    ("cancelled", &[]),
];

fn media(w: &World) -> Result<NewTask> {
    Ok(w.new_task("clip").lifecycle(Lifecycle::row(STAGES)?))
}

fn to_stage(held: &Holder, stage: &str) -> Result<Write> {
    Ok(Write::Amend(Box::new(Amend {
        stage: Some(name(stage)?),
        ..Amend::new(held.clone())
    })))
}

/// A claimed task that has been moved along to this stage.
async fn at_stage(w: &World, stage: &str) -> Result<(Task, Holder)> {
    let (task, held) = w.claimed(media(w)?).await?;
    let along = STAGES.iter().skip(1);
    let end = STAGES.iter().position(|one| *one == stage).unwrap_or(0);
    for next in along.take(end) {
        w.store.write(to_stage(&held, next)?).await?;
    }
    Ok((w.task(task.id()).await?, held))
}

/// A task in this state, and what its holder shows: of a task that nobody holds, an older fence.
async fn in_state(w: &World, state: &str) -> Result<(Task, Holder)> {
    let (id, held) = match state {
        "pending" => {
            let task = w.submit(media(w)?).await?;
            let (worker, fence) = (w.worker("nobody")?, Fence::ZERO);
            let task = task.id();
            return Ok((
                w.task(task).await?,
                Holder {
                    task,
                    worker,
                    fence,
                },
            ));
        }
        "completed" => {
            let (task, held) = at_stage(w, "uploading_outputs").await?;
            w.store.settle(held.clone(), complete()).await?;
            (task.id(), held)
        }
        "failed" => {
            let (task, held) = at_stage(w, "validating").await?;
            let no = fail_with("no", FailRetry::Fatal);
            w.store.settle(held.clone(), no).await?;
            (task.id(), held)
        }
        "cancelled" => {
            let (task, held) = at_stage(w, "validating").await?;
            let stop = Ending::Cancel { reason: None };
            w.store.settle(held.clone(), stop).await?;
            (task.id(), held)
        }
        stage => return at_stage(w, stage).await,
    };
    let fence = Fence::ZERO;
    Ok((w.task(id).await?, Holder { fence, ..held }))
}

/// Does what leads to a state. Whether it was refused does not matter: the task tells.
async fn go(w: &World, task: &Task, held: &Holder, to: &str) -> Result<()> {
    let claimed = task.status == Status::Claimed;
    let write = match to {
        "pending" if !claimed => retry(task.id(), false),
        "validating" if !claimed => {
            w.claim_ids(&w.worker("w")?, &[task.id()]).await?;
            return Ok(());
        }
        "completed" => settle(held, complete()),
        "failed" => settle(held, fail_with("no", FailRetry::Fatal)),
        "cancelled" if claimed => settle(held, Ending::Cancel { reason: None }),
        "cancelled" => cancel(task.id(), "no"),
        stage => to_stage(held, stage)?,
    };
    match w.write_with_id(write).await {
        Ok(_) => Ok(()),
        Err(Error::Conflict(_) | Error::LeaseLost(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn state(task: &Task) -> String {
    Phase::of(task).map_or_else(String::new, |phase| phase.to_string())
}

async fn every_pair_of_phases_is_moved_or_refused_as_the_table_says(w: World) -> Result<()> {
    for (from, allowed) in TABLE {
        for (to, _) in TABLE {
            let (before, held) = in_state(&w, from).await?;
            assert_eq!(state(&before), from);
            go(&w, &before, &held, to).await?;
            let after = w.task(before.id()).await?;
            if allowed.contains(&to) {
                assert_eq!(state(&after), to, "from {from}");
            } else if from == to {
                assert_eq!(state(&after), from, "once more");
            } else {
                assert_eq!(after, before, "from {from} to {to}");
            }
            assert_eq!(after.violations(), [], "from {from} to {to}");
            let since = after.violations_since(&before);
            assert_eq!(since, [], "from {from} to {to}");
        }
    }
    Ok(())
}

async fn a_refusal_names_where_the_task_is_and_where_it_may_go(w: World) -> Result<()> {
    let (task, held) = at_stage(&w, "planning").await?;
    let stage = |text| name(text).map(Phase::Stage);
    let refused = |to, allowed| Conflict::MoveNotAllowed {
        task: task.id(),
        from: Phase::Stage(task.stage.clone().expect("a stage")),
        to,
        allowed,
    };
    let allowed = vec![
        stage("downloading_inputs")?,
        Phase::Failed,
        Phase::Cancelled,
    ];
    let back = w.store.write(to_stage(&held, "validating")?).await;
    let expected = refused(stage("validating")?, allowed.clone());
    assert_eq!(conflict(back), expected);
    let unknown = w.store.write(to_stage(&held, "dreaming")?).await;
    let expected = refused(stage("dreaming")?, allowed.clone());
    assert_eq!(conflict(unknown), expected);
    let done = w.store.settle(held, complete()).await;
    assert_eq!(conflict(done), refused(Phase::Completed, allowed));
    assert_eq!(w.task(task.id()).await?, task);
    Ok(())
}

async fn a_claim_begins_in_the_first_stage_each_time(w: World) -> Result<()> {
    let (task, held) = at_stage(&w, "processing").await?;
    w.store.settle(held, fail("again")).await?;
    w.advance(RETRY_DELAY);
    w.sweep().await?;
    assert_eq!(w.task(task.id()).await?.stage, None);
    let again = w.claim(&w.worker("second")?, 1).await?.remove(0);
    assert_eq!(again.stage, Some(name("validating")?));
    let release = Ending::Release { reason: None };
    w.store.settle(holder(&again), release).await?;
    assert_eq!(w.task(task.id()).await?.stage, None);
    let third = w.claim(&w.worker("third")?, 1).await?.remove(0);
    assert_eq!(third.stage, Some(name("validating")?));
    Ok(())
}

async fn the_same_stage_again_is_no_move(w: World) -> Result<()> {
    let (task, held) = at_stage(&w, "planning").await?;
    // As after a lost reply: without a commit id, too.
    w.store.write(to_stage(&held, "planning")?).await?;
    assert_eq!(w.task(task.id()).await?.stage, Some(name("planning")?));
    Ok(())
}

async fn moves_and_the_end_of_the_attempt_are_one_commit(w: World) -> Result<()> {
    let (task, held) = at_stage(&w, "downloading_inputs").await?;
    let commit = Commit::new()
        .write(to_stage(&held, "processing")?)
        .write(to_stage(&held, "uploading_outputs")?)
        .write(settle(&held, complete()));
    w.commit_with_id(commit).await?;
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    Ok(())
}

async fn an_illegal_move_undoes_its_whole_commit(w: World) -> Result<()> {
    let (task, held) = at_stage(&w, "planning").await?;
    let commit = Commit::new()
        .write(to_stage(&held, "downloading_inputs")?)
        .write(settle(&held, complete()));
    let refused = conflict(w.commit_with_id(commit).await);
    assert!(matches!(refused, Conflict::MoveNotAllowed { .. }));
    assert_eq!(w.task(task.id()).await?, task);
    Ok(())
}

async fn a_success_in_the_wrong_stage_is_refused_also_while_cancelling(w: World) -> Result<()> {
    let (task, held) = at_stage(&w, "planning").await?;
    w.store.cancel(task.id(), None).await?;
    let refused = conflict(w.store.settle(held.clone(), complete()).await);
    assert!(matches!(refused, Conflict::MoveNotAllowed { .. }));
    w.store.settle(held, fail("too early")).await?;
    assert_eq!(w.status(task.id()).await?, Status::Cancelled);
    Ok(())
}

async fn a_stale_holder_moves_nothing(w: World) -> Result<()> {
    let (task, held) = at_stage(&w, "planning").await?;
    let release = Ending::Release { reason: None };
    w.store.settle(held.clone(), release).await?;
    let status = Status::Pending;
    // It is told that it does not hold the task, also of moves that are not allowed.
    for stage in ["validating", "downloading_inputs", "dreaming"] {
        let answer = w.store.write(to_stage(&held, stage)?).await;
        assert_eq!(lost(answer), Lost::NotClaimed { status }, "{stage}");
    }
    let again = w.claim(&w.worker("second")?, 1).await?.remove(0);
    let answer = w.store.write(to_stage(&held, "planning")?).await;
    assert!(matches!(lost(answer), Lost::WrongWorker { .. }));
    assert_eq!(w.task(task.id()).await?, again);
    Ok(())
}

async fn without_a_lifecycle_every_stage_may_follow_every_other(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("free")).await?;
    for stage in ["b", "a", "b", "pending"] {
        w.store.write(to_stage(&held, stage)?).await?;
        assert_eq!(w.task(task.id()).await?.stage, Some(name(stage)?));
    }
    w.store.settle(held, complete()).await?;
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    Ok(())
}

async fn a_task_submitted_by_the_store_has_its_lifecycle(w: World) -> Result<()> {
    let alarm = media(&w)?;
    let (_, held) = w.claimed(media(&w)?.on_failure(alarm.clone())).await?;
    let no = fail_with("no", FailRetry::Fatal);
    w.store.settle(held, no).await?;
    assert_eq!(w.task(alarm.id).await?.spec.lifecycle, alarm.lifecycle);
    let claimed = w.claim_ids(&w.worker("w")?, &[alarm.id]).await?.tasks;
    assert_eq!(claimed[0].stage, Some(name("validating")?));
    Ok(())
}

async fn stages_of_lines(w: &World, task: TaskId) -> Result<Vec<(String, Option<String>)>> {
    let lines = lines(w, task).await?.into_iter();
    Ok(lines
        .map(|line| (line.line.message, line.line.stage.map(String::from)))
        .collect())
}

async fn a_line_carries_the_stage_its_task_was_in(w: World) -> Result<()> {
    let (task, held) = w.claimed(media(&w)?).await?;
    let line = |text: &str| NewLine::new(w.ids.line(), Level::Info, text);
    let own = NewLine {
        stage: Some(name("elsewhere")?),
        ..line("its own")
    };
    let commit = Commit::new()
        .write(log(&held, &[line("before"), own]))
        .write(to_stage(&held, "planning")?)
        .write(log(&held, &[line("after")]));
    w.commit_with_id(commit).await?;
    let expected = [
        ("before", "validating"),
        ("its own", "elsewhere"),
        ("after", "planning"),
    ];
    let expected = expected.map(|(text, stage)| (text.to_owned(), Some(stage.to_owned())));
    assert_eq!(stages_of_lines(&w, task.id()).await?, expected);
    let (free, held) = w.claimed(w.new_task("free")).await?;
    w.store.write(log(&held, &[line("none")])).await?;
    let expected = [("none".to_owned(), None)];
    assert_eq!(stages_of_lines(&w, free.id()).await?, expected);
    Ok(())
}

async fn a_first_stage_beside_a_lifecycle_is_invalid(w: World) -> Result<()> {
    let both = media(&w)?.first_stage(name("planning")?);
    let id = both.id;
    let refused = invalid(w.store.submit(both).await);
    assert!(refused.field.ends_with("first_stage"), "{refused}");
    assert_eq!(w.store.task(id).await?, None);
    Ok(())
}
