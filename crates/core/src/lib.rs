//! The core of Plimsoll: types, the storage port, the deciders and the memory store.
//!
//! # Glossary
//! One word for one thing, here and in every crate above:
//!
//! | word | meaning |
//! |---|---|
//! | namespace | a closed world; namespaces share nothing |
//! | record | a key and a map of fields, with a revision and perhaps a time to live |
//! | task | a unit of work: queue, kind, priority, payload, lease, fence, retry policy |
//! | lane | a queue and a kind: where a task waits |
//! | lease | a worker's hold on a task, for a time |
//! | fence | grows by one on every claim of a task; a stale holder shows an older one |
//! | attempt, failure | a claim; a claim that ended badly and counts toward the cap |
//! | settle | to end an attempt: complete, fail, snooze, release, cancel |
//! | lifecycle, stage | the stages that a claimed task goes through; where in it a task is |
//! | group | a durable join: when all its members are done, it submits a task |
//! | commit | guards and writes that happen as a whole or not at all |
//! | revision | grows with every write of a record or task; serves guards |
//! | change, entry | what a write changed; the changes of one store transaction |
//! | position, cursor | a place in the history; a place in a paged answer |
//! | store | one implementation of the [`Store`] port, bound to a namespace |
//! | decider | a pure function that says what a verb makes of a row |
//!
//! # Where things are
//! - [`store`] is the port with its promises; [`store::check`] checks every input.
//! - [`decide`] says what happens; it reads no clock and does no I/O.
//! - [`memory`] is the simplest reading of every promise.
//! - [`decorate`] wraps a store with faults, or with metrics and traces.
#![cfg_attr(
    feature = "conformance",
    doc = "- [`conformance`] is the suite that every store passes."
)]
//! - [`clock`] and [`ids`] are the only places that read time and draw random numbers.

pub mod change;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod decide;
pub mod decorate;
pub mod error;
pub mod group;
pub mod ids;
pub mod lifecycle;
pub mod limits;
pub mod log;
pub mod memory;
pub mod names;
pub mod record;
pub mod store;
pub mod task;
pub mod time;
pub mod wake;

pub use error::{Error, Invalid, Result};
pub use ids::{
    CommitId, Fence, Ids, Incarnation, LineId, Position, RequestId, Revision, TaskId, Token,
};
pub use limits::Limits;
pub use memory::Memory;
pub use names::{GroupId, IdempotencyKey, Key, Name, Namespace, Prefix};
pub use store::{Store, StoreExt};
pub use time::Timestamp;
