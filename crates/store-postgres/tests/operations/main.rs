//! What is particular to PostgreSQL: wake-ups, submitting in somebody's transaction, advisory locks,
//! records in entries of indexes.

#![allow(clippy::expect_used, clippy::panic)]

mod advisory;
mod carried;
mod inbox;
mod server;
mod submit;
mod wakeups;
