//! What is particular to PostgreSQL: wake-ups, submitting in somebody's transaction, advisory locks.

#![allow(clippy::expect_used, clippy::panic)]

mod advisory;
mod inbox;
mod server;
mod submit;
mod wakeups;
