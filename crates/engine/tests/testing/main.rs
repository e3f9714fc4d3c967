//! The test kit: what it runs, when time moves, and what a failed assertion says.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod assertions;
mod draining;
mod dying;
mod performing;
mod setup;
