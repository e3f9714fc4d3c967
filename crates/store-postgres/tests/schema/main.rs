//! The schema against a real server: what people see, what the database refuses, who may do what.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod docs;
mod guards;
mod migrations;
mod partitions;
mod plans;
mod roles;
mod server;
mod tenants;
mod views;
