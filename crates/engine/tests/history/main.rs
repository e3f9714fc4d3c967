//! The history as it is followed in a process.

mod watching;
mod world;
