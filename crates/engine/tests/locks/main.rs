//! The client of locks, over the memory store with a clock that tests move, and over SQLite.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod contention;
mod dropping;
mod elections;
mod line;
mod lost_replies;
mod reading;
mod renewal;
mod sqlite;
mod taking;
mod tokens;
mod unreadable;
mod uses;
mod wire;
mod world;
