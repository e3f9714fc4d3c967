//! A namespace on a store that outlives processes: in a file, or on the server that PLIMSOLL_TEST_STORE names.

mod under_way;

use std::sync::Arc;

use plimsoll_core::clock::{Clock, ManualClock, SystemClock};
use plimsoll_core::{Ids, Namespace, Store};
use plimsoll_store_postgres::{Postgres, migrate};
use plimsoll_store_sqlite::Sqlite;
use tempfile::TempDir;

pub(crate) use under_way::UnderWay;

/// Where it is.
#[derive(Clone)]
pub(crate) enum Stored {
    File(Arc<TempDir>),
    Server(Box<plimsoll_store_postgres::Config>, Namespace),
}

impl Stored {
    /// One that nobody else has.
    pub(crate) fn new() -> Self {
        match std::env::var("PLIMSOLL_TEST_STORE") {
            Ok(url) => {
                let config = plimsoll_store_postgres::Config {
                    unsafe_durability: true,
                    ..plimsoll_store_postgres::Config::new(&url).unwrap()
                };
                let ids = Ids::random(Arc::new(SystemClock::new()));
                let name = format!("test-{}", ids.task());
                Self::Server(Box::new(config), Namespace::new(name).unwrap())
            }
            Err(_) => Self::File(Arc::new(tempfile::tempdir().unwrap())),
        }
    }

    /// It as a process of its own has it.
    pub(crate) async fn open(&self, clock: &ManualClock) -> Arc<dyn Store> {
        self.open_with(Some(Arc::new(clock.clone()))).await
    }

    /// It as a process of its own has it, with this clock or with a real one.
    pub(crate) async fn open_with(&self, clock: Option<Arc<dyn Clock>>) -> Arc<dyn Store> {
        match self {
            Self::File(folder) => {
                let config = plimsoll_store_sqlite::Config {
                    clock: clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
                    ..plimsoll_store_sqlite::Config::new(folder.path().join("plimsoll.db"))
                };
                let name = Namespace::new("test").unwrap();
                let sqlite = Sqlite::open(config).unwrap();
                Arc::new(sqlite.namespace(name).await.unwrap())
            }
            Self::Server(config, name) => {
                migrate(config).await.unwrap();
                let config = plimsoll_store_postgres::Config {
                    clock,
                    ..(**config).clone()
                };
                let postgres = Postgres::open(config).await.unwrap();
                Arc::new(postgres.namespace(name.clone()).await.unwrap())
            }
        }
    }
}
