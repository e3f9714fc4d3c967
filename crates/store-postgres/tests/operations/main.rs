//! What is particular to PostgreSQL: wake-ups, submitting in somebody's transaction, advisory locks,
//! indexes whose rows others have, receipts that older programs have stored.

#![allow(clippy::expect_used, clippy::panic)]

mod advisory;
mod inbox;
mod indexes;
mod receipts;
mod server;
mod submit;
mod wakeups;
