//! The watchdog: what a pass does on any store, with others at the same time, and after a crash.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod archive;
mod crashes;
mod passes;
mod retention;
mod sinks;
mod world;
