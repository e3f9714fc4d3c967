//! The schema against a real server: what people see, what the database refuses, who may do what.

mod guards;
mod migrations;
mod partitions;
mod plans;
mod roles;
mod server;
mod views;
