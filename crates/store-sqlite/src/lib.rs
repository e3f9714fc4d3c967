//! The SQLite store: one file, any number of processes.
//!
//! One writer thread takes everything that waits, decides it in one transaction and answers after
//! the transaction is on disk, so that many callers share one fsync. Readers have connections of
//! their own and never wait for the writer. Nothing that matters lives in the process: another
//! process on the same file sees the same, and takes turns with this one.
//!
//! ```
//! use plimsoll_core::{Namespace, Store};
//! use plimsoll_store_sqlite::{Config, Sqlite};
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("plimsoll.db");
//! let sqlite = Sqlite::open(Config::new(path))?;
//! let store = sqlite.namespace(Namespace::new("orders")?).await?;
//! store.ping().await?;
//! # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
//! ```

mod cache;
mod claim;
mod codec;
mod compact;
mod config;
mod error;
mod hints;
mod indexes;
mod lanes;
mod mover;
mod overlay;
#[cfg(test)]
#[allow(clippy::expect_used)]
mod plan;
mod read;
mod readers;
mod rows;
mod schema;
mod store;
mod tasks;
mod threads;
mod transaction;
mod turnstile;
mod watch;
mod writer;

pub use config::Config;
pub use schema::{VERSION as SCHEMA_VERSION, schema_version};
pub use store::{Sqlite, SqliteStore};

/// Checks the snippets of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
