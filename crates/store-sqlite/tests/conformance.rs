//! The conformance suite against a file in a temporary folder.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::clock::Clock;
use plimsoll_core::conformance::{self, Harness, Opener};
use plimsoll_core::{Error, Namespace, Result, Store};
use plimsoll_store_sqlite::{Config, Sqlite};
use tempfile::TempDir;

struct SqliteHarness;

#[async_trait]
impl Harness for SqliteHarness {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn start(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Opener>> {
        let folder = tempfile::tempdir().map_err(|e| Error::Corrupt(e.to_string().into()))?;
        Ok(Arc::new(Opened { folder, clock }))
    }
}

struct Opened {
    folder: TempDir,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Opener for Opened {
    /// Each handle has connections of its own, as another process would have.
    async fn open(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
        let config = Config {
            clock: self.clock.clone(),
            ..Config::new(self.folder.path().join("plimsoll.db"))
        };
        Ok(Arc::new(Sqlite::open(config)?.namespace(namespace).await?))
    }
}

fn main() -> ExitCode {
    conformance::main(vec![Arc::new(SqliteHarness)])
}
