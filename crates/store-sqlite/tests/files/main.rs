//! Files that are not as they should be: typed errors, nothing lost, and work goes on when the
//! cause ends.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

mod growth;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::SystemClock;
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Claim, Durability, Get, Log, Pick, Put, Scan, Write};
use plimsoll_core::task::{Holder, Lane, NewTask, Task, WorkerId};
use plimsoll_core::{Error, Ids, Key, Name, Namespace, Prefix, Result, Store, StoreExt, TaskId};
use plimsoll_store_sqlite::{Config, SCHEMA_VERSION, Sqlite, SqliteStore, schema_version};
use rusqlite::Connection;
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("plimsoll.db");
    (folder, path)
}

async fn open(path: &Path) -> Result<SqliteStore> {
    open_with(Config::new(path)).await
}

async fn open_with(config: Config) -> Result<SqliteStore> {
    let sqlite = Sqlite::open(config)?;
    sqlite.namespace(Namespace::new("test")?).await
}

fn impatient(path: &Path) -> Config {
    Config {
        busy_timeout: Duration::from_millis(20),
        ..Config::new(path)
    }
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

/// A claimed task, as its holder.
async fn held(store: &SqliteStore, ids: &Ids) -> Result<Holder> {
    let task = NewTask::new(ids.task(), Lane::new("q", "k")?, "");
    let id = store.submit(task).await?.id;
    let claim = Claim {
        pick: Pick::Ids(vec![id]),
        worker: WorkerId {
            name: Name::new("w")?,
            incarnation: ids.incarnation(),
        },
        lease: Duration::from_secs(60),
        request: ids.request(),
    };
    let task = store.claim(claim).await?.tasks.remove(0);
    Ok(task.holder().expect("it was claimed"))
}

async fn log(store: &SqliteStore, ids: &Ids, holder: &Holder, count: usize) -> Result<()> {
    let line = |n: usize| NewLine::new(ids.line(), Level::Info, n.to_string());
    let lines = (0..count).map(line).collect();
    let holder = holder.clone();
    store.write(Write::Log(Log { holder, lines })).await?;
    Ok(())
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

/// A writer does not look for ids above all that it knows.
#[tokio::test]
async fn an_id_that_another_process_has_taken_is_found() -> Result<()> {
    let (_folder, path) = folder();
    let (ours, theirs) = (open(&path).await?, open(&path).await?);
    let new = |id, payload: &'static str| -> Result<NewTask> {
        let lane = Lane::new("mail", "send")?;
        Ok(NewTask::new(TaskId::from_u128(id), lane, payload))
    };
    ours.submit(new(5, "first")?).await?;
    let taken = theirs.submit(new(9, "theirs")?).await?;
    let refused = ours.submit(new(9, "ours")?).await;
    let refused = refused.expect_err("it is taken");
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    assert_eq!(ours.submit(new(9, "theirs")?).await?, taken, "the same");
    ours.submit(new(10, "ours")?).await?;
    Ok(())
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() -> Result<()> {
    let (folder, path) = folder();
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
    let files = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(files, 1, "nothing is left beside it");
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
    let known = format!("up to {SCHEMA_VERSION}");
    assert!(text.contains("99") && text.contains(&known), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_version_of_a_file_is_told_without_changing_it() -> Result<()> {
    let (folder, path) = folder();
    assert!(matches!(schema_version(&path), Err(Error::Unavailable(_))));
    assert!(!path.exists(), "who looks makes nothing");
    std::fs::write(&path, "").expect("a file");
    assert_eq!(schema_version(&path)?, 0);
    drop(open(&path).await?);
    assert_eq!(schema_version(&path)?, SCHEMA_VERSION);
    for version in [1, 99] {
        let written = foreign(&path).pragma_update(None, "user_version", version);
        written.expect("a version");
        assert_eq!(schema_version(&path)?, version);
        assert_eq!(schema_version(&path)?, version, "it stays so");
    }
    let theirs = folder.path().join("theirs.db");
    let table = foreign(&theirs).execute_batch("CREATE TABLE theirs (x)");
    table.expect("a table");
    let error = schema_version(&theirs).expect_err("not ours");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    Ok(())
}

#[tokio::test]
async fn who_has_the_file_open_writes_no_more_once_a_newer_program_has_changed_it() -> Result<()> {
    let (_folder, path) = folder();
    let store = open(&path).await?;
    put(&store, "before").await?;
    foreign(&path)
        .pragma_update(None, "user_version", 99)
        .expect("a version");
    for _ in 0..2 {
        let error = put(&store, "after").await.expect_err("too new");
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
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
    let store = open_with(impatient(&path)).await?;
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
async fn all_who_wait_for_a_held_file_are_told_at_once() -> Result<()> {
    let (_folder, path) = folder();
    let config = Config {
        busy_timeout: Duration::from_millis(500),
        ..Config::new(&path)
    };
    let store = open_with(config).await?;
    let holder = foreign(&path);
    holder.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let calls = (0..64).map(async |n| {
        let answer = put(&store, &format!("k{n}")).await;
        // Whoever is still in the queue when the first is told would find the file free.
        holder.execute_batch("ROLLBACK").ok();
        answer
    });
    for answer in futures::future::join_all(calls).await {
        let Err(Error::Unavailable(unavailable)) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(unavailable.applied, Applied::No);
    }
    put(&store, "after").await
}

#[tokio::test]
async fn a_call_that_the_file_refuses_does_not_take_its_neighbours_with_it() -> Result<()> {
    let (_folder, path) = folder();
    let store = open(&path).await?;
    let holder = foreign(&path);
    holder
        .execute_batch(
            "CREATE TRIGGER mean BEFORE INSERT ON records WHEN new.key = 'k7' \
             BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        )
        .expect("a trigger");
    // All of them queue behind the first, so that they are one group.
    holder.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let mut calls: Vec<_> = keys.iter().map(|key| Box::pin(put(&store, key))).collect();
    for call in &mut calls {
        assert!(futures::poll!(call).is_pending());
    }
    holder.execute_batch("ROLLBACK").expect("it lets go");
    for (n, answer) in futures::future::join_all(calls)
        .await
        .into_iter()
        .enumerate()
    {
        match answer {
            Ok(()) => assert_ne!(n, 7),
            Err(error) => {
                assert_eq!(n, 7, "{error}");
                assert!(error.to_string().contains("nothing was applied"), "{error}");
            }
        }
        assert_eq!(has(&store, &format!("k{n}")).await?, n != 7);
    }
    Ok(())
}

#[tokio::test]
async fn a_claim_finds_what_is_submitted_in_its_group_whoever_came_first() -> Result<()> {
    let (_folder, path) = folder();
    let store = open(&path).await?;
    let ids = Ids::seeded(1, Arc::new(SystemClock::new()));
    let lane = Lane::new("q", "k")?;
    let claim = Claim {
        pick: Pick::Next {
            lanes: vec![lane.clone()],
            limit: 10,
        },
        worker: WorkerId {
            name: Name::new("w")?,
            incarnation: ids.incarnation(),
        },
        lease: Duration::from_secs(60),
        request: ids.request(),
    };
    let holder = foreign(&path);
    holder.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut claiming = Box::pin(store.claim(claim));
    assert!(futures::poll!(&mut claiming).is_pending());
    let task = NewTask::new(ids.task(), lane, "payload");
    let mut submitting = Box::pin(store.submit(task));
    assert!(futures::poll!(&mut submitting).is_pending());
    holder.execute_batch("ROLLBACK").expect("it lets go");
    let (claimed, submitted) = tokio::join!(claiming, submitting);
    let claimed: Vec<_> = claimed?.tasks.iter().map(Task::id).collect();
    assert_eq!(claimed, [submitted?.id]);
    Ok(())
}

#[tokio::test]
async fn what_waits_for_the_writer_is_bounded_by_bytes() -> Result<()> {
    let (_folder, path) = folder();
    let config = Config {
        queue_bytes_max: 20_000,
        ..Config::new(&path)
    };
    let store = open_with(config).await?;
    let holder = foreign(&path);
    holder.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    let mut calls: Vec<_> = keys.iter().map(|key| Box::pin(put(&store, key))).collect();
    for call in &mut calls {
        assert!(futures::poll!(call).is_pending());
    }
    // What has room is carried out, whether or not its caller still waits. The rest is not.
    drop(calls);
    holder.execute_batch("ROLLBACK").expect("it lets go");
    put(&store, "after").await?;
    let page = store.scan(Scan::new(Prefix::new("k")?, 1_000)).await?;
    let written = page.rows.len();
    assert!((10..20).contains(&written), "{written} of 100");
    // More than all the room goes alone.
    let large = Put::new(Key::new("large")?, fields([("f", "v".repeat(100_000))])?);
    store.write(Write::Put(large)).await?;
    Ok(())
}

#[tokio::test]
async fn nobody_waits_for_ever_for_a_process_that_stands_in_the_turnstile() -> Result<()> {
    let (_folder, path) = folder();
    let store = open_with(impatient(&path)).await?;
    let mut turnstile = path.clone().into_os_string();
    turnstile.push("-turn");
    let turnstile = std::fs::File::open(turnstile).expect("the turnstile");
    turnstile.lock().expect("nobody is in it");
    for n in 0..3 {
        put(&store, &format!("k{n}")).await?;
    }
    drop(open_with(impatient(&path)).await?);
    turnstile.unlock().expect("it leaves");
    put(&store, "after").await
}

#[tokio::test]
async fn a_process_hears_its_own_writes_without_looking_for_them() -> Result<()> {
    let (_folder, path) = folder();
    let config = Config {
        poll: Duration::from_secs(86_400),
        ..Config::new(&path)
    };
    let store = open_with(config).await?;
    let mut listener = store.wakeups();
    put(&store, "k").await?;
    assert!(listener.next().await.history);
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
    use plimsoll_core::task::{Lane, NewTask, WorkerId};
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
        worker: WorkerId {
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
async fn lines_are_heard_of_through_another_handle_to_the_file() -> Result<()> {
    let (_folder, path) = folder();
    let quick = || Config {
        poll: Duration::from_millis(5),
        ..Config::new(&path)
    };
    let (store, other) = (open_with(quick()).await?, open_with(quick()).await?);
    let ids = Ids::random(Arc::new(SystemClock::new()));
    let holder = held(&store, &ids).await?;
    let mut hints = other.wakeups();
    log(&store, &ids, &holder, 1).await?;
    while !hints.next().await.logs {}
    Ok(())
}
