//! The conformance suite against a real server.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::clock::Clock;
use plimsoll_core::conformance::{self, Harness, Opener};
use plimsoll_core::error::Problem;
use plimsoll_core::{Invalid, Namespace, Result, Store};
use plimsoll_store_postgres::{Config, Postgres, migrate};

struct PostgresHarness;

#[async_trait]
impl Harness for PostgresHarness {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn start(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Opener>> {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL").map_err(|_| {
            let missing = "PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets";
            Invalid::new("environment", Problem::Missing(missing.into()))
        })?;
        let config = Config {
            clock: Some(clock),
            ..Config::new(&url)?
        };
        migrate(&config).await?;
        Ok(Arc::new(Server { config }))
    }
}

struct Server {
    config: Config,
}

#[async_trait]
impl Opener for Server {
    /// Each handle has connections of its own, as another process would have.
    async fn open(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
        let postgres = Postgres::open(self.config.clone()).await?;
        Ok(Arc::new(postgres.namespace(namespace).await?))
    }
}

fn main() -> ExitCode {
    conformance::main(vec![Arc::new(PostgresHarness)])
}
