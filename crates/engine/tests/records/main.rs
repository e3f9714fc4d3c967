//! The client of records, over the memory store and over SQLite, with a clock that tests move.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod contention;
mod expiry;
mod interface;
mod lost_replies;
mod scans;
mod swaps;
mod task_states;
mod typed;
mod watching;
mod world;
