//! Locks in a file, between handles that share nothing else, as processes do.

use std::sync::Arc;

use plimsoll_core::{Namespace, Result};
use plimsoll_engine::{Engine, Locks};
use plimsoll_store_sqlite::{Config, Sqlite};

use crate::contention::Treasure;
use crate::world::{code, spawn};

async fn processes(folder: &tempfile::TempDir, count: usize) -> Result<Vec<Locks>> {
    let mut processes = Vec::new();
    for _ in 0..count {
        let sqlite = Sqlite::open(Config::new(folder.path().join("locks.db")))?;
        let store = sqlite.namespace(Namespace::new("test")?).await?;
        processes.push(Engine::new(Arc::new(store)).locks());
    }
    Ok(processes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_of_five_processes_come_one_at_a_time() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let processes = processes(&folder, 5).await?;
    let treasure = Arc::new(Treasure::default());
    let mut visitors = Vec::new();
    for n in 0..50 {
        let (lock, treasure) = (processes[n % 5].lock("treasure"), treasure.clone());
        visitors.push(spawn(async move {
            let visit = lock.with(async |tenure| treasure.visit(tenure.token().get()).await);
            visit.await
        }));
    }
    for visitor in visitors {
        visitor.await.unwrap()?;
    }
    assert_eq!(treasure.visits(), 50);
    Ok(())
}

#[tokio::test]
async fn one_who_waits_in_another_process_is_next_although_the_holder_is_greedy() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let processes = processes(&folder, 2).await?;
    let guard = processes[0].lock("a").acquire().await?;
    let lock = processes[1].lock("a").owner("patient");
    let waiting = spawn(async move { lock.acquire().await });
    while processes[0].get("a").await?.unwrap().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let token = guard.token();
    guard.release().await?;
    assert_eq!(
        code(processes[0].lock("a").try_acquire().await),
        "lock_not_acquired"
    );
    let guard = waiting.await.unwrap()?;
    assert!(guard.token() > token);
    guard.release().await?;
    assert!(processes[0].lock("a").try_acquire().await.is_ok());
    Ok(())
}
