//! What is particular to PostgreSQL: wake-ups, submitting in somebody's transaction, advisory locks,
//! indexes whose rows others have.

#![allow(clippy::expect_used, clippy::panic)]

mod advisory;
mod inbox;
mod indexes;
mod server;
mod submit;
mod wakeups;
