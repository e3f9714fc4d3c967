//! `plimsoll work` as people run it: the real binary, real commands, a SQLite file.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod control;
mod ending;
mod many;
mod setup;
mod streams;
mod verdicts;
