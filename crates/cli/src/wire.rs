//! What programs read: the names here are promised in `docs/cli.md`.

use std::collections::BTreeMap;

use plimsoll::log::{AttemptStep, ExecutionStep, Line};
use plimsoll::store::SubmitOutcome;
use plimsoll::task::{Backoff, FailureKind, KeyLifetime, OnConflict, RetryPolicy, Status, Task};
use plimsoll::{Error, Name, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json;

/// A moment as RFC 3339.
pub(crate) struct At(pub(crate) Timestamp);

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A payload, a result, or what else an author has stored: what it is, is its only field.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    Json(Box<RawValue>),
    Text(String),
    Hex(String),
}

impl Body {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => match json::compact(text).map(RawValue::from_string) {
                Some(Ok(value)) => Self::Json(value),
                _ => Self::Text(text.into()),
            },
            Err(_) => Self::Hex(json::hex(bytes)),
        }
    }
}

/// A task.
#[derive(Serialize)]
pub(crate) struct WireTask<'a> {
    id: String,
    queue: &'a Name,
    kind: &'a Name,
    status: Status,
    priority: u8,
    payload: Body,
    key: Option<&'a str>,
    key_lifetime: Option<String>,
    owner: Option<&'a Name>,
    group: Option<&'a str>,
    labels: &'a BTreeMap<Name, Name>,
    attempts: u32,
    failures: u32,
    max_attempts: u32,
    retry: WireRetry,
    redrives: u32,
    attempt_timeout_ms: Option<u128>,
    fence: u64,
    revision: u64,
    stage: Option<&'a Name>,
    progress: Option<WireProgress<'a>>,
    lease: Option<WireLease<'a>>,
    cancel_requested: Option<WireCancel<'a>>,
    waits_for: Option<String>,
    attributes: BTreeMap<&'a Name, Body>,
    checkpoint: Option<Body>,
    errors: Vec<WireAttempt<'a>>,
    reason: Option<&'a str>,
    result: Option<Body>,
    created_at: At,
    runnable_at: At,
    started_at: Option<At>,
    claimed_at: Option<At>,
    finished_at: Option<At>,
    modified_at: At,
}

/// How long a task waits after it has failed, named as the options of `task submit`. A wait that is
/// always the same grows by 1.
#[derive(Serialize)]
struct WireRetry {
    delay_ms: u128,
    factor: f64,
    cap_ms: u128,
    jitter_percent: u8,
    within_ms: Option<u128>,
}

impl From<&RetryPolicy> for WireRetry {
    fn from(policy: &RetryPolicy) -> Self {
        let (delay, factor, cap) = match policy.backoff {
            Backoff::Exponential { first, factor, cap } => (first, factor, cap),
            Backoff::Fixed(delay) => (delay, 1.0, delay),
        };
        Self {
            delay_ms: delay.as_millis(),
            factor,
            cap_ms: cap.as_millis(),
            jitter_percent: policy.jitter_percent,
            within_ms: policy.total.map(|total| total.as_millis()),
        }
    }
}

#[derive(Serialize)]
struct WireProgress<'a> {
    percent: Option<u8>,
    message: Option<&'a str>,
    current_step: Option<u32>,
    step_count: Option<u32>,
}

#[derive(Serialize)]
struct WireLease<'a> {
    worker: &'a Name,
    incarnation: String,
    until: At,
    deadline: Option<At>,
}

#[derive(Serialize)]
struct WireCancel<'a> {
    at: At,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct WireAttempt<'a> {
    fence: u64,
    worker: &'a Name,
    at: At,
    kind: FailureKind,
    message: &'a str,
    stage: Option<&'a Name>,
}

impl<'a> From<&'a Task> for WireTask<'a> {
    fn from(task: &'a Task) -> Self {
        let spec = &task.spec;
        let progress = task.progress.as_ref().map(|progress| WireProgress {
            percent: progress.percent,
            message: progress.message.as_deref(),
            current_step: progress.current_step,
            step_count: progress.step_count,
        });
        let lease = task.lease.as_ref().map(|lease| WireLease {
            worker: &lease.worker.name,
            incarnation: lease.worker.incarnation.to_string(),
            until: At(lease.until),
            deadline: lease.deadline.map(At),
        });
        let cancel_requested = task.cancel.as_ref().map(|cancel| WireCancel {
            at: At(cancel.at),
            reason: cancel.reason.as_deref(),
        });
        let errors = task.errors.iter().map(|error| WireAttempt {
            fence: error.fence.get(),
            worker: &error.worker.name,
            at: At(error.at),
            kind: error.kind,
            message: &error.message,
            stage: error.stage.as_ref(),
        });
        let attributes = task.attributes.iter();
        let attributes = attributes.map(|(name, value)| (name, Body::of(value)));
        Self {
            id: task.id().to_string(),
            queue: &spec.lane.queue,
            kind: &spec.lane.kind,
            status: task.status,
            priority: task.priority.get(),
            payload: Body::of(&spec.payload),
            key: spec.key.as_ref().map(|(key, _)| key.as_str()),
            key_lifetime: (spec.key.as_ref()).map(|(_, lifetime)| lifetime_word(*lifetime)),
            owner: spec.owner.as_ref(),
            group: spec.group.as_ref().map(|group| group.as_str()),
            labels: &spec.labels,
            attempts: task.attempts,
            failures: task.failures,
            max_attempts: spec.retry.max_attempts,
            retry: WireRetry::from(&spec.retry),
            redrives: task.redrives,
            attempt_timeout_ms: spec.attempt_timeout.map(|timeout| timeout.as_millis()),
            fence: task.fence.get(),
            revision: task.revision.get(),
            stage: task.stage.as_ref(),
            progress,
            lease,
            cancel_requested,
            waits_for: task.waiting.as_ref().map(|waiting| waiting.on.to_string()),
            attributes: attributes.collect(),
            checkpoint: task.checkpoint.as_deref().map(Body::of),
            errors: errors.collect(),
            reason: task.reason.as_deref(),
            result: task.result.as_deref().map(Body::of),
            created_at: At(spec.created_at),
            runnable_at: At(task.runnable_at),
            started_at: task.started_at.map(At),
            claimed_at: task.claimed_at.map(At),
            finished_at: task.finished_at.map(At),
            modified_at: At(task.modified_at),
        }
    }
}

/// A line of a log.
#[derive(Serialize)]
pub(crate) struct WireLine<'a> {
    id: String,
    at: At,
    level: &'static str,
    stage: Option<&'a Name>,
    fence: u64,
    message: &'a str,
    metadata: Option<Body>,
    step: Option<WireStep<'a>>,
}

/// A step of a task.
#[derive(Serialize)]
pub(crate) struct WireStep<'a> {
    step_id: &'a Name,
    kind: &'a Name,
    command: Option<&'a str>,
    exit_code: Option<i32>,
    stdout: Option<&'a str>,
    stderr: Option<&'a str>,
    started_at: At,
    completed_at: Option<At>,
    duration_ms: Option<u64>,
    success: Option<bool>,
    error: Option<&'a str>,
}

/// A step of a task, and of which attempt.
#[derive(Serialize)]
pub(crate) struct WireAttemptStep<'a> {
    fence: u64,
    #[serde(flatten)]
    step: WireStep<'a>,
    cut_off: bool,
}

impl<'a> From<&'a AttemptStep> for WireAttemptStep<'a> {
    fn from(step: &'a AttemptStep) -> Self {
        Self {
            fence: step.fence.get(),
            step: WireStep::from(&step.step),
            cut_off: step.cut_off,
        }
    }
}

impl<'a> From<&'a ExecutionStep> for WireStep<'a> {
    fn from(step: &'a ExecutionStep) -> Self {
        Self {
            step_id: &step.step_id,
            kind: &step.kind,
            command: step.command.as_deref(),
            exit_code: step.exit_code,
            stdout: step.stdout.as_deref(),
            stderr: step.stderr.as_deref(),
            started_at: At(step.started_at),
            completed_at: step.completed_at.map(At),
            duration_ms: step.duration_ms,
            success: step.success,
            error: step.error.as_deref(),
        }
    }
}

impl<'a> From<&'a Line> for WireLine<'a> {
    fn from(line: &'a Line) -> Self {
        let new = &line.line;
        Self {
            id: new.id.to_string(),
            at: At(line.at),
            level: new.level.as_str(),
            stage: new.stage.as_ref(),
            fence: line.fence.get(),
            message: &new.message,
            metadata: new.metadata.as_deref().map(Body::of),
            step: new.step.as_deref().map(WireStep::from),
        }
    }
}

/// Why something was refused.
#[derive(Serialize)]
pub(crate) struct WireError {
    code: &'static str,
    message: String,
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
        }
    }
}

/// The word for how an attempt went wrong.
pub(crate) fn failure(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Error => "error",
        FailureKind::Fatal => "fatal",
        FailureKind::LeaseExpired => "lease expired",
        FailureKind::DeadlineExceeded => "took too long",
        FailureKind::Interrupted => "interrupted",
        FailureKind::Revoked => "revoked",
    }
}

/// The word for what became of a submit.
pub(crate) fn submitted(outcome: SubmitOutcome) -> &'static str {
    match outcome {
        SubmitOutcome::Created => "created",
        SubmitOutcome::Existing => "existing",
        SubmitOutcome::ExistingOtherPayload => "existing_other_payload",
        SubmitOutcome::ExistingFinished(_) => "existing_finished",
    }
}

/// How long a key stands for its task: `forever`, `active`, or a time.
pub(crate) fn lifetime(text: &str) -> Result<KeyLifetime, String> {
    match text {
        "forever" => Ok(KeyLifetime::Forever),
        "active" => Ok(KeyLifetime::WhileActive),
        time => crate::input::duration(time)
            .map(KeyLifetime::For)
            .map_err(|_| "expected forever, active, or a time like 24h".into()),
    }
}

/// The same as [`lifetime`] reads it.
fn lifetime_word(lifetime: KeyLifetime) -> String {
    match lifetime {
        KeyLifetime::Forever => "forever".into(),
        KeyLifetime::WhileActive => "active".into(),
        KeyLifetime::For(time) => format!("{}ms", time.as_millis()),
    }
}

/// What to do when a key is taken.
pub(crate) fn conflict(text: &str) -> Result<OnConflict, String> {
    match text {
        "attach" => Ok(OnConflict::Attach),
        "reject" => Ok(OnConflict::Reject),
        "replace-pending" => Ok(OnConflict::ReplacePending),
        "cancel-and-replace" => Ok(OnConflict::CancelAndReplace),
        _ => Err("expected attach, reject, replace-pending or cancel-and-replace".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_read_as_it_is_written() {
        for text in ["forever", "active", "86400000ms"] {
            let read = lifetime(text).expect("a lifetime");
            assert_eq!(lifetime_word(read), text);
        }
    }

    #[test]
    fn a_body_says_what_it_is_and_keeps_every_digit() {
        let written = |bytes: &[u8]| serde_json::to_string(&Body::of(bytes)).expect("JSON");
        let json = b"{\n \"z\": 12345678901234567890123,\n \"a\": 1.0}";
        assert_eq!(
            written(json),
            r#"{"json":{"z":12345678901234567890123,"a":1.0}}"#
        );
        assert_eq!(written(b"clip-7"), r#"{"text":"clip-7"}"#);
        assert_eq!(written(b""), r#"{"text":""}"#);
        assert_eq!(written(b"\xff\x00"), r#"{"hex":"ff00"}"#);
    }
}
