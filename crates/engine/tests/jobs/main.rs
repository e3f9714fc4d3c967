//! Partitioned jobs, over the memory store with a clock that tests move, and over SQLite.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answering;
mod contention;
mod crashes;
mod deleting;
mod events;
mod joining;
mod lost_replies;
mod order;
mod reading;
mod retention;
mod setting;
mod threads;
mod world;
