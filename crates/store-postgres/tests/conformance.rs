//! The conformance suite against a real server: directly, through group commit with several groups
//! in flight, and through a pooler that hands connections on after each transaction.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::conformance::{self, Harness, Opener};
use plimsoll_core::error::Problem;
use plimsoll_core::{Invalid, Namespace, Result, Store};
use plimsoll_engine::{Bounds, GroupCommit};
use plimsoll_store_postgres::{Config, Postgres, migrate};

const SERVER: &str = "PLIMSOLL_TEST_POSTGRES_URL";
const POOLER: &str = "PLIMSOLL_TEST_PGBOUNCER_URL";

struct PostgresHarness {
    name: &'static str,
    /// The variable that says where it is.
    url: &'static str,
    /// Whether connections are the store's own.
    direct: bool,
    /// Whether callers share store calls.
    merged: bool,
}

#[async_trait]
impl Harness for PostgresHarness {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn start(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Opener>> {
        let url = std::env::var(self.url).map_err(|_| {
            let missing = format!("{}, which scripts/test sets", self.url);
            Invalid::new("environment", Problem::Missing(missing.into()))
        })?;
        let config = Config {
            clock: Some(clock),
            listen: self.direct,
            prepare: self.direct,
            unsafe_durability: true,
            ..Config::new(&url)?
        };
        migrate(&config).await?;
        let merged = self.merged;
        Ok(Arc::new(Server { config, merged }))
    }
}

struct Server {
    config: Config,
    merged: bool,
}

#[async_trait]
impl Opener for Server {
    /// Each handle has connections of its own, as another process would have.
    async fn open(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
        let postgres = Postgres::open(self.config.clone()).await?;
        let store = Arc::new(postgres.namespace(namespace).await?);
        let bounds = Bounds {
            in_flight_max: 2,
            ..Bounds::default()
        };
        Ok(match self.merged {
            true => {
                let clock = Arc::new(SystemClock::new());
                Arc::new(GroupCommit::new(store, bounds, clock))
            }
            false => store,
        })
    }
}

fn main() -> ExitCode {
    let postgres = PostgresHarness {
        name: "postgres",
        url: SERVER,
        direct: true,
        merged: false,
    };
    let merged = PostgresHarness {
        name: "group_commit",
        merged: true,
        ..postgres
    };
    let pooled = PostgresHarness {
        name: "pgbouncer",
        url: POOLER,
        direct: false,
        merged: false,
    };
    let harnesses: Vec<Arc<dyn Harness>> =
        vec![Arc::new(postgres), Arc::new(merged), Arc::new(pooled)];
    conformance::main(harnesses)
}
