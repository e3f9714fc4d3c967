//! What is particular to PostgreSQL: wake-ups, submitting in somebody's transaction, advisory locks.

mod advisory;
mod server;
mod submit;
mod wakeups;
