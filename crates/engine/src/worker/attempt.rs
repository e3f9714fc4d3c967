//! One attempt at one task: the handler runs until it answers, panics or is dropped.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use plimsoll_core::log::NewLine;
use tokio::sync::watch;
use tower::ServiceExt;

use super::builder::Backoff;
use super::context::{Context, Signal};
use super::settle::Ended;
use super::{Answer, HandlerService};

/// Runs a handler. All code of the user runs in here, so that a panic is never more than a failure
/// of the task: in layers, in the backoff function, or when what is dropped panics. Answers what
/// it logged that is not stored yet, too.
pub(super) async fn attempt(
    service: HandlerService,
    context: Context,
    backoff: Option<Backoff>,
    mut heard: watch::Receiver<Signal>,
) -> (Ended, Vec<NewLine>) {
    let log = context.job_log().clone();
    let work = async {
        let answer = async {
            let again = backoff.map(|backoff| (backoff, context.task().clone()));
            let answer = match service.oneshot(context).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            let delay = match (&answer, again) {
                (Answer::Fail(failure), Some((backoff, task))) => backoff.delay(&task, failure),
                _ => None,
            };
            if matches!(&answer, Answer::Complete(completion) if !completion.with.is_empty()) {
                // What is written with the answer may fill a commit by itself. Lines that cannot be
                // stored now go with it all the same.
                log.flush().await.ok();
            }
            (answer, delay)
        };
        tokio::select! {
            biased;
            (answer, delay) = answer => Ended::Answered(answer, delay),
            _ = heard.wait_for(|signal| signal.cut) => Ended::Cut,
            never = log.keep_flushing() => match never {},
        }
    };
    let ended = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(ended) => ended,
        Err(panic) => Ended::Panicked(words(panic.as_ref())),
    };
    (ended, log.take())
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a word".into())
}
