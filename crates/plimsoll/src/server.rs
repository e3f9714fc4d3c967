//! A database that is connected to when it is first needed: only then is there surely a runtime.

use std::sync::Arc;

use plimsoll_core::clock::SystemClock;
use plimsoll_core::{Namespace, Result, Store};
use plimsoll_engine::{Bounds, GroupCommit};
use plimsoll_store_postgres::{Config, Postgres, migrate};
use tokio::sync::OnceCell;

use crate::url::PostgresUrl;

/// A database, whether or not it is connected yet.
#[derive(Debug)]
pub(crate) struct Server {
    config: Config,
    migrate: bool,
    connected: OnceCell<Postgres>,
}

impl Server {
    pub(crate) fn new(url: &PostgresUrl) -> Result<Self> {
        Ok(Self {
            config: url.config()?,
            migrate: url.migrate,
            connected: OnceCell::new(),
        })
    }

    pub(crate) async fn namespace(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
        let postgres = self.connected.get_or_try_init(|| self.connect()).await?;
        merged(postgres, namespace).await
    }

    async fn connect(&self) -> Result<Postgres> {
        if self.migrate {
            migrate(&self.config).await?;
        }
        Postgres::open(self.config.clone()).await
    }
}

/// A namespace whose callers share transactions: PostgreSQL does not merge them by itself.
pub(crate) async fn merged(postgres: &Postgres, namespace: Namespace) -> Result<Arc<dyn Store>> {
    let store = postgres.namespace(namespace).await?;
    // While one transaction waits for its fsync, another one is decided, unless that answers fewer callers.
    let bounds = Bounds {
        in_flight_max: 2,
        ..Bounds::default()
    };
    let clock = Arc::new(SystemClock::new());
    Ok(Arc::new(GroupCommit::new(Arc::new(store), bounds, clock)))
}

impl PostgresUrl {
    /// Everything the URL says, for who wants to configure more.
    pub fn config(&self) -> Result<Config> {
        let mut config = Config::new(&self.server)?;
        if let Some(schema) = &self.schema {
            config.schema.clone_from(schema);
        }
        if let Some(connections) = self.connections {
            config.writers = (connections / 3).max(1);
            config.readers = connections - config.writers;
        }
        config.call_timeout = self.call_timeout.unwrap_or(config.call_timeout);
        (config.listen, config.prepare) = (self.listen, self.prepare);
        config.unsafe_durability = self.unsafe_durability;
        Ok(config)
    }
}
