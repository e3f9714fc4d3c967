//! The client of tasks, over the memory store with a clock that tests move.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod bulk;
mod claiming;
mod errors;
mod following;
mod holding;
mod lost_replies;
mod operating;
mod reading;
mod retries;
mod sequences;
mod submitting;
mod waiting;
mod waiting_crowds;
mod world;
