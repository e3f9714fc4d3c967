//! What the engine tells about itself.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod coordination;
mod figures;
mod labels;
mod sampler;
mod stories;
mod table;
