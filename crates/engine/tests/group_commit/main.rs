//! What group commit promises beyond what every store does.

#![allow(clippy::unwrap_used, clippy::panic)]

mod bounds;
mod failures;
mod merging;
mod pace;
mod setup;
