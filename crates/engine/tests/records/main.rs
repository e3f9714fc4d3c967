//! The client of records, over the memory store and over SQLite, with a clock that tests move; or, instead of SQLite,
//! over the server that PLIMSOLL_TEST_STORE names.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod contention;
mod expiry;
mod indexes;
mod interface;
mod lost_replies;
mod scans;
#[path = "../stored/mod.rs"]
mod stored;
mod swaps;
mod task_states;
mod typed;
mod watching;
mod world;
