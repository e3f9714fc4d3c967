//! How a trace goes from who submits a task to who runs it.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use plimsoll_core::store::Write;
use plimsoll_core::task::NewTask;
use tracing::Span;

/// Carries traces over in tasks, as text: a W3C `traceparent`, and after one space the `tracestate`
/// if there is any. The engine knows no tracing system: whoever has one installs this, once per
/// process with [`propagate`] or for one engine with
/// [`Engine::propagation`](crate::Engine::propagation).
///
/// The first attempt at a task is a child of the span that submitted it. Later ones are traces of
/// their own that are linked to it: they may come days later.
pub trait Propagation: Debug + Send + Sync {
    /// The trace of the current span, if it has one.
    fn current(&self) -> Option<String>;
    /// Makes a span that has not been entered yet a child of this trace. Text that is no trace is
    /// passed over.
    fn continue_as_child(&self, span: &Span, trace: &str);
    /// Links a span to this trace. Text that is no trace is passed over.
    fn link(&self, span: &Span, trace: &str);
}

static INSTALLED: OnceLock<Arc<dyn Propagation>> = OnceLock::new();

/// Carries traces over in all engines of this process that have no propagation of their own. The
/// first call wins; answers whether this was it.
pub fn propagate(propagation: Arc<dyn Propagation>) -> bool {
    INSTALLED.set(propagation).is_ok()
}

pub(super) fn installed() -> Option<&'static dyn Propagation> {
    INSTALLED.get().map(Arc::as_ref)
}

/// Whether one of these submits a task that has no trace yet.
pub(super) fn wants_trace(writes: &[Write]) -> bool {
    let wants = |write: &Write| matches!(write, Write::Submit(task) if task.trace.is_none());
    writes.iter().any(wants)
}

/// Gives a trace to every task of these writes that has none.
pub(super) fn stamp(writes: &mut [Write], trace: &str) {
    for write in writes {
        if let Write::Submit(task) = write {
            stamp_task(task, trace);
        }
    }
}

fn stamp_task(task: &mut NewTask, trace: &str) {
    task.trace.get_or_insert_with(|| trace.to_owned());
    if let Some(task) = &mut task.on_failure {
        stamp_task(task, trace);
    }
}
