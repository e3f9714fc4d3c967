//! Bad input: a typed error names the field and the limit, and nothing is written.
//!
//! The numbers are those of [`crate::Limits::default`], which a harness must open its store with.

mod attempts;
mod commits;
mod extremes;
mod logs;
mod reads;
mod records;
mod selects;
mod submits;

use std::time::Duration;

use bytes::Bytes;

use crate::change::Change;
use crate::conformance::observe::{changes_since, here};
use crate::conformance::world::{World, invalid, name};
use crate::conformance::writes::{log, open, settle, submit};
use crate::error::{Invalid, Problem, Result};
use crate::limits::DURATION_MAX;
use crate::log::{ExecutionStep, Level, NewLine};
use crate::names::{Key, Name};
use crate::record::Fields;
use crate::store::{Amend, Commit, Cursor, List, Put, Selector, Write};
use crate::task::Holder;

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    [
        records::cases(),
        submits::cases(),
        attempts::cases(),
        logs::cases(),
        commits::cases(),
        reads::cases(),
        selects::cases(),
        extremes::cases(),
    ]
    .concat()
}

const KIB: usize = 1024;

/// Payload, result, checkpoint, value of a field, all fields of a record.
const BYTES_MAX: usize = 256 * KIB;

const TEXT_MAX: usize = 64 * KIB;

const FIELDS_MAX: usize = 256;

const COMMIT_MAX: usize = 4 * KIB * KIB;

const SECOND: Duration = Duration::from_secs(1);

const MILLISECOND: Duration = Duration::from_millis(1);

const CENTURY: &str = "3153600000s";

const WEEK: &str = "604800s";

/// What is wrong with this commit, which leaves no trace while its neighbours are applied.
async fn refusal(w: &World, bad: Commit) -> Result<Invalid> {
    let start = here(w).await?;
    let (before, after) = (put("neighbour.before", 1)?, put("neighbour.after", 1)?);
    let call = vec![Commit::of(before), bad, Commit::of(after)];
    let mut answers = w.store.commit(call).await;
    assert_eq!(answers.len(), 3);
    let answer = answers.remove(1);
    for neighbour in answers {
        assert!(!neighbour?.repeated);
    }
    let changes = changes_since(w, start).await?;
    let mut written: Vec<String> = (changes.into_iter())
        .map(|change| match change {
            Change::Put(record) => record.key.to_string(),
            other => panic!("nothing else may change, but: {other:?}"),
        })
        .collect();
    written.sort();
    assert_eq!(written, ["neighbour.after", "neighbour.before"]);
    Ok(invalid(answer))
}

async fn refused(w: &World, bad: Write) -> Result<Invalid> {
    refusal(w, Commit::of(bad)).await
}

fn too_long(field: &str, bytes: usize, max: usize) -> Invalid {
    Invalid::new(field, Problem::TooLong { bytes, max })
}

fn too_many(field: &str, count: usize, max: usize) -> Invalid {
    Invalid::new(field, Problem::TooMany { count, max })
}

fn out_of_range(field: &str, value: impl ToString, min: &str, max: &str) -> Invalid {
    let problem = Problem::OutOfRange {
        value: value.to_string(),
        min: min.into(),
        max: max.into(),
    };
    Invalid::new(field, problem)
}

fn duration_out_of_range(field: &str, value: Duration, min: &str, max: &str) -> Invalid {
    out_of_range(field, format!("{value:?}"), min, max)
}

fn contradiction(field: &str, why: &'static str) -> Invalid {
    Invalid::new(field, Problem::Contradiction(why.into()))
}

fn repeated(field: &str, what: impl ToString) -> Invalid {
    Invalid::new(field, Problem::Repeated(what.to_string()))
}

/// Durations that are too long for a delay.
fn too_late() -> [Duration; 2] {
    [DURATION_MAX + Duration::from_nanos(1), Duration::MAX]
}

/// Durations that are too short or too long for a time to live.
fn not_a_lifetime() -> [Duration; 4] {
    let [long, longest] = too_late();
    [Duration::ZERO, Duration::from_micros(999), long, longest]
}

/// Texts that are too long or hold a NUL, with what is wrong with them.
fn bad_texts(field: &str) -> [(String, Invalid); 2] {
    [
        (
            "é".repeat(TEXT_MAX / 2) + "x",
            too_long(field, TEXT_MAX + 1, TEXT_MAX),
        ),
        ("a\0b".into(), Invalid::new(field, Problem::Nul)),
    ]
}

fn bytes(len: usize) -> Bytes {
    Bytes::from(vec![b'x'; len])
}

fn put(key: &str, len: usize) -> Result<Write> {
    let fields = Fields::from([(name("f")?, bytes(len))]);
    Ok(Write::Put(Put::new(Key::new(key)?, fields)))
}

/// Names of 128 bytes, all different.
fn names(count: usize) -> Result<Vec<Name>> {
    (0..count).map(|n| name(&format!("{n:0>128}"))).collect()
}

fn amend(holder: &Holder, change: impl FnOnce(&mut Amend)) -> Write {
    let mut amend = Amend::new(holder.clone());
    change(&mut amend);
    Write::Amend(Box::new(amend))
}

fn step(w: &World) -> Result<ExecutionStep> {
    Ok(ExecutionStep {
        step_id: name("step")?,
        kind: name("ffmpeg")?,
        command: None,
        exit_code: None,
        stdout: None,
        stderr: None,
        started_at: w.now(),
        completed_at: None,
        duration_ms: None,
        success: None,
        error: None,
    })
}

fn line_of(w: &World, step: ExecutionStep) -> NewLine {
    NewLine {
        step: Some(Box::new(step)),
        ..NewLine::new(w.ids.line(), Level::Info, "step")
    }
}

fn list(cursor: Option<Cursor>, limit: usize, selector: Selector) -> List {
    List {
        cursor,
        ..List::new(selector, limit)
    }
}
