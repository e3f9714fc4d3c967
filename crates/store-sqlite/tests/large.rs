//! To find something among what is large, only what was asked for is read.
//!
//! Alone in its process: it counts what the process reads, as Linux does for it.

#![cfg(target_os = "linux")]
// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

use std::time::Duration;

use plimsoll_core::change::Interest;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Changes, Commit, Put, Start, Write};
use plimsoll_core::{Key, Namespace, Position, Prefix, Result, Store, StoreExt};
use plimsoll_store_sqlite::{Config, Sqlite, SqliteStore};

const RECORDS: usize = 500;
const BYTES: usize = 64 * 1024;

fn key(n: usize) -> Result<Key> {
    Ok(Key::new(format!("large.{n:04}"))?)
}

/// How many bytes this process has read so far.
fn read() -> usize {
    let io = std::fs::read_to_string("/proc/self/io").expect("Linux counts them");
    let count = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    count
        .and_then(|count| count.parse().ok())
        .expect("a number")
}

/// What moves the log into the file reads, too: it sleeps.
async fn open(path: &std::path::Path) -> Result<SqliteStore> {
    let config = Config {
        poll: Duration::from_secs(3_600),
        ..Config::new(path)
    };
    let sqlite = Sqlite::open(config)?;
    sqlite.namespace(Namespace::new("test")?).await
}

#[tokio::test]
async fn one_among_many_is_found_without_reading_others() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("plimsoll.db");
    let store = open(&path).await?;
    let value = "x".repeat(BYTES);
    let mut last = Position::ZERO;
    for n in 0..RECORDS {
        let put = Put::new(key(n)?, fields([("value", value.clone())])?);
        let receipt = store.commit_one(Commit::of(Write::Put(put))).await?;
        last = receipt.position.expect("a place in the history");
    }
    drop(store);

    let store = open(&path).await?;
    // What has to be read once is.
    store.record(&key(0)?).await?.expect("the first");
    let before = read();
    for n in [RECORDS / 3, RECORDS / 2, RECORDS - 1] {
        let found = store.record(&key(n)?).await?.expect("the record");
        assert_eq!(found.field("value").map(|value| value.len()), Some(BYTES));
    }
    let took = read() - before;
    assert!(
        (3 * BYTES..6 * BYTES).contains(&took),
        "{took} bytes for three records"
    );

    let before = read();
    let newest = Changes {
        start: Start::After(Position::new(last.get() - 2)),
        interests: vec![Interest::Records(Prefix::new("large.")?)],
        limit: 10,
    };
    assert_eq!(store.changes(newest).await?.entries.len(), 2);
    let took = read() - before;
    assert!(
        (2 * BYTES..4 * BYTES).contains(&took),
        "{took} bytes for two entries"
    );

    // What is written over is read once to decide, and once more for the pages that it leaves.
    let before = read();
    for n in [RECORDS / 4, RECORDS / 5, RECORDS - 2] {
        let put = Put::new(key(n)?, fields([("value", "small")])?);
        store.write(Write::Put(put)).await?;
    }
    store.write(Write::Delete(key(RECORDS / 6)?)).await?;
    let took = read() - before;
    assert!(
        (4 * BYTES..12 * BYTES).contains(&took),
        "{took} bytes for four writes"
    );
    Ok(())
}
