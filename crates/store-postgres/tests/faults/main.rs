//! What goes wrong with a server and with the way to it: what callers are told, that nothing is lost
//! or doubled, and that all is well again within seconds. Real time counts here, so every wait has a
//! deadline.

// What is printed is seen when a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod durability;
mod following;
mod leases;
mod locks;
mod network;
#[path = "../../../cli/src/chaos/proxy.rs"]
mod proxy;
mod refusals;
mod replies;
mod server;
mod traffic;
mod world;
