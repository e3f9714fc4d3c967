//! What is told of writes: to whoever made them, in metrics, and in the log if they failed.

use std::sync::PoisonError;

use plimsoll_core::{Error, Result};

use super::queue::Call;
use crate::jobs::manager::{Inner, Written};

impl Inner {
    /// Answers a write.
    pub(crate) fn answer(&self, call: Call, answer: Result<Written>) {
        let engine = &self.jobs.engine;
        let now = engine.clock().monotonic();
        let took = now.saturating_sub(call.since);
        (engine.telemetry().states).written(took, answer.as_ref().err().map(Error::kind));
        if let Err(error) = &answer {
            let mut quota = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(untold) = quota.admit(now) {
                tracing::error!(
                    jobID = %self.keys.name,
                    tag = %call.draft.tag,
                    taskID = self.partition,
                    version = call.version,
                    eventID = %call.draft.event_id,
                    %error,
                    untold,
                    "🔴 failed to write state"
                );
            }
        }
        // Whoever went away does not want to know.
        call.reply.send(answer).ok();
    }
}
