//! Processes that open a file of an earlier version: at the same time, killed in the middle of it, on a disk that is
//! too small for it.

use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

use libtest_mimic::Failed;
use plimsoll_core::clock::SystemClock;
use plimsoll_core::{Ids, Result};
use plimsoll_store_sqlite::{SCHEMA_VERSION, schema_version};

use crate::{lines, open, start};

const FIXTURES: [&str; 2] = [
    include_str!("../golden/version-5.sql"),
    // What brings it up to date cannot be done twice.
    include_str!("../golden/version-4.sql"),
];

/// A file of an earlier version as a program left it, with so much of a moment's work.
fn older_file(fixture: &str, path: &Path, rows: u32) {
    const MORE: &str = "\
        PRAGMA journal_mode = WAL; \
        CREATE TEMP TABLE n AS WITH RECURSIVE n(n) AS \
            (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10000) SELECT n FROM n; \
        INSERT INTO records SELECT r.ns, 'more/' || n, fields, revision, modified_at, n \
            FROM records r, n WHERE r.key = 'a/1'; \
        INSERT INTO history SELECT h.ns, 1000 + n, at, changes \
            FROM history h, n WHERE h.position = 1; \
        UPDATE namespaces SET position = 11000, compacted = 1000; \
        DELETE FROM history WHERE position <= 1000;";
    let file = rusqlite::Connection::open(path).expect("SQLite opens it");
    file.execute_batch(fixture).expect("a fixture");
    let more = MORE.replace("n < 10000", &format!("n < {rows}"));
    file.execute_batch(&more).expect("more rows");
}

/// Whatever has happened to whoever was bringing it up to date, the file has everything, as one version or the other.
fn assert_whole(path: &Path, before: &[String]) -> Result<(), Failed> {
    // Not compared as they are: there are too many to be shown.
    assert!(rows(path) == before, "rows are lost, or doubled");
    let file = rusqlite::Connection::open(path)?;
    let sound: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    assert_eq!(sound, "ok");
    Ok(())
}

/// All records and the whole history, in order.
fn rows(path: &Path) -> Vec<String> {
    const ROWS: &str = "\
        SELECT ns || ' ' || key || ' ' || quote(fields) || ' ' || revision || ' ' || modified_at \
            || ' ' || quote(expires_at) FROM records \
        UNION ALL SELECT ns || ' ' || position || ' ' || at || ' ' || quote(changes) FROM history \
        ORDER BY 1";
    let looker = rusqlite::Connection::open(path).expect("SQLite opens it");
    let mut statement = looker.prepare(ROWS).expect("a statement");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.collect::<Result<_, _>>().expect("all of them")
}

pub(crate) fn older() -> Result<(), Failed> {
    for round in 0..8 {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("plimsoll.db");
        older_file(FIXTURES[round % 2], &path, 10_000);
        let before = rows(&path);
        if round % 4 < 2 {
            // A turnstile of its own for each, so that they all wait for SQLite at once.
            let turnstile = folder.path().join("plimsoll.db-turn");
            std::os::unix::fs::symlink("/proc/self/stat", turnstile)?;
        }
        let mut children: Vec<Child> = (0..3).map(|_| start("upgrade", &path)).collect();
        let mut said: Vec<_> = children.iter_mut().map(lines).collect();
        for said in &mut said {
            assert_eq!(said.next().as_deref(), Some("ready"));
        }
        for child in &mut children {
            // It is what they wait for, so that all begin at once.
            drop(child.stdin.take());
        }
        for (child, said) in children.iter_mut().zip(said) {
            let said: Vec<String> = said.collect();
            assert!(child.wait()?.success(), "in round {round}: {said:?}");
        }
        assert_eq!(schema_version(&path)?, SCHEMA_VERSION);
        assert_whole(&path, &before)?;
    }
    Ok(())
}

/// How much is in the log of a file.
fn logged(path: &Path) -> u64 {
    let log = path.with_extension("db-wal");
    log.metadata().map_or(0, |log| log.len())
}

pub(crate) fn killed() -> Result<(), Failed> {
    const CUT_SHORT: u32 = 6;
    let chance = Ids::seeded(7, Arc::new(SystemClock::new()));
    let mut cut_short = 0;
    for round in 0..200 {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("plimsoll.db");
        older_file(FIXTURES[round % 2], &path, 20_000);
        let (before, older) = (rows(&path), schema_version(&path)?);
        let mut child = start("upgrade", &path);
        let mut said = lines(&mut child);
        assert_eq!(said.next().as_deref(), Some("ready"));
        let enough = chance.below(4 << 20);
        drop(child.stdin.take());
        while logged(&path) <= enough && child.try_wait()?.is_none() {
            std::thread::yield_now();
        }
        child.kill()?;
        child.wait()?;
        let begun = logged(&path) > 0;
        assert_whole(&path, &before)?;
        cut_short += u32::from(begun && schema_version(&path)? == older);
        let mut again = start("upgrade", &path);
        assert!(again.wait()?.success(), "in round {round}");
        assert_eq!(schema_version(&path)?, SCHEMA_VERSION);
        assert_whole(&path, &before)?;
        if cut_short == CUT_SHORT {
            return Ok(());
        }
    }
    Err(format!("only {cut_short} were killed in the middle of it").into())
}

/// The disk has room for the file, and not for another one beside it.
pub(crate) async fn on_a_full_disk(path: &Path) -> Result<()> {
    older_file(FIXTURES[0], path, 3_000);
    let (before, older) = (rows(path), schema_version(path)?);
    let ballast = path.with_extension("ballast");
    fill(&ballast);
    let error = open(path).await.expect_err("there is no room for it");
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(schema_version(path)?, older);
    assert_whole(path, &before).expect("everything is there");
    std::fs::remove_file(&ballast).expect("room");
    drop(open(path).await?);
    assert_eq!(schema_version(path)?, SCHEMA_VERSION);
    assert_whole(path, &before).expect("everything is there");
    Ok(())
}

/// Takes what room is left, but for what it takes to open a file.
fn fill(ballast: &Path) {
    let mut file = std::fs::File::create(ballast).expect("a file");
    let mut bytes: u64 = 0;
    while file.write_all(&[0; 4_096]).is_ok() {
        bytes += 4_096;
    }
    file.set_len(bytes.saturating_sub(64 << 10))
        .expect("a shorter file");
}
