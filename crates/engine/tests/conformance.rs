//! The conformance suite through group commit.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::clock::Clock;
use plimsoll_core::conformance::{self, Harness, Opener};
use plimsoll_core::{Limits, Memory, Namespace, Result, Store};

struct Merged;

#[async_trait]
impl Harness for Merged {
    fn name(&self) -> &'static str {
        "group_commit"
    }

    async fn start(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Opener>> {
        Ok(Arc::new(Opened(Memory::with(clock, Limits::default()))))
    }
}

struct Opened(Memory);

#[async_trait]
impl Opener for Opened {
    async fn open(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
        let store = Arc::new(self.0.open(namespace));
        Ok(Arc::new(plimsoll_engine::group_commit(store)))
    }
}

fn main() -> ExitCode {
    conformance::main(vec![Arc::new(Merged)])
}
