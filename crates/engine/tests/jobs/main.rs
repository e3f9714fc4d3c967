//! Partitioned jobs, over the memory store with a clock that tests move, and over SQLite; or over the server that
//! PLIMSOLL_TEST_STORE names.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answering;
mod contention;
mod crashes;
mod deleting;
mod describing;
mod events;
mod joining;
mod lost_replies;
mod order;
mod reading;
mod retention;
mod setting;
#[path = "../stored/mod.rs"]
mod stored;
mod threads;
mod views;
mod world;
