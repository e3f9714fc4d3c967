//! Job states as they are read: from memory, live, at a barrier. Over the memory store, with a clock that
//! tests move.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod barriers;
mod baselines;
mod batches;
mod concurrent;
mod figures;
mod history;
mod lines;
mod listener;
mod lives;
mod many;
mod reading;
mod slow;
mod subscribing;
mod world;
