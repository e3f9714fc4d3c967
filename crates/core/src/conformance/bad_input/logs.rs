//! Log lines and execution steps.

use super::{
    MILLISECOND, TEXT_MAX, bad_texts, bytes, contradiction, line_of, log, refused, step, too_long,
    too_many,
};
use crate::conformance::observe::lines;
use crate::conformance::world::World;
use crate::error::{Invalid, Problem, Result};
use crate::log::{ExecutionStep, Level, NewLine};
use crate::store::{StoreExt, Write};

cases!["bad_input":
    a_log_append_has_from_one_to_a_thousand_lines,
    the_texts_of_a_log_line_are_limited_and_hold_no_nul,
    an_execution_step_does_not_end_before_it_starts,
    an_execution_step_takes_no_longer_than_a_duration_may,
];

async fn a_log_append_has_from_one_to_a_thousand_lines(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let appending = |count| {
        let line = |_| NewLine::new(w.ids.line(), Level::Info, "line");
        log(&held, &(0..count).map(line).collect::<Vec<_>>())
    };
    let problem = Invalid::new("writes[0].lines", Problem::Empty);
    assert_eq!(refused(&w, appending(0)).await?, problem);
    let problem = too_many("writes[0].lines", 1_001, 1_000);
    assert_eq!(refused(&w, appending(1_001)).await?, problem);
    assert_eq!(lines(&w, task.id()).await?.len(), 0);
    w.store.write(appending(1_000)).await?;
    assert_eq!(lines(&w, task.id()).await?.len(), 1_000);
    Ok(())
}

async fn the_texts_of_a_log_line_are_limited_and_hold_no_nul(w: World) -> Result<()> {
    type Set = fn(&mut ExecutionStep, String);
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let message = |text: String| NewLine::new(w.ids.line(), Level::Info, text);
    for (text, problem) in bad_texts("writes[0].lines.message") {
        let bad = log(&held, &[message("good".into()), message(text)]);
        assert_eq!(refused(&w, bad).await?, problem);
    }
    let metadata = |len| NewLine {
        metadata: Some(bytes(len)),
        ..message("good".into())
    };
    let problem = too_long("writes[0].lines.metadata", TEXT_MAX + 1, TEXT_MAX);
    let bad = log(&held, &[metadata(TEXT_MAX + 1)]);
    assert_eq!(refused(&w, bad).await?, problem);
    let texts: [(&str, Set); 4] = [
        ("command", |step, text| step.command = Some(text)),
        ("stdout", |step, text| step.stdout = Some(text)),
        ("stderr", |step, text| step.stderr = Some(text)),
        ("error", |step, text| step.error = Some(text)),
    ];
    let longest = "é".repeat(TEXT_MAX / 2);
    let mut full = step(&w)?;
    for (field, set) in texts {
        for (text, problem) in bad_texts(&format!("writes[0].lines.step.{field}")) {
            let mut step = step(&w)?;
            set(&mut step, text);
            let bad = log(&held, &[line_of(&w, step)]);
            assert_eq!(refused(&w, bad).await?, problem);
        }
        set(&mut full, longest.clone());
    }
    assert_eq!(lines(&w, task.id()).await?.len(), 0);
    let good = vec![message(longest), metadata(TEXT_MAX), line_of(&w, full)];
    w.store.write(log(&held, &good)).await?;
    assert_eq!(lines(&w, task.id()).await?.len(), 3);
    Ok(())
}

async fn an_execution_step_does_not_end_before_it_starts(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let ended = |completed_at| -> Result<Write> {
        let step = ExecutionStep {
            completed_at: Some(completed_at),
            ..step(&w)?
        };
        Ok(log(&held, &[line_of(&w, step)]))
    };
    let field = "writes[0].lines.step.completed_at";
    let problem = contradiction(field, "must not be before started_at");
    let before = w.now().saturating_minus(MILLISECOND);
    assert_eq!(refused(&w, ended(before)?).await?, problem);
    assert_eq!(lines(&w, task.id()).await?.len(), 0);
    w.store.write(ended(w.now())?).await?;
    assert_eq!(lines(&w, task.id()).await?.len(), 1);
    Ok(())
}

async fn an_execution_step_takes_no_longer_than_a_duration_may(w: World) -> Result<()> {
    // Signed 64 bits are all that most stores have for a number.
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let step = ExecutionStep {
        duration_ms: Some(u64::MAX),
        ..step(&w)?
    };
    let invalid = refused(&w, log(&held, &[line_of(&w, step)])).await?;
    assert_eq!(invalid.field, "writes[0].lines.step.duration_ms");
    assert_eq!(lines(&w, task.id()).await?.len(), 0);
    Ok(())
}
