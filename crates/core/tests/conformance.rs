//! The conformance suite against the memory store, bare and behind each decorator.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::clock::Clock;
use plimsoll_core::conformance::{self, Harness, Opener};
use plimsoll_core::decorate::{Decorated, FaultPlan, Faults, Observe};
use plimsoll_core::{Limits, Memory, Namespace, Result, Store};

/// Puts something around a store.
type Wrap = fn(Arc<dyn Store>, Arc<dyn Clock>) -> Arc<dyn Store>;

struct MemoryBehind {
    name: &'static str,
    wrap: Wrap,
}

#[async_trait]
impl Harness for MemoryBehind {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn start(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Opener>> {
        Ok(Arc::new(Opened {
            memory: Memory::with(clock.clone(), Limits::default()),
            clock,
            wrap: self.wrap,
        }))
    }
}

struct Opened {
    memory: Memory,
    clock: Arc<dyn Clock>,
    wrap: Wrap,
}

#[async_trait]
impl Opener for Opened {
    async fn open(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
        let store = Arc::new(self.memory.open(namespace));
        Ok((self.wrap)(store, self.clock.clone()))
    }
}

fn main() -> ExitCode {
    let behind = |name, wrap| Arc::new(MemoryBehind { name, wrap }) as Arc<dyn Harness>;
    conformance::main(vec![
        behind("memory", |store, _| store),
        behind("faults_off", |store, clock| {
            Arc::new(Decorated::new(store, Faults::new(FaultPlan::none(), clock)))
        }),
        behind("observed", |store, clock| {
            let observe = Observe::new(store.as_ref(), clock);
            Arc::new(Decorated::new(store, observe))
        }),
    ])
}
