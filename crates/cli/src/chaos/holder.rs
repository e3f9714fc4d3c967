//! `plimsoll chaos-holder`: takes one lock after another and writes under it, without ever asking
//! whether it still has it. Ends after a turn once its standard input has ended.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plimsoll::locks::LockGuard;
use plimsoll::{Engine, Plimsoll};

use super::resource::Resource;
use super::{ChaosError, stage};

/// One lock holder of the chaos, started by it.
#[derive(Debug, Args)]
pub(crate) struct ChaosHolder {
    #[arg(long)]
    store: String,
    #[arg(long)]
    namespace: String,
    #[arg(long)]
    name: String,
    /// Where the resources are.
    #[arg(long)]
    folder: PathBuf,
}

pub(super) fn lock_name(lock: u64) -> String {
    format!("chaos-{}", lock + 1)
}

impl ChaosHolder {
    pub(crate) async fn run(self) -> Result<(), ChaosError> {
        let mut told = stage::end_of_input()?;
        let engine = Plimsoll::open(&self.store)?.engine(&self.namespace).await?;
        let me = format!("{}/{}", self.name, engine.ids().incarnation());
        while !told.has_ended() {
            let name = lock_name(engine.ids().below(stage::LOCKS));
            let resource = Resource::new(&self.folder, &name);
            let began = engine.clock().monotonic();
            let lock = engine.locks().lock(&name).ttl(stage::LEASE).owner(&me);
            let guard = lock.acquire().await?;
            let waited = engine.clock().monotonic() - began;
            let token = guard.token().get();
            write(&engine, &guard, &resource, &me).await?;
            let lost = match guard.release().await {
                Ok(()) => false,
                Err(error) if error.code() == "lock_not_held" || error.is_transient() => true,
                Err(error) => return Err(error.into()),
            };
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            let noted = resource.turn(token, &me, waited_ms, lost);
            noted.map_err(ChaosError::Resource)?;
        }
        Ok(())
    }
}

/// Some writes with pauses in between, until one is refused.
async fn write(
    engine: &Engine,
    guard: &LockGuard,
    resource: &Resource,
    me: &str,
) -> Result<(), ChaosError> {
    let (ids, token) = (engine.ids(), guard.token().get());
    for _ in 0..=ids.below(8) {
        let taken = resource.offer(token, me, || guard.is_held());
        if !taken.map_err(ChaosError::Resource)? {
            break;
        }
        let pause = Duration::from_millis(20 + ids.below(180));
        engine.clock().sleep(pause).await;
    }
    Ok(())
}
