//! Workers: what becomes of tasks, leases and handlers.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod answers;
mod setup;
