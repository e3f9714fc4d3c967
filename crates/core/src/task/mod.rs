//! Work: tasks, their lanes, leases and retries.

pub mod invariants;
mod new;
mod retry;
mod state;
mod status;

pub use invariants::Violation;
pub use new::{Due, KeyLifetime, KeyRequest, NewTask, OnConflict, Priority};
pub use retry::{Backoff, RetryPolicy};
pub use state::{
    AttemptError, CancelRequest, FailureKind, Holder, Lane, Lease, Progress, Settled, Task,
    TaskSpec, TaskState, Verb, Waiting, WorkerId,
};
pub use status::Status;
