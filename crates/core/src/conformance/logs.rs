//! Logs: lines of the current holder, in the order they were appended.

use std::time::Duration;

use bytes::Bytes;

use crate::conformance::act::overtaken;
use crate::conformance::world::{LEASE, World, complete, fail, holder, invalid, lost, name};
use crate::conformance::writes::{log, settle};
use crate::error::{Lost, NotFound, Result};
use crate::ids::{LineId, TaskId};
use crate::log::{ExecutionStep, Level, Line, NewLine};
use crate::names::Key;
use crate::record::fields;
use crate::store::{Commit, Cursor, LogPage, Logs, Outcome, Put, Start, StoreExt, Write};
use crate::task::{Holder, Status};

cases!["logs":
    lines_are_kept_in_the_order_they_were_appended,
    a_line_carries_the_fence_of_its_attempt_and_the_time_of_the_store,
    only_lines_of_at_least_the_level_are_answered,
    pages_follow_each_other_without_gap_or_repeat,
    a_reader_who_came_before_the_first_line_follows_from_there,
    a_line_with_the_same_id_is_stored_once_for_each_task,
    a_line_is_stored_whole,
    a_stale_holder_appends_nothing,
    a_lease_that_ran_out_still_appends_until_it_is_expired,
    an_unknown_task_has_no_lines,
    lines_go_with_the_task_and_do_not_return_with_its_id,
    lines_are_not_in_the_history_and_do_not_change_the_task,
    lines_and_the_end_of_the_attempt_are_one_commit,
    a_cursor_of_nobody_is_invalid,
];

fn line(w: &World, level: Level, message: &str) -> NewLine {
    NewLine::new(w.ids.line(), level, message)
}

async fn say(w: &World, held: &Holder, messages: &[&str]) -> Result<()> {
    let lines: Vec<NewLine> = (messages.iter())
        .map(|message| line(w, Level::Info, message))
        .collect();
    let outcome = w.store.write(log(held, &lines)).await?;
    assert_eq!(outcome, Outcome::Logged);
    Ok(())
}

async fn page(
    w: &World,
    task: TaskId,
    level: Level,
    cursor: Option<Cursor>,
    limit: usize,
) -> Result<LogPage> {
    let logs = Logs {
        task,
        level,
        cursor,
        limit,
    };
    w.store.logs(logs).await
}

/// Every line of this level from the cursor on, read in pages of two, and where to go on.
async fn follow(
    w: &World,
    task: TaskId,
    level: Level,
    mut cursor: Option<Cursor>,
) -> Result<(Vec<Line>, Cursor)> {
    let mut lines = Vec::new();
    loop {
        let page = page(w, task, level, cursor, 2).await?;
        assert!(page.lines.len() <= 2, "more than asked: {page:?}");
        lines.extend(page.lines);
        if !page.more {
            return Ok((lines, page.next));
        }
        cursor = Some(page.next);
    }
}

async fn messages(w: &World, task: TaskId) -> Result<Vec<String>> {
    let (lines, _) = follow(w, task, Level::Debug, None).await?;
    Ok(texts(lines))
}

fn texts(lines: Vec<Line>) -> Vec<String> {
    lines.into_iter().map(|line| line.line.message).collect()
}

async fn lines_are_kept_in_the_order_they_were_appended(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let (first, second, third) = (w.ids.line(), w.ids.line(), w.ids.line());
    let of = |id: LineId, message: &str| NewLine::new(id, Level::Info, message);
    // Neither ids nor times give this order: only the appends do.
    let lines = [of(third, "a"), of(first, "b")];
    w.store.write(log(&held, &lines)).await?;
    w.store.write(log(&held, &[of(second, "c")])).await?;
    say(&w, &held, &["d", "e"]).await?;
    assert_eq!(messages(&w, task.id()).await?, ["a", "b", "c", "d", "e"]);
    Ok(())
}

async fn a_line_carries_the_fence_of_its_attempt_and_the_time_of_the_store(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let mut expected = Vec::new();
    let mut held = held;
    for message in ["first attempt", "second attempt"] {
        w.advance(Duration::from_secs(1));
        let line = line(&w, Level::Info, message);
        expected.push(Line {
            line: line.clone(),
            fence: held.fence,
            at: w.now(),
        });
        w.store.write(log(&held, &[line])).await?;
        w.store.settle(held, fail("once more")).await?;
        w.advance(Duration::from_secs(60));
        w.sweep().await?;
        held = holder(&w.claim(&w.worker("next")?, 1).await?[0]);
    }
    assert!(expected[0].fence < expected[1].fence);
    let (lines, _) = follow(&w, task.id(), Level::Debug, None).await?;
    assert_eq!(lines, expected);
    Ok(())
}

async fn only_lines_of_at_least_the_level_are_answered(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let levels = [Level::Debug, Level::Error, Level::Info, Level::Warn];
    let lines: Vec<NewLine> = (levels.iter().cycle().take(12))
        .map(|level| line(&w, *level, &format!("{level:?}")))
        .collect();
    w.store.write(log(&held, &lines)).await?;
    for level in levels {
        let expected: Vec<&NewLine> = lines.iter().filter(|line| line.level >= level).collect();
        let (found, _) = follow(&w, task.id(), level, None).await?;
        let found: Vec<&NewLine> = found.iter().map(|line| &line.line).collect();
        assert_eq!(found, expected, "of at least {level:?}");
    }
    Ok(())
}

async fn pages_follow_each_other_without_gap_or_repeat(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    say(&w, &held, &["1", "2", "3", "4", "5"]).await?;
    let first = page(&w, task.id(), Level::Debug, None, 3).await?;
    assert!(first.more);
    assert_eq!(texts(first.lines), ["1", "2", "3"]);
    let again = Some(first.next.clone());
    say(&w, &held, &["6"]).await?;
    let (lines, next) = follow(&w, task.id(), Level::Debug, Some(first.next)).await?;
    assert_eq!(texts(lines), ["4", "5", "6"]);
    let (lines, next) = follow(&w, task.id(), Level::Debug, Some(next)).await?;
    assert_eq!(lines, []);
    say(&w, &held, &["7", "8", "9"]).await?;
    let warning = [line(&w, Level::Warn, "10")];
    w.store.write(log(&held, &warning)).await?;
    let (lines, _) = follow(&w, task.id(), Level::Warn, Some(next.clone())).await?;
    assert_eq!(texts(lines), ["10"]);
    let (lines, _) = follow(&w, task.id(), Level::Debug, Some(next)).await?;
    assert_eq!(texts(lines), ["7", "8", "9", "10"]);
    let (lines, _) = follow(&w, task.id(), Level::Debug, again).await?;
    assert_eq!(texts(lines), ["4", "5", "6", "7", "8", "9", "10"]);
    Ok(())
}

async fn a_reader_who_came_before_the_first_line_follows_from_there(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let empty = page(&w, task.id(), Level::Debug, None, 10).await?;
    assert!(!empty.more);
    assert_eq!(empty.lines, []);
    say(&w, &held, &["1", "2"]).await?;
    let (lines, _) = follow(&w, task.id(), Level::Debug, Some(empty.next)).await?;
    assert_eq!(texts(lines), ["1", "2"]);
    Ok(())
}

async fn a_line_with_the_same_id_is_stored_once_for_each_task(w: World) -> Result<()> {
    let (one, held) = w.claimed(w.new_task("one")).await?;
    let (two, other) = w.claimed(w.new_task("two")).await?;
    let first = line(&w, Level::Info, "first");
    let changed = NewLine::new(first.id, Level::Error, "changed");
    let last = line(&w, Level::Info, "last");
    let both = [first.clone(), changed.clone()];
    w.store.write(log(&held, &both)).await?;
    let repeat = [changed.clone(), last];
    assert_eq!(w.store.write(log(&held, &repeat)).await?, Outcome::Logged);
    assert_eq!(messages(&w, one.id()).await?, ["first", "last"]);
    w.store.write(log(&other, &[changed])).await?;
    assert_eq!(messages(&w, two.id()).await?, ["changed"]);
    Ok(())
}

async fn a_line_is_stored_whole(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let started_at = w.now();
    w.advance(Duration::from_millis(1_500));
    let whole = NewLine {
        id: w.ids.line(),
        level: Level::Warn,
        stage: Some(name("processing")?),
        message: "ffmpeg said \"no\"; %s {} \u{1f6a2}\n".into(),
        metadata: Some(Bytes::from_static(b"\x00\xff{\"a\": 1}")),
        step: Some(Box::new(ExecutionStep {
            step_id: name("transcode-1")?,
            kind: name("ffmpeg")?,
            command: Some("ffmpeg -i 'in.mp4' out.webm".into()),
            exit_code: Some(-9),
            stdout: Some(String::new()),
            stderr: Some("killed".into()),
            started_at,
            completed_at: Some(w.now()),
            duration_ms: Some(1_500),
            success: Some(false),
            error: Some("signal 9".into()),
        })),
    };
    let bare = NewLine {
        step: Some(Box::new(ExecutionStep {
            step_id: name("upload")?,
            kind: name("copy")?,
            command: None,
            exit_code: None,
            stdout: None,
            stderr: None,
            started_at,
            completed_at: None,
            duration_ms: None,
            success: None,
            error: None,
        })),
        ..line(&w, Level::Debug, "")
    };
    let lines = [whole, bare];
    w.store.write(log(&held, &lines)).await?;
    let (found, _) = follow(&w, task.id(), Level::Debug, None).await?;
    let found: Vec<NewLine> = found.into_iter().map(|line| line.line).collect();
    assert_eq!(found, lines);
    Ok(())
}

async fn a_stale_holder_appends_nothing(w: World) -> Result<()> {
    let (stale, held) = overtaken(&w).await?;
    let task = stale.task;
    let late = [line(&w, Level::Info, "late")];
    let commit = Commit::new()
        .write(Write::Put(Put::new(
            Key::new("with")?,
            fields([("a", "b")])?,
        )))
        .write(log(&held, &[line(&w, Level::Info, "with it")]))
        .write(log(&stale, &late));
    let why = lost(w.store.commit_one(commit).await);
    let holder = held.worker.clone();
    assert_eq!(why, Lost::WrongWorker { holder });
    assert_eq!(messages(&w, task).await?, Vec::<String>::new());
    assert_eq!(w.record("with").await?, None);
    w.store.settle(held.clone(), complete()).await?;
    let why = lost(w.store.write(log(&held, &late)).await);
    let status = Status::Completed;
    assert_eq!(why, Lost::Finished { status });
    assert_eq!(messages(&w, task).await?, Vec::<String>::new());
    let nobody = Holder {
        task: w.ids.task(),
        ..held
    };
    assert_eq!(lost(w.store.write(log(&nobody, &late)).await), Lost::Gone);
    Ok(())
}

async fn a_lease_that_ran_out_still_appends_until_it_is_expired(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    w.store.cancel(task.id(), None).await?;
    w.advance(LEASE * 2);
    say(&w, &held, &["late but mine"]).await?;
    w.sweep().await?;
    let late = [line(&w, Level::Info, "too late")];
    let why = lost(w.store.write(log(&held, &late)).await);
    let status = Status::Cancelled;
    assert_eq!(why, Lost::Finished { status });
    assert_eq!(messages(&w, task.id()).await?, ["late but mine"]);
    Ok(())
}

async fn an_unknown_task_has_no_lines(w: World) -> Result<()> {
    let (_, held) = w.claimed(w.new_task("another")).await?;
    say(&w, &held, &["of another"]).await?;
    let none = page(&w, w.ids.task(), Level::Debug, None, 10).await?;
    assert_eq!((none.lines, none.more), (Vec::new(), false));
    Ok(())
}

async fn lines_go_with_the_task_and_do_not_return_with_its_id(w: World) -> Result<()> {
    let new = w.new_task("work");
    let (task, held) = w.claimed(new.clone()).await?;
    let kept = line(&w, Level::Info, "kept");
    w.store
        .write(log(&held, std::slice::from_ref(&kept)))
        .await?;
    w.store.settle(held, complete()).await?;
    assert_eq!(messages(&w, task.id()).await?, ["kept"]);
    w.store.write(Write::DeleteTask(task.id())).await?;
    assert_eq!(messages(&w, task.id()).await?, Vec::<String>::new());
    let (_, held) = w.claimed(new).await?;
    assert_eq!(messages(&w, task.id()).await?, Vec::<String>::new());
    w.store.write(log(&held, &[kept])).await?;
    assert_eq!(messages(&w, task.id()).await?, ["kept"]);
    Ok(())
}

async fn lines_are_not_in_the_history_and_do_not_change_the_task(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let before = w.history().await?.next;
    w.advance(Duration::from_secs(1));
    let commit = Commit::of(log(&held, &[line(&w, Level::Error, "loud")]));
    let receipt = w.store.commit_one(commit).await?;
    assert_eq!(receipt.outcomes, [Outcome::Logged]);
    assert_eq!((receipt.position, receipt.repeated), (None, false));
    assert_eq!(w.history_from(Start::After(before)).await?.entries, []);
    assert_eq!(w.task(task.id()).await?, task);
    Ok(())
}

async fn lines_and_the_end_of_the_attempt_are_one_commit(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let settle = settle(&held, complete());
    let log = log(&held, &[line(&w, Level::Info, "done")]);
    let refused = Commit::of(log.clone())
        .write(settle.clone())
        .write(Write::Touch(Key::new("missing")?, None));
    let error = w.store.commit_one(refused).await;
    assert_eq!(error, Err(NotFound::Record(Key::new("missing")?).into()));
    let too_late = Commit::of(settle.clone()).write(log.clone());
    let status = Status::Completed;
    assert_eq!(
        lost(w.store.commit_one(too_late).await),
        Lost::Finished { status }
    );
    assert_eq!(messages(&w, task.id()).await?, Vec::<String>::new());
    assert_eq!(w.task(task.id()).await?, task);
    let both = Commit::of(log).write(settle).id(w.ids.commit());
    assert!(!w.store.commit_one(both.clone()).await?.repeated);
    assert!(w.store.commit_one(both).await?.repeated);
    assert_eq!(messages(&w, task.id()).await?, ["done"]);
    assert_eq!(w.status(task.id()).await?, status);
    Ok(())
}

async fn a_cursor_of_nobody_is_invalid(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    say(&w, &held, &["1"]).await?;
    let cursor = Some(Cursor::from_text("made by nobody"));
    let answer = page(&w, task.id(), Level::Debug, cursor, 10).await;
    assert_eq!(invalid(answer).field, "cursor");
    Ok(())
}
