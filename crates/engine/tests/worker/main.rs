//! Workers: what becomes of tasks, leases and handlers.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod answers;
mod apart;
mod builder;
mod calls;
mod cancel;
mod completion;
mod context;
mod deadline;
mod drain;
mod faults;
mod handover;
mod layers;
mod lease;
mod lifecycles;
mod load;
mod logs;
mod refusals;
mod registry;
mod replies;
mod rest;
mod setup;
mod signals;
mod sweeper;
mod troubles;
mod unlike;
