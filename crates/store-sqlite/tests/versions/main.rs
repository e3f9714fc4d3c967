//! Files that were written by earlier versions: they read as they did, and work goes on in them.
//!
//! `golden/version-N.sql` is a file of schema version N as text, written by the program that had
//! this version, and `golden/version-N.txt` is what its reads answered then. Both are kept for
//! ever. When the schema gets a new version, run these tests with `PLIMSOLL_UPDATE_GOLDEN=1` once:
//! that adds the files of the new version. It never changes an old `.sql`.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

mod content;
mod theirs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use content::{AGE, HOUR, answers, counted, fill, held, id, index, indexed, next, open, said};
use plimsoll_core::clock::ManualClock;
use plimsoll_core::log::Level;
use plimsoll_core::store::{Compact, Counts, Ending, Log, Logs, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Ids, Result, Store, StoreExt};
use plimsoll_store_sqlite::{Config, SCHEMA_VERSION, Sqlite};
use rusqlite::Connection;
use tempfile::TempDir;

/// The namespaces of a fixture. Both hold the same: nothing of one is seen in the other.
const NAMESPACES: [&str; 2] = ["one", "two"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn updating() -> bool {
    std::env::var_os("PLIMSOLL_UPDATE_GOLDEN").is_some()
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("plimsoll.db");
    (folder, path)
}

fn version(connection: &Connection) -> i64 {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("a version")
}

/// A file that this program makes and fills.
async fn filled(path: &Path) -> Result<()> {
    for namespace in NAMESPACES {
        let clock = ManualClock::new();
        fill(&open(path, &clock, namespace).await?, &clock).await?;
    }
    Ok(())
}

/// The file as statements that make it again.
fn dumped(path: &Path) -> String {
    let file = Connection::open(path).expect("the file");
    let all = |query: &str| -> Vec<(String, Option<String>)> {
        let mut statement = file.prepare(query).expect("a statement");
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let rows = rows.expect("an answer").collect::<Result<_, _>>();
        rows.expect("rows")
    };
    let number = |pragma: &str| -> i64 {
        file.pragma_query_value(None, pragma, |row| row.get(0))
            .expect("a number")
    };
    let mut text = String::from("BEGIN;\n");
    for pragma in ["application_id", "user_version"] {
        text += &format!("PRAGMA {pragma} = {};\n", number(pragma));
    }
    let schema = "SELECT type || ' ' || name, sql FROM sqlite_schema \
                  WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type DESC, name";
    for (name, sql) in all(schema) {
        text += &format!("{};\n", sql.expect("its statement"));
        let Some(table) = name.strip_prefix("table ") else {
            continue;
        };
        let columns = format!("SELECT name, NULL FROM pragma_table_info('{table}')");
        let quoted: Vec<String> = (all(&columns).iter())
            .map(|(name, _)| format!("quote(\"{name}\")"))
            .collect();
        let rows = format!(
            "SELECT {}, NULL FROM {table} ORDER BY 1",
            quoted.join("||','||")
        );
        for (row, _) in all(&rows) {
            text += &format!("INSERT INTO {table} VALUES ({row});\n");
        }
    }
    text + "COMMIT;\n"
}

/// The versions that there are fixtures of.
fn versions() -> Vec<i64> {
    let names = std::fs::read_dir(golden("")).expect("a folder");
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let number = |name: String| {
        name.strip_prefix("version-")?
            .strip_suffix(".sql")?
            .parse()
            .ok()
    };
    let mut versions: Vec<i64> = names.filter_map(number).collect();
    versions.sort_unstable();
    versions
}

fn fixture(version: i64, path: &Path) {
    let text = std::fs::read_to_string(golden(&format!("version-{version}.sql")));
    Connection::open(path)
        .expect("a file")
        .execute_batch(&text.expect("a fixture"))
        .expect("its statements");
}

/// Adds the fixture of the version that this program writes, if that is asked for and new.
async fn add_fixture() -> Result<()> {
    let (_folder, path) = folder();
    filled(&path).await?;
    let version = version(&Connection::open(&path).expect("the file"));
    let name = golden(&format!("version-{version}.sql"));
    if updating() && !name.exists() {
        std::fs::write(&name, dumped(&path)).expect("a fixture");
    }
    assert!(
        name.exists(),
        "there is no fixture of version {version}: run with PLIMSOLL_UPDATE_GOLDEN=1"
    );
    Ok(())
}

#[tokio::test]
async fn every_version_reads_as_it_did() -> Result<()> {
    add_fixture().await?;
    for version in versions() {
        let (_folder, path) = folder();
        fixture(version, &path);
        let clock = ManualClock::new();
        clock.advance(AGE);
        for namespace in NAMESPACES {
            let answers = answers(&open(&path, &clock, namespace).await?).await?;
            let name = golden(&format!("version-{version}.txt"));
            if updating() {
                std::fs::write(&name, &answers).expect("its answers");
            }
            let expected = std::fs::read_to_string(&name).expect("its answers");
            for (found, expected) in answers.lines().zip(expected.lines()) {
                assert_eq!(
                    found, expected,
                    "a file of version {version} reads differently than it did. If all that \
                     differs is a new field with its default, run with PLIMSOLL_UPDATE_GOLDEN=1 \
                     and review the difference"
                );
            }
            assert_eq!(answers.lines().count(), expected.lines().count());
        }
    }
    Ok(())
}

/// Every row of an answer, with all its values.
fn rows(file: &Connection, query: &str) -> Vec<String> {
    let mut statement = file.prepare(query).expect("a statement");
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<String> {
        let values = (0..columns).map(|n| row.get_ref(n).map(|value| format!("{value:?}")));
        Ok(values.collect::<Result<Vec<_>, _>>()?.join(" "))
    };
    let rows = statement.query_map([], row).expect("an answer");
    rows.collect::<Result<_, _>>().expect("rows")
}

/// Columns and indexes of every table, as SQLite sees them.
fn structure(path: &Path) -> Vec<String> {
    let file = Connection::open(path).expect("the file");
    let query = "SELECT 'column', m.name, c.cid, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk \
                 FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' \
                 UNION ALL \
                 SELECT 'index', i.name, x.seqno, x.name, m.name, i.partial, i.origin, x.desc \
                 FROM sqlite_schema m, pragma_index_list(m.name) i, pragma_index_xinfo(i.name) x \
                 WHERE m.type = 'table' ORDER BY 1, 2, 3";
    rows(&file, query)
}

#[tokio::test]
async fn every_version_becomes_this_one() -> Result<()> {
    let (_folder, new) = folder();
    filled(&new).await?;
    for version in versions() {
        let (_folder, path) = folder();
        fixture(version, &path);
        drop(open(&path, &ManualClock::new(), "one").await?);
        assert_eq!(structure(&path), structure(&new), "of version {version}");
        let file = Connection::open(&path).expect("the file");
        assert_eq!(
            self::version(&file),
            self::version(&Connection::open(&new).expect("it"))
        );
        let lanes: Vec<String> = file
            .prepare("SELECT DISTINCT queue FROM lanes ORDER BY queue")
            .expect("a statement")
            .query_map([], |row| row.get(0))
            .expect("an answer")
            .collect::<Result<_, _>>()
            .expect("lanes");
        // The lane that lost its last task has gone.
        assert_eq!(lanes, ["queue"], "of version {version}");
    }
    Ok(())
}

#[tokio::test]
async fn work_goes_on_in_a_file_of_every_version() -> Result<()> {
    for version in versions() {
        let (_folder, path) = folder();
        fixture(version, &path);
        let clock = ManualClock::new();
        clock.advance(AGE);
        let store = open(&path, &clock, "one").await?;
        // What is remembered is answered again.
        assert!(store.commit_one(counted()?).await?.repeated);
        let again = store.claim(next(100)?).await?.tasks;
        assert_eq!(
            again.iter().map(|task| task.id()).collect::<Vec<_>>(),
            [id(2)]
        );
        // Records of any age come into an index.
        store.ensure_index(&index()?).await?;
        let found = store.scan(indexed()?).await?.rows;
        assert_eq!(found.len(), 1, "of version {version}");
        assert_eq!(found[0].key.as_str(), "counter");
        // The log goes on where it was.
        let log = |cursor| Logs {
            task: id(2),
            level: Level::Debug,
            cursor,
            limit: 10,
        };
        let read = store.logs(log(None)).await?;
        assert_eq!(read.lines.len(), 2);
        let lines = vec![
            said(21, Level::Info, "a line that is there"),
            said(22, Level::Info, "new"),
        ];
        let holder = held(2, 1)?;
        store.write(Write::Log(Log { holder, lines })).await?;
        let since = store.logs(log(Some(read.next))).await?.lines;
        let since: Vec<_> = since
            .iter()
            .map(|line| line.line.message.as_str())
            .collect();
        assert_eq!(since, ["new"]);
        // Tasks go on where they were.
        let complete = || Ending::Complete { result: None };
        store.settle(held(2, 1)?, complete()).await?;
        let taken = store.claim(next(101)?).await?.tasks;
        assert_eq!(taken[0].id(), id(3));
        store.settle(held(3, 1)?, complete()).await?;
        store.settle(held(9, 1)?, complete()).await?;
        assert_eq!(
            store.task(id(14)).await?.expect("it").status,
            Status::Pending
        );
        clock.advance(HOUR);
        let swept = store
            .sweep(10, &Ids::seeded(1, Arc::new(clock.clone())))
            .await?;
        assert_eq!(
            (swept.promoted, swept.records, swept.errors),
            (2, 2, vec![])
        );
        // Everything that is old goes, each by its own age.
        let compact = Compact {
            tasks: [Status::Completed, Status::Failed, Status::Cancelled]
                .map(|status| (status, HOUR + AGE))
                .into(),
            groups: Some(HOUR),
            history: Some(HOUR + AGE),
            logs: Some(HOUR + AGE),
            limit: 100,
        };
        let done = store.compact(compact).await?;
        assert_eq!((done.tasks, done.groups, done.lines), (3, 1, 2), "{done:?}");
        assert_eq!((done.entries, done.remembered, done.more), (31, 3, false));
        let two = open(&path, &clock, "two").await?;
        assert_eq!(two.counts(Counts::default()).await?[0].by_status.len(), 6);
    }
    Ok(())
}

#[tokio::test]
async fn an_entry_of_version_4_carries_its_record_once_that_is_written() -> Result<()> {
    let (_folder, path) = folder();
    fixture(4, &path);
    let clock = ManualClock::new();
    clock.advance(AGE);
    let store = open(&path, &clock, "one").await?;
    let carried = || -> i64 {
        let question = "SELECT count(*) FROM index_entries e JOIN records r \
                        ON r.ns = 1 AND r.key = e.key AND r.fields = e.fields";
        let file = Connection::open(&path).expect("the file");
        let answer = file.query_row(question, [], |row| row.get(0));
        answer.expect("a count")
    };
    assert_eq!(carried(), 0);
    let found = store.scan(indexed()?).await?.rows;
    assert_eq!(found[0].key.as_str(), "counter");
    store
        .write(Write::Touch(found[0].key.clone(), None))
        .await?;
    assert_eq!(carried(), 1);
    assert_eq!(
        store.scan(indexed()?).await?.rows[0].fields,
        found[0].fields
    );
    Ok(())
}

#[tokio::test]
async fn a_line_of_version_1_that_cannot_be_read_stays_with_its_task() -> Result<()> {
    let (_folder, path) = folder();
    fixture(1, &path);
    let broken = Connection::open(&path).expect("the file").execute(
        "UPDATE logs SET line = x'c1' WHERE level = 3 AND ns = 1",
        [],
    );
    assert_eq!(broken, Ok(1));
    let clock = ManualClock::new();
    clock.advance(AGE);
    let store = open(&path, &clock, "one").await?;
    let compact = Compact {
        logs: Some(AGE),
        limit: 100,
        ..Compact::default()
    };
    assert_eq!(store.compact(compact).await?.lines, 2);
    let logs = Logs {
        task: id(2),
        level: Level::Debug,
        cursor: None,
        limit: 10,
    };
    assert!(matches!(store.logs(logs).await, Err(Error::Corrupt(_))));
    Ok(())
}

#[tokio::test]
async fn a_migration_that_fails_leaves_the_file_as_it_was() -> Result<()> {
    // A name that the migration needs, after its first steps.
    for (version, name) in [(1, "logs_1"), (5, "history_5")] {
        let (_folder, path) = folder();
        fixture(version, &path);
        let before = dumped(&path);
        let file = Connection::open(&path).expect("the file");
        file.execute_batch(&format!("CREATE TABLE {name} (x)"))
            .expect("a table");
        let clock = ManualClock::new();
        let error = open(&path, &clock, "one")
            .await
            .expect_err("a name is taken");
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        file.execute_batch(&format!("DROP TABLE {name}"))
            .expect("no table");
        assert_eq!(dumped(&path), before);
        assert!(open(&path, &clock, "one").await.is_ok());
    }
    Ok(())
}

/// How much of the file is records in [`large`], in bytes.
const LARGE: u64 = 20_000_000;

/// A file of version 5 with large records, as a program left it, and somebody who looks at it.
fn large(path: &Path) -> Connection {
    fixture(5, path);
    let file = Connection::open(path).expect("the file");
    let more = format!(
        "PRAGMA journal_mode = WAL; WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n \
         WHERE n < {}) INSERT INTO records SELECT 1, 'more/' || n, zeroblob(10000), 1, 1, NULL FROM n",
        LARGE / 10_000
    );
    file.execute_batch(&more).expect("large records");
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .expect("an empty log");
    file
}

fn log_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).expect("the log").len()
}

#[tokio::test]
async fn a_migration_leaves_a_small_log_behind() -> Result<()> {
    let (_folder, path) = folder();
    let file = large(&path);
    let store = open(&path, &ManualClock::new(), "one").await?;
    assert_eq!(version(&file), SCHEMA_VERSION);
    assert!(log_bytes(&path) < LARGE / 100, "{}", log_bytes(&path));
    store.close().await
}

#[tokio::test]
async fn who_reads_during_a_migration_is_not_waited_for() -> Result<()> {
    let (_folder, path) = folder();
    let file = large(&path);
    let count = || rows(&file, "SELECT count(*) FROM records");
    file.execute_batch("BEGIN").expect("a snapshot");
    let before = count();
    // It would wait for a day if it waited until the log can be emptied.
    let config = Config {
        busy_timeout: 24 * HOUR,
        ..Config::new(&path)
    };
    let store = Sqlite::open(config)?;
    assert!(log_bytes(&path) > LARGE, "{}", log_bytes(&path));
    assert_eq!((version(&file), count()), (5, before.clone()));
    file.execute_batch("COMMIT").expect("its end");
    assert_eq!((version(&file), count()), (SCHEMA_VERSION, before));
    drop(store);
    Ok(())
}
