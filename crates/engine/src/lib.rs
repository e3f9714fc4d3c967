//! What Plimsoll builds on its storage port, written once for every store.
//!
//! - [`GroupCommit`] merges what concurrent callers commit, renew and claim into few store calls.
//! - [`Tasks`] is the client of tasks: submit, claim, settle, look, operate, wait.
//! - [`Records`] is the client of records: fields, expectations, scans, and structs as records.
//! - [`Locks`] is the client of locks: one holder at a time, with a fencing token; elections.
//! - [`Jobs`] is the client of partitioned jobs: each partition says how far it is.
//! - [`Worker`] runs handlers for tasks.
//! - [`Sweeper`] decides what time has made ready, and archives and removes what was kept long enough.
//! - [`archive`] is what is kept of tasks after they are gone.
//! - [`registry`] says which workers there are, and how much they do.
//! - [`telemetry`] is what all of them tell about themselves.
//! - [`testing`] is for tests of handlers: tasks and workers in memory, on a clock that tests move.

mod answer;
pub mod archive;
mod contest;
mod engine;
mod fields;
mod group_commit;
mod handover;
pub mod history;
pub mod jobs;
mod json;
pub mod locks;
mod process;
pub mod records;
pub mod registry;
mod retention;
mod retries;
mod signals;
mod spawn;
pub mod sweeper;
pub mod tasks;
pub mod telemetry;
pub mod testing;
pub mod worker;

pub use archive::Archive;
pub use engine::Engine;
pub use group_commit::{Bounds, GroupCommit, group_commit};
pub use jobs::Jobs;
pub use locks::Locks;
pub use records::Records;
pub use registry::Workers;
pub use retention::{Retention, StoredRetention};
pub use retries::Retries;
pub use sweeper::Sweeper;
pub use tasks::Tasks;
pub use worker::Worker;
