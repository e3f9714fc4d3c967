//! The spans of an attempt: one around it, and a child for each of its stages.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::Name;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::running::Hold;
use crate::Engine;

/// The span `process_job` of an attempt and the span `phase` of the stage it is in. Whatever the
/// handler does happens inside both.
#[derive(Debug)]
pub(super) struct Phases {
    job: Span,
    phase: Mutex<Option<Span>>,
}

impl Phases {
    /// Opens the span of an attempt, as a part of the trace that submitted the task: the first
    /// attempt as a child, later ones with a link. `None`: nobody listens.
    pub(super) fn open(engine: &Engine, hold: &Hold) -> Option<Arc<Self>> {
        let (task, holder) = (&hold.task, &hold.holder);
        let job = tracing::info_span!(
            parent: None,
            "process_job",
            job_id = %holder.task,
            worker_id = %holder.worker.name,
            queue = %task.spec.lane.queue,
            kind = %task.spec.lane.kind,
            attempt = task.attempts,
            fence = holder.fence.get(),
            status = Empty,
            error = Empty,
            otel.kind = "consumer",
            otel.status_code = Empty,
            otel.status_description = Empty,
        );
        if job.is_disabled() {
            return None;
        }
        if let Some(trace) = &task.spec.trace
            && let Some(propagation) = engine.telemetry().propagation()
        {
            match task.attempts {
                1 => propagation.continue_as_child(&job, trace),
                _ => propagation.link(&job, trace),
            }
        }
        Some(Arc::new(Self {
            job,
            phase: Mutex::default(),
        }))
    }

    /// The span of the attempt.
    pub(super) fn job(&self) -> &Span {
        &self.job
    }

    /// Closes the phase that was open, and opens this one. What the handler does next is inside it.
    pub(super) async fn enter(&self, stage: &Name) {
        self.set(Some(self.span(stage)));
        // Spans are entered when the handler is polled next.
        tokio::task::yield_now().await;
    }

    /// Closes the phase that was open, and runs a future in a phase of its own.
    pub(super) async fn during<T>(&self, stage: &Name, work: impl Future<Output = T>) -> T {
        if self.current().is_some() {
            self.set(None);
            tokio::task::yield_now().await;
        }
        work.instrument(self.span(stage)).await
    }

    /// Closes the phase that is open.
    pub(super) fn close(&self) {
        self.set(None);
    }

    /// Runs a future inside the attempt, and in whatever phase is open.
    pub(super) async fn around<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            let phase = self.current();
            let poll = || match &phase {
                Some(phase) => phase.in_scope(|| work.as_mut().poll(context)),
                None => work.as_mut().poll(context),
            };
            self.job.in_scope(poll)
        })
        .await
    }

    fn span(&self, stage: &Name) -> Span {
        let stage = stage.as_str();
        tracing::info_span!(parent: &self.job, "phase", stage, otel.name = stage)
    }

    fn set(&self, phase: Option<Span>) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    fn current(&self) -> Option<Span> {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        phase.clone()
    }
}
