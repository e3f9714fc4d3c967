//! A schema of a test's own.

use std::sync::Arc;

use plimsoll_core::clock::Clock;
use plimsoll_core::{Namespace, Store};
use plimsoll_engine::Engine;
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};
use serde_json::Value;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

pub(crate) fn url() -> String {
    std::env::var("PLIMSOLL_TEST_POSTGRES_URL")
        .expect("PLIMSOLL_TEST_POSTGRES_URL is missing: scripts/test sets it")
}

/// A connection for statements of the test.
pub(crate) async fn connect(config: &Config) -> Client {
    let (client, connection) = config.server.connect(NoTls).await.expect("a connection");
    #[allow(clippy::disallowed_methods, reason = "it ends with the client")]
    tokio::spawn(connection);
    client
}

/// A schema, and a connection that finds its tables without naming it.
pub(crate) struct Place {
    pub(crate) config: Config,
    pub(crate) sql: Client,
}

impl Place {
    /// A name that no schema has.
    pub(crate) async fn empty(schema: &str) -> Self {
        let mut config = Config::new(&url()).expect("a URL");
        config.schema = schema.into();
        config.unsafe_durability = true;
        let place = Self {
            sql: connect(&config).await,
            config,
        };
        place.drop().await;
        let path = format!("SET search_path = {}", place.quoted());
        place.run(&path).await;
        place
    }

    /// A schema as migrations leave it.
    pub(crate) async fn new(schema: &str) -> Self {
        let place = Self::empty(schema).await;
        migrate(&place.config).await.expect("migrations");
        place
    }

    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.config.schema.replace('"', "\"\""))
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        self.store_of(self.config.clone()).await
    }

    pub(crate) async fn store_with(&self, clock: Arc<dyn Clock>) -> PostgresStore {
        let clock = Some(clock);
        let config = Config {
            clock,
            ..self.config.clone()
        };
        self.store_of(config).await
    }

    async fn store_of(&self, config: Config) -> PostgresStore {
        let postgres = Postgres::open(config).await.expect("a database");
        let namespace = Namespace::new("media").expect("a name");
        postgres.namespace(namespace).await.expect("a namespace")
    }

    pub(crate) async fn engine(&self) -> Engine {
        Engine::new(Arc::new(self.store().await) as Arc<dyn Store>)
    }

    pub(crate) async fn run(&self, sql: &str) {
        (self.sql.batch_execute(sql).await).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Why the database refuses this.
    pub(crate) async fn refusal(&self, sql: &str) -> SqlState {
        let refused = self.sql.batch_execute(sql).await;
        let error = refused.expect_err(sql);
        error
            .code()
            .unwrap_or_else(|| panic!("{sql}: {error}"))
            .clone()
    }

    /// The rows of a query, each as JSON.
    pub(crate) async fn rows(&self, query: &str) -> Vec<Value> {
        let query = format!("SELECT to_jsonb(q)::text FROM ({query}) q");
        let rows = self.sql.query(&query, &[]).await;
        let rows = rows.unwrap_or_else(|error| panic!("{query}: {error:?}"));
        let texts = rows.iter().map(|row| row.get::<_, String>(0));
        texts
            .map(|text| serde_json::from_str(&text).expect("JSON"))
            .collect()
    }

    /// The first column of a query, as text.
    pub(crate) async fn column(&self, query: &str) -> Vec<String> {
        let rows = self.sql.simple_query(query).await;
        let rows = rows.unwrap_or_else(|error| panic!("{query}: {error:?}"));
        let rows = rows.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        rows.map(str::to_owned).collect()
    }

    /// Leaves nothing behind.
    pub(crate) async fn drop(&self) {
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.quoted());
        self.run(&sql).await;
    }
}
