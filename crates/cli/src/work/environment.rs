//! What a command finds in its environment.

use std::path::Path;
use std::process::Command;

use plimsoll::worker::Context;

/// Tells a command about its task. What does not apply is removed, or a command that runs a worker
/// itself would hand on what belongs to another task.
pub(super) fn tell(
    command: &mut Command,
    context: &Context,
    control: &Path,
    checkpoint: Option<&Path>,
) {
    let (task, holder) = (context.task(), context.holder());
    let spec = &task.spec;
    let deadline = task.lease.as_ref().and_then(|lease| lease.deadline);
    // A task has both in one text, with a space between them.
    let mut trace = spec.trace.iter().flat_map(|trace| trace.splitn(2, ' '));
    let (parent, state) = (trace.next(), trace.next());
    let (parent, state) = (parent.map(str::to_owned), state.map(str::to_owned));
    let variables = [
        ("PLIMSOLL_TASK_ID", Some(task.id().to_string())),
        ("PLIMSOLL_FENCE", Some(holder.fence.to_string())),
        ("PLIMSOLL_ATTEMPT", Some(context.attempt().to_string())),
        ("PLIMSOLL_QUEUE", Some(spec.lane.queue.to_string())),
        ("PLIMSOLL_KIND", Some(spec.lane.kind.to_string())),
        (
            "PLIMSOLL_KEY",
            spec.key.as_ref().map(|(key, _)| key.to_string()),
        ),
        (
            "PLIMSOLL_STAGE",
            task.stage.as_ref().map(ToString::to_string),
        ),
        ("PLIMSOLL_WORKER", Some(holder.worker.name.to_string())),
        // In whole seconds, which shells can count with.
        (
            "PLIMSOLL_DEADLINE",
            deadline.map(|at| (at.as_micros() / 1_000_000).to_string()),
        ),
        ("PLIMSOLL_TRACEPARENT", parent.clone()),
        ("TRACEPARENT", parent),
        ("TRACESTATE", state),
    ];
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PLIMSOLL_CONTROL", control);
    match checkpoint {
        Some(path) => command.env("PLIMSOLL_CHECKPOINT", path),
        None => command.env_remove("PLIMSOLL_CHECKPOINT"),
    };
}
