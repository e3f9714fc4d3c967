//! The PostgreSQL store: a schema of typed tables, any number of processes.
//!
//! A call is a transaction: rows are locked and read, decided about in Rust, and written set by
//! set. Claims take tasks that nobody else is taking. Positions of the history are given in the
//! order of commits that depend on each other, and readers stop before what is still in flight.
//!
//! ```no_run
//! use plimsoll_core::{Namespace, Store};
//! use plimsoll_store_postgres::{Config, Postgres, migrate};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let config = Config::new("postgres://worker@127.0.0.1/jobs")?;
//! migrate(&config).await?;
//! let postgres = Postgres::open(config).await?;
//! let store = postgres.namespace(Namespace::new("orders")?).await?;
//! store.ping().await?;
//! # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
//! ```

mod advisory;
mod apply;
mod call;
mod claim;
mod claims;
mod clerk;
mod clock;
mod codec;
mod compact;
mod config;
mod connect;
mod error;
mod floors;
mod health;
mod held;
mod inbox;
mod indexes;
mod joint;
mod listen;
mod load;
mod notice;
mod partitions;
#[cfg(test)]
mod plans;
mod pool;
mod read;
mod record_row;
mod renew;
mod roles;
mod schema;
mod server;
mod session;
mod spawn;
mod statement;
mod store;
mod stuck;
mod taken_keys;
mod task_row;
mod tls;
mod transaction;

pub use config::Config;
pub use health::{Health, OpenTransaction, health};
pub use roles::grant;
pub use schema::{SCHEMA_VERSION, grants_sql, migrate, migration_sql, viewer_sql};
pub use server::SERVER_VERSION_MIN;
pub use store::{Postgres, PostgresStore};
pub use tls::Tls;
pub use tokio_postgres;

/// Checks the snippets of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
