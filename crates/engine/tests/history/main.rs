//! The history as it is followed in a process.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod poor;
mod refusals;
mod watching;
mod world;
