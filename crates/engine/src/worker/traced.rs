//! An attempt, seen from outside: inside its spans, with how it ended.

use std::sync::Arc;

use plimsoll_core::log::NewLine;
use tokio::sync::watch;

use super::context::{Cause, Signal};
use super::phase::Phases;
use super::settle::Ended;
use super::{Answer, Completion};
use crate::telemetry::{AttemptEnd, Telemetry};

/// Runs an attempt inside its spans. What it submits with its answer continues its trace.
pub(super) async fn traced(
    telemetry: Arc<Telemetry>,
    phases: Arc<Phases>,
    heard: watch::Receiver<Signal>,
    attempt: impl Future<Output = (Ended, Vec<NewLine>)>,
) -> (Ended, Vec<NewLine>) {
    let (mut ended, lines) = phases.around(attempt).await;
    phases.close();
    let job = phases.job();
    if let Ended::Answered(Answer::Complete(Completion { with, .. }), _) = &mut ended {
        job.in_scope(|| telemetry.carry(with));
    }
    job.record("status", end(&ended).as_str());
    if let Some(error) = error(&ended, heard.borrow().cause.as_ref()) {
        job.record("error", error);
        job.record("otel.status_code", "ERROR");
        job.record("otel.status_description", error);
    }
    (ended, lines)
}

/// How an attempt ended, in a word.
pub(super) fn end(ended: &Ended) -> AttemptEnd {
    match ended {
        Ended::Answered(answer, _) => match answer {
            Answer::Complete(_) => AttemptEnd::Completed,
            Answer::Fail(_) => AttemptEnd::Failed,
            Answer::Snooze(_) => AttemptEnd::Snoozed,
            Answer::Release => AttemptEnd::Released,
            Answer::Cancel(_) => AttemptEnd::Cancelled,
        },
        Ended::Panicked(_) => AttemptEnd::Panicked,
        Ended::Cut => AttemptEnd::Cut,
    }
}

/// What went wrong, if anything did. That somebody wanted it to end is no error.
pub(super) fn error<'a>(ended: &'a Ended, cause: Option<&Cause>) -> Option<&'a str> {
    match (ended, cause) {
        (Ended::Answered(Answer::Fail(failure), _), _) => Some(&failure.message),
        (Ended::Panicked(message), _) => Some(message),
        (Ended::Cut, Some(Cause::Deadline)) => Some("it took longer than it may"),
        (Ended::Cut, Some(Cause::LeaseLost)) => Some("its lease was lost"),
        (Ended::Cut | Ended::Answered(..), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Failure;
    use super::*;

    #[test]
    fn every_end_has_a_word_and_only_what_went_wrong_is_an_error() {
        let answered = |answer| Ended::Answered(answer, None);
        let ends = [
            (
                answered(Answer::Complete(Completion::new())),
                "completed",
                None,
            ),
            (
                answered(Answer::Fail(Failure::new("no"))),
                "failed",
                Some("no"),
            ),
            (answered(Answer::Snooze(Duration::ZERO)), "snoozed", None),
            (answered(Answer::Release), "released", None),
            (
                answered(Answer::Cancel(Some("off".into()))),
                "cancelled",
                None,
            ),
            (Ended::Panicked("oh".into()), "panicked", Some("oh")),
            (Ended::Cut, "cut", None),
        ];
        for (ended, word, wrong) in &ends {
            assert_eq!(end(ended).as_str(), *word);
            assert_eq!(error(ended, None), *wrong);
            assert_eq!(error(ended, Some(&Cause::Draining)), *wrong);
        }
        assert!(error(&Ended::Cut, Some(&Cause::Deadline)).is_some());
        assert!(error(&Ended::Cut, Some(&Cause::LeaseLost)).is_some());
        let cancelled = Cause::Cancelled { reason: None };
        assert_eq!(error(&Ended::Cut, Some(&cancelled)), None);
    }
}
