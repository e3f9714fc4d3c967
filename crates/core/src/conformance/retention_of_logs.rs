//! Retention of logs: lines go by their own age, whatever their task is.

use std::time::Duration;

use crate::conformance::observe::lines;
use crate::conformance::retention::{DAY, TICK, all_tasks, nothing_but_a_limit};
use crate::conformance::world::{World, complete, invalid};
use crate::conformance::writes::log;
use crate::error::Result;
use crate::ids::TaskId;
use crate::limits::DURATION_MAX;
use crate::log::{Level, NewLine};
use crate::store::{Compact, Compacted, Cursor, Logs, Outcome, StoreExt, Write};
use crate::task::{Holder, Status};

cases!["retention_of_logs":
    a_line_goes_exactly_when_it_is_old_enough,
    lines_go_up_to_the_limit_the_oldest_first,
    lines_of_active_and_finished_tasks_go_and_the_tasks_stay,
    lines_stay_with_their_task_unless_asked,
    a_reader_misses_no_line_after_lines_were_removed,
    a_line_appended_after_the_clock_went_back_goes_by_its_own_time,
    a_task_goes_with_its_log_however_long,
    a_long_log_is_gone_with_its_task_and_never_seen_through_its_id,
    a_line_that_was_removed_can_be_appended_again,
    logs_of_other_namespaces_stay,
    an_age_beyond_a_century_is_invalid,
];

fn logs_of_a_day() -> Compact {
    Compact {
        logs: Some(DAY),
        ..nothing_but_a_limit()
    }
}

fn removed(lines: u64) -> Compacted {
    Compacted {
        lines,
        ..Compacted::default()
    }
}

async fn say(w: &World, held: &Holder, message: &str) -> Result<()> {
    let line = NewLine::new(w.ids.line(), Level::Info, message);
    let outcome = w.store.write(log(held, &[line])).await?;
    assert_eq!(outcome, Outcome::Logged);
    Ok(())
}

async fn said(w: &World, task: TaskId) -> Result<Vec<String>> {
    let lines = lines(w, task).await?.into_iter();
    Ok(lines.map(|line| line.line.message).collect())
}

async fn a_line_goes_exactly_when_it_is_old_enough(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    say(&w, &held, "first").await?;
    w.advance(Duration::from_secs(1));
    say(&w, &held, "second").await?;
    w.advance(DAY - Duration::from_secs(1) - TICK);
    let compact = || w.store.compact(logs_of_a_day());
    assert_eq!(compact().await?, removed(0));
    assert_eq!(said(&w, task.id()).await?, ["first", "second"]);
    w.advance(TICK);
    assert_eq!(compact().await?, removed(1));
    assert_eq!(said(&w, task.id()).await?, ["second"]);
    w.advance(Duration::from_secs(1));
    assert_eq!(compact().await?, removed(1));
    assert_eq!(said(&w, task.id()).await?, [""; 0]);
    assert_eq!(compact().await?, removed(0));
    Ok(())
}

async fn lines_go_up_to_the_limit_the_oldest_first(w: World) -> Result<()> {
    let (one, of_one) = w.claimed(w.new_task("one")).await?;
    let (two, of_two) = w.claimed(w.new_task("two")).await?;
    for (held, message) in [
        (&of_two, "a"),
        (&of_one, "b"),
        (&of_two, "c"),
        (&of_one, "d"),
        (&of_two, "e"),
    ] {
        say(&w, held, message).await?;
        w.advance(Duration::from_secs(1));
    }
    w.advance(DAY);
    let compact = Compact {
        limit: 2,
        ..logs_of_a_day()
    };
    for (number, more, left_of_one, left_of_two) in [
        (2, true, &["d"][..], &["c", "e"][..]),
        (2, true, &[], &["e"]),
        (1, false, &[], &[]),
        (0, false, &[], &[]),
    ] {
        let answer = Compacted {
            more,
            ..removed(number)
        };
        assert_eq!(w.store.compact(compact.clone()).await?, answer);
        assert_eq!(said(&w, one.id()).await?, left_of_one);
        assert_eq!(said(&w, two.id()).await?, left_of_two);
    }
    say(&w, &of_one, "f").await?;
    say(&w, &of_one, "g").await?;
    w.advance(DAY);
    assert_eq!(w.store.compact(compact).await?, removed(2));
    Ok(())
}

async fn lines_of_active_and_finished_tasks_go_and_the_tasks_stay(w: World) -> Result<()> {
    let (active, of_active) = w.claimed(w.new_task("active")).await?;
    let (ended, of_ended) = w.claimed(w.new_task("ended")).await?;
    say(&w, &of_active, "of one at work").await?;
    say(&w, &of_ended, "of one that ends").await?;
    w.store.settle(of_ended, complete()).await?;
    let before = (w.task(active.id()).await?, w.task(ended.id()).await?);
    let history = w.history().await?;
    w.advance(DAY);
    assert_eq!(w.store.compact(logs_of_a_day()).await?, removed(2));
    let after = (w.task(active.id()).await?, w.task(ended.id()).await?);
    assert_eq!(after, before);
    assert_eq!(after.0.status, Status::Claimed);
    assert_eq!(w.history().await?, history);
    for task in [active.id(), ended.id()] {
        assert_eq!(lines(&w, task).await?, []);
    }
    // Lines that go with their task are not counted as lines.
    let (last, of_last) = w.claimed(w.new_task("last")).await?;
    say(&w, &of_last, "goes with its task").await?;
    w.store.settle(of_last, complete()).await?;
    w.advance(DAY);
    let both = Compact {
        logs: Some(DAY),
        ..all_tasks()
    };
    let done = w.store.compact(both).await?;
    assert_eq!((done.tasks, done.lines, done.more), (2, 0, false));
    assert_eq!(lines(&w, last.id()).await?, []);
    Ok(())
}

async fn lines_stay_with_their_task_unless_asked(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    say(&w, &held, "stays").await?;
    w.advance(DAY * 1_000);
    let compact = Compact {
        history: Some(DAY),
        groups: Some(DAY),
        ..all_tasks()
    };
    assert_eq!(w.store.compact(compact).await?.lines, 0);
    assert_eq!(said(&w, task.id()).await?, ["stays"]);
    Ok(())
}

async fn a_reader_misses_no_line_after_lines_were_removed(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let read = |cursor: Option<Cursor>, limit| {
        let logs = Logs {
            task: task.id(),
            level: Level::Debug,
            cursor,
            limit,
        };
        let page = w.store.logs(logs);
        async move {
            let page = page.await?;
            let texts = page.lines.into_iter().map(|line| line.line.message);
            Ok::<_, crate::Error>((texts.collect::<Vec<_>>(), page.next))
        }
    };
    for message in ["a", "b", "c"] {
        say(&w, &held, message).await?;
    }
    let (_, in_between) = read(None, 1).await?;
    let (read_so_far, at_the_end) = read(None, 10).await?;
    assert_eq!(read_so_far, ["a", "b", "c"]);
    w.advance(DAY);
    assert_eq!(w.store.compact(logs_of_a_day()).await?, removed(3));
    // The log is empty now, and still begins after what was read.
    let (nothing, still_at_the_end) = read(Some(at_the_end.clone()), 10).await?;
    assert_eq!(nothing, [""; 0]);
    say(&w, &held, "d").await?;
    for cursor in [
        None,
        Some(in_between),
        Some(at_the_end),
        Some(still_at_the_end),
    ] {
        let (texts, _) = read(cursor.clone(), 10).await?;
        assert_eq!(texts, ["d"], "{cursor:?}");
    }
    Ok(())
}

async fn a_line_appended_after_the_clock_went_back_goes_by_its_own_time(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let start = w.now();
    w.advance(DAY);
    say(&w, &held, "young").await?;
    w.clock.jump_to(start);
    say(&w, &held, "old").await?;
    w.clock.jump_to(start.saturating_plus(DAY));
    say(&w, &held, "youngest").await?;
    assert_eq!(said(&w, task.id()).await?, ["young", "old", "youngest"]);
    assert_eq!(w.store.compact(logs_of_a_day()).await?, removed(1));
    assert_eq!(said(&w, task.id()).await?, ["young", "youngest"]);
    Ok(())
}

/// Appends more lines than go in one step.
async fn say_much(w: &World, held: &Holder) -> Result<Vec<NewLine>> {
    let mut said = Vec::new();
    for _ in 0..11 {
        let line = |n: usize| NewLine::new(w.ids.line(), Level::Info, n.to_string());
        let lines: Vec<NewLine> = (0..1_000).map(line).collect();
        w.store.write(log(held, &lines)).await?;
        said.extend(lines);
    }
    Ok(said)
}

async fn a_task_goes_with_its_log_however_long(w: World) -> Result<()> {
    let (long, held) = w.claimed(w.new_task("talkative")).await?;
    say_much(&w, &held).await?;
    w.store.settle(held, complete()).await?;
    let (short, held) = w.claimed(w.new_task("quiet")).await?;
    w.store.settle(held, complete()).await?;
    w.advance(DAY);
    let mut tasks = 0;
    loop {
        let compacted = w.store.compact(all_tasks()).await?;
        tasks += compacted.tasks;
        if !compacted.more {
            break;
        }
        // What is not gone yet is whole, but for its log.
        let there = w.store.task(long.id()).await?;
        assert!(there.is_none_or(|task| task.status == Status::Completed));
    }
    assert_eq!(tasks, 2);
    for id in [long.id(), short.id()] {
        assert_eq!(w.store.task(id).await?, None);
        assert_eq!(said(&w, id).await?, [""; 0]);
    }
    Ok(())
}

async fn a_long_log_is_gone_with_its_task_and_never_seen_through_its_id(w: World) -> Result<()> {
    let new = w.new_task("talkative");
    let (first, held) = w.claimed(new.clone()).await?;
    let much = say_much(&w, &held).await?;
    w.store.settle(held, complete()).await?;
    w.store.write(Write::DeleteTask(first.id())).await?;
    assert_eq!(said(&w, first.id()).await?, [""; 0]);
    // Another task takes the id, and says again what the first one said last.
    let (second, held) = w.claimed(new).await?;
    assert_eq!(second.id(), first.id());
    assert_eq!(said(&w, second.id()).await?, [""; 0]);
    let last = &much[much.len() - 1..];
    for _ in 0..2 {
        w.store.write(log(&held, last)).await?;
        assert_eq!(said(&w, second.id()).await?, ["999"]);
    }
    say(&w, &held, "own").await?;
    for _ in 0..100 {
        let done = w.store.compact(nothing_but_a_limit()).await?;
        assert_eq!(said(&w, second.id()).await?, ["999", "own"]);
        assert_eq!(done.tasks, 0);
        if !done.more {
            assert_eq!(w.store.compact(nothing_but_a_limit()).await?.lines, 0);
            return Ok(());
        }
    }
    panic!("there is always more to remove");
}

async fn a_line_that_was_removed_can_be_appended_again(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let line = NewLine::new(w.ids.line(), Level::Info, "said");
    w.store
        .write(log(&held, std::slice::from_ref(&line)))
        .await?;
    w.advance(DAY);
    assert_eq!(w.store.compact(logs_of_a_day()).await?, removed(1));
    for _ in 0..2 {
        w.store
            .write(log(&held, std::slice::from_ref(&line)))
            .await?;
        assert_eq!(said(&w, task.id()).await?, ["said"]);
    }
    Ok(())
}

async fn logs_of_other_namespaces_stay(w: World) -> Result<()> {
    let mut there = w.clone();
    there.store = w.elsewhere().await?;
    let (here, held_here) = w.claimed(w.new_task("here")).await?;
    let (other, held_there) = there.claimed(w.new_task("there")).await?;
    say(&w, &held_here, "here").await?;
    say(&there, &held_there, "there").await?;
    w.advance(DAY);
    assert_eq!(w.store.compact(logs_of_a_day()).await?, removed(1));
    assert_eq!(said(&w, here.id()).await?, [""; 0]);
    assert_eq!(said(&there, other.id()).await?, ["there"]);
    Ok(())
}

async fn an_age_beyond_a_century_is_invalid(w: World) -> Result<()> {
    let compact = Compact {
        logs: Some(DURATION_MAX + TICK),
        ..nothing_but_a_limit()
    };
    assert_eq!(invalid(w.store.compact(compact).await).field, "logs");
    Ok(())
}
