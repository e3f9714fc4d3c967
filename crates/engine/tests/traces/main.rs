//! Spans of attempts and their phases, the traces they belong to, and lines about states. In a process of its own: a
//! place in the code that is first passed while nobody listens may stay silent for those who come.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod propagation;
mod spans;
mod states;
mod watched;
