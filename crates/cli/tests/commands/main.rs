//! The commands for people and scripts, as these run them: the real binary on a real file.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

mod doctor;
mod guide;
mod job;
mod job_wait;
mod journal;
mod lock;
mod lock_errors;
mod logs;
mod look;
mod operate;
mod record;
mod record_cas;
mod record_scan;
mod record_watch;
mod retention;
#[cfg(feature = "postgres")]
mod server;
mod submit;
mod sweep;
mod wait;
mod worker;
mod world;
