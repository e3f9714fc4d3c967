//! Files that are not as they should be: typed errors, nothing lost, and work goes on when the
//! cause ends.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Durability, Get, Put, Write};
use plimsoll_core::{Error, Key, Namespace, Result, Store, StoreExt};
use plimsoll_store_sqlite::{Config, Sqlite, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("plimsoll.db");
    (folder, path)
}

async fn open(path: &Path) -> Result<SqliteStore> {
    let config = Config {
        busy_timeout: Duration::from_millis(20),
        ..Config::new(path)
    };
    let sqlite = Sqlite::open(config)?;
    sqlite.namespace(Namespace::new("test")?).await
}

async fn put(store: &SqliteStore, key: &str) -> Result<()> {
    let put = Put::new(Key::new(key)?, fields([("f", "v".repeat(1_000))])?);
    store.write(Write::Put(put)).await.map(drop)
}

async fn has(store: &SqliteStore, key: &str) -> Result<bool> {
    let keys = vec![Key::new(key)?];
    Ok(store.get(Get { keys }).await?[0].is_some())
}

fn foreign(path: &Path) -> Connection {
    Connection::open(path).expect("SQLite opens it")
}

#[tokio::test]
async fn what_was_written_is_there_when_the_file_is_opened_again() -> Result<()> {
    let (_folder, path) = folder();
    let store = open(&path).await?;
    put(&store, "k").await?;
    store.close().await?;
    drop(store);
    assert!(has(&open(&path).await?, "k").await?);
    Ok(())
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() -> Result<()> {
    let (_folder, path) = folder();
    let other = foreign(&path);
    other
        .execute_batch("CREATE TABLE theirs (x)")
        .expect("a table");
    let error = open(&path).await.expect_err("not ours");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("another program"), "{error}");
    let mode: String = other
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .expect("a mode");
    assert_eq!(mode, "delete");
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_no_database_is_corrupt() -> Result<()> {
    let (_folder, path) = folder();
    std::fs::write(&path, "this is not a database, ".repeat(1_000)).expect("a file");
    let error = open(&path).await.expect_err("no database");
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_both_versions() -> Result<()> {
    let (_folder, path) = folder();
    drop(open(&path).await?);
    foreign(&path)
        .pragma_update(None, "user_version", 99)
        .expect("a version");
    let error = open(&path).await.expect_err("too new");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("99") && text.contains("up to 1"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_truncated_file_is_corrupt_and_not_a_panic() -> Result<()> {
    let (_folder, path) = folder();
    let store = open(&path).await?;
    for n in 0..200 {
        put(&store, &format!("k{n}")).await?;
    }
    drop(store);
    // The threads of a dropped store end by themselves; the log is moved once nobody holds it.
    let whole = foreign(&path);
    whole
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .expect("a checkpoint");
    drop(whole);
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("the file");
    let length = file.metadata().expect("its length").len();
    file.set_len(length / 2).expect("a shorter file");
    for end in ["-wal", "-shm"] {
        let mut beside = path.clone().into_os_string();
        beside.push(end);
        std::fs::remove_file(PathBuf::from(beside)).ok();
    }
    let error = async {
        let store = open(&path).await?;
        for n in 0..200 {
            has(&store, &format!("k{n}")).await?;
        }
        Ok::<(), Error>(())
    };
    let error = error.await.expect_err("half of it is gone");
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_file_that_another_program_holds_is_unavailable_until_it_lets_go() -> Result<()> {
    let (_folder, path) = folder();
    let store = open(&path).await?;
    put(&store, "before").await?;
    let holder = foreign(&path);
    holder.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let error = put(&store, "meanwhile").await.expect_err("it is held");
    let Error::Unavailable(Unavailable { applied, cause }) = &error else {
        panic!("{error}");
    };
    assert_eq!(*applied, Applied::No);
    assert!(cause.contains("another program holds the file"), "{cause}");
    assert!(has(&store, "before").await?, "reading goes on");
    holder.execute_batch("ROLLBACK").expect("it lets go");
    put(&store, "after").await?;
    assert!(has(&store, "after").await? && !has(&store, "meanwhile").await?);
    Ok(())
}

#[tokio::test]
async fn a_folder_that_is_not_there_says_what_to_check() -> Result<()> {
    let (_folder, path) = folder();
    let error = open(&path.join("missing").join("x.db"))
        .await
        .expect_err("no folder");
    assert!(
        error.to_string().contains("is there and can be written"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn only_what_a_file_can_keep_is_promised() -> Result<()> {
    let (_folder, path) = folder();
    for durability in [Durability::Process, Durability::Majority] {
        let config = Config {
            durability,
            ..Config::new(&path)
        };
        assert!(matches!(Sqlite::open(config), Err(Error::Unsupported(_))));
    }
    let config = Config {
        durability: Durability::System,
        ..Config::new(&path)
    };
    let sqlite = Sqlite::open(config)?;
    let store = sqlite.namespace(Namespace::new("test")?).await?;
    assert_eq!(store.capabilities().durability, Durability::System);
    Ok(())
}

#[tokio::test]
async fn a_task_that_cannot_be_read_is_named_and_keeps_nobody_from_working() -> Result<()> {
    use plimsoll_core::clock::SystemClock;
    use plimsoll_core::store::{Claim, Pick, Tasks};
    use plimsoll_core::task::{Lane, NewTask, Worker};
    use plimsoll_core::{Ids, Name};
    let (_folder, path) = folder();
    let ids = Ids::seeded(1, std::sync::Arc::new(SystemClock::new()));
    let lane = Lane::new("q", "k")?;
    let store = open(&path).await?;
    let tasks: Vec<NewTask> = (0..3)
        .map(|n| NewTask::new(ids.task(), lane.clone(), n.to_string()))
        .collect();
    for task in &tasks {
        store.submit(task.clone()).await?;
    }
    let bad = tasks[1].id;
    foreign(&path)
        .execute(
            "UPDATE tasks SET state = x'c1' WHERE id = ?",
            [bad.as_u128().to_be_bytes().to_vec()],
        )
        .expect("a bad row");
    let claim = Claim {
        pick: Pick::Next {
            lanes: vec![lane],
            limit: 2,
        },
        worker: Worker {
            name: Name::new("w")?,
            incarnation: ids.incarnation(),
        },
        lease: Duration::from_secs(60),
        request: ids.request(),
    };
    let claimed = store.claim(claim).await?;
    let taken: Vec<_> = claimed.tasks.iter().map(|task| task.id()).collect();
    assert_eq!(taken, [tasks[0].id, tasks[2].id]);
    let [(refused, Error::Corrupt(what))] = &claimed.refused[..] else {
        panic!("{:?}", claimed.refused);
    };
    assert_eq!(*refused, bad);
    assert!(what.contains(&bad.to_string()), "{what}");
    let answer = store.tasks(Tasks { ids: vec![bad] }).await;
    assert!(matches!(answer, Err(Error::Corrupt(_))), "{answer:?}");
    let cancel = |id| {
        plimsoll_core::store::Commit::of(Write::Cancel(plimsoll_core::store::Cancel {
            task: id,
            reason: None,
        }))
    };
    let answers = store.commit(vec![cancel(bad), cancel(tasks[0].id)]).await;
    assert!(matches!(&answers[0], Err(Error::Corrupt(_))) && answers[1].is_ok());
    Ok(())
}

#[tokio::test]
async fn the_file_does_not_grow_without_end_under_steady_load() -> Result<()> {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use plimsoll_core::Ids;
    use plimsoll_core::Name;
    use plimsoll_core::clock::{Clock, ManualClock};
    use plimsoll_core::store::{Claim, Commit, Compact, Ending, Pick, Settle};
    use plimsoll_core::task::{Lane, NewTask, Status, Worker};

    const ROUNDS: usize = 12;
    let (_folder, path) = folder();
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let ids = Ids::seeded(1, shared.clone());
    let config = Config {
        clock: shared,
        ..Config::new(&path)
    };
    let store = Sqlite::open(config)?;
    let store = store.namespace(Namespace::new("test")?).await?;
    let lane = Lane::new("q", "k")?;
    let worker = Worker {
        name: Name::new("w")?,
        incarnation: ids.incarnation(),
    };
    let day = Duration::from_secs(86_400);
    let mut pages = Vec::new();
    for _ in 0..ROUNDS {
        for _ in 0..4 {
            let mut commit = Commit::new();
            for n in 0..200 {
                let task = NewTask::new(ids.task(), lane.clone(), "x".repeat(200 + n));
                commit = commit.write(Write::Submit(Box::new(task)));
            }
            store.commit_one(commit).await?;
            let claim = Claim {
                pick: Pick::Next {
                    lanes: vec![lane.clone()],
                    limit: 200,
                },
                worker: worker.clone(),
                lease: day,
                request: ids.request(),
            };
            let taken = store.claim(claim).await?.tasks;
            let settle = |holder| {
                let how = Ending::Complete { result: None };
                Commit::of(Write::Settle(Settle { holder, how }))
            };
            let settles = taken.iter().filter_map(|task| task.holder()).map(settle);
            for receipt in store.commit(settles.collect()).await {
                receipt?;
            }
        }
        clock.advance(day);
        let compact = Compact {
            tasks: BTreeMap::from([(Status::Completed, day)]),
            groups: Some(day),
            history: Some(day),
            limit: 100,
        };
        while store.compact(compact.clone()).await?.more {}
        let looker = foreign(&path);
        let count = |pragma: &str| -> i64 {
            looker
                .pragma_query_value(None, pragma, |row| row.get(0))
                .expect("a number")
        };
        pages.push(count("page_count"));
    }
    let (early, late) = (pages[3], pages[ROUNDS - 1]);
    assert!(late <= early + early / 10, "pages by round: {pages:?}");
    assert_eq!(store.counts(Default::default()).await?, []);
    Ok(())
}
