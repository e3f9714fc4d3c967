//! What is told of writes: to whoever made them, in metrics, and in the log if they failed.

use std::sync::PoisonError;

use plimsoll_core::{Error, Name, Result};

use super::queue::Call;
use crate::jobs::manager::{Inner, Written};

impl Inner {
    /// Answers a write.
    pub(crate) fn answer(&self, call: Call, answer: Result<Written>) {
        let engine = &self.jobs.engine;
        match &answer {
            Ok(_) => {
                let now = engine.clock().monotonic();
                let took = now.saturating_sub(call.since);
                engine.telemetry().states.written(took);
            }
            Err(error) => {
                let version = (call.version > 0).then_some(call.version);
                let draft = &call.draft;
                self.not_written(error, &draft.tag, version, Some(&draft.event_id));
            }
        }
        // Whoever went away does not want to know.
        call.reply.send(answer).ok();
    }

    /// Tells of a state that was not written, or may not have been, also of one that never took its place in
    /// the line: whoever made it may have dropped the answer.
    pub(crate) fn not_written(
        &self,
        error: &Error,
        tag: &Name,
        version: Option<u64>,
        event_id: Option<&Name>,
    ) {
        let engine = &self.jobs.engine;
        engine.telemetry().states.not_written(error.kind());
        let now = engine.clock().monotonic();
        let mut quota = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(untold) = quota.admit(now) {
            tracing::error!(
                jobID = %self.keys.name,
                %tag,
                taskID = self.partition,
                version,
                eventID = event_id.map(tracing::field::display),
                %error,
                untold,
                "🔴 failed to write state"
            );
        }
    }
}
