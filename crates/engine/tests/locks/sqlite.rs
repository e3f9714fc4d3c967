//! Locks in a file, between handles that share nothing else, as processes do, and between processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use plimsoll_core::{Namespace, Result};
use plimsoll_engine::{Engine, Locks};
use plimsoll_store_sqlite::{Config, Sqlite};

use crate::contention::Treasure;
use crate::world::{code, spawn};

async fn process(folder: &Path) -> Result<Locks> {
    let sqlite = Sqlite::open(Config::new(folder.join("locks.db")))?;
    let store = sqlite.namespace(Namespace::new("test")?).await?;
    Ok(Engine::new(Arc::new(store)).locks())
}

async fn processes(folder: &tempfile::TempDir, count: usize) -> Result<Vec<Locks>> {
    let mut processes = Vec::new();
    for _ in 0..count {
        processes.push(process(folder.path()).await?);
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

/// In which folder a child finds the file.
const FOLDER: &str = "PLIMSOLL_TEST_LOCKS";
const VISITS: u64 = 25;

/// The test program runs itself again, for what these processes do.
#[test]
fn two_processes_come_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let children = [(); 2].map(|()| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::a_process", "--ignored"])
            .env(FOLDER, folder.path())
            .spawn()
            .unwrap()
    });
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let (visits, _) = found(&folder.path().join("treasure"));
    assert_eq!(visits, 2 * VISITS);
}

#[tokio::test]
#[ignore = "a part of another test"]
async fn a_process() -> Result<()> {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("the other test says where"));
    let locks = process(&folder).await?;
    let (treasure, inside) = (folder.join("treasure"), folder.join("inside"));
    for _ in 0..VISITS {
        let visit = locks.with("treasure", async |tenure| {
            fs::File::create_new(&inside).expect("nobody else is inside");
            let (visits, before) = found(&treasure);
            let token = tenure.token().get();
            assert!(token > before, "{token} after {before}");
            fs::write(&treasure, format!("{} {token}", visits + 1)).unwrap();
            fs::remove_file(&inside).unwrap();
        });
        visit.await?;
    }
    Ok(())
}

/// How many visits there were, and the token of the last one.
fn found(treasure: &Path) -> (u64, u64) {
    let Ok(text) = fs::read_to_string(treasure) else {
        return (0, 0);
    };
    let (visits, token) = text.split_once(' ').unwrap();
    (visits.parse().unwrap(), token.parse().unwrap())
}
