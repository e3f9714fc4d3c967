//! What somebody has made in a file beside our tables is as it was after a migration.

use std::path::Path;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Compact, Put, Write};
use plimsoll_core::{Key, Result, Store, StoreExt};
use plimsoll_store_sqlite::SCHEMA_VERSION;
use rusqlite::Connection;

use crate::content::{AGE, open};
use crate::{fixture, folder, rows, version};

/// What SQLite says when a row is missing that another one refers to.
const REFERRED: &str = "FOREIGN KEY constraint failed";

/// A file of version 5 in which somebody has made this.
fn with(made: &str, path: &Path) -> Connection {
    fixture(5, path);
    let file = Connection::open(path).expect("the file");
    file.execute_batch(made).expect("what somebody makes");
    file
}

#[tokio::test]
async fn views_show_what_they_did() -> Result<()> {
    let (_folder, path) = folder();
    let made = "CREATE VIEW all_keys AS SELECT ns, key FROM records; \
         CREATE VIEW newest AS SELECT ns, max(position) AS position FROM history GROUP BY ns; \
         CREATE VIEW whole_records AS SELECT * FROM records; \
         CREATE VIEW whole_history AS SELECT * FROM history;";
    let file = with(made, &path);
    let shown = || {
        ["all_keys", "newest", "whole_records", "whole_history"]
            .map(|view| rows(&file, &format!("SELECT * FROM {view} ORDER BY 1, 2")))
    };
    let before = shown();
    assert!(before.iter().all(|rows| rows.len() > 1), "{before:?}");
    let store = open(&path, &ManualClock::new(), "one").await?;
    assert_eq!(version(&file), SCHEMA_VERSION);
    assert_eq!(shown(), before);
    store.close().await
}

/// Tables that refer to records and to the history, by their columns or by their primary key.
const NOTES: &str = "\
    CREATE TABLE by_columns (ns, key, FOREIGN KEY (ns, key) REFERENCES records (ns, key)); \
    CREATE TABLE by_key (ns, key, FOREIGN KEY (ns, key) REFERENCES records); \
    CREATE TABLE bound (ns, key, FOREIGN KEY (ns, key) REFERENCES records ON DELETE CASCADE); \
    CREATE TABLE marks (ns, position, FOREIGN KEY (ns, position) REFERENCES history); \
    INSERT INTO by_columns VALUES (1, 'a/1'); \
    INSERT INTO by_key VALUES (1, 'a/2'); \
    INSERT INTO bound VALUES (1, 'counter'); \
    INSERT INTO marks VALUES (1, 1);";

#[tokio::test]
async fn foreign_keys_still_refer_to_our_tables() -> Result<()> {
    let (_folder, path) = folder();
    let file = with(NOTES, &path);
    let store = open(&path, &ManualClock::new(), "one").await?;
    assert_eq!(version(&file), SCHEMA_VERSION);
    assert_eq!(rows(&file, "PRAGMA foreign_key_check"), [""; 0]);
    file.pragma_update(None, "foreign_keys", true)
        .expect("a setting");
    for (table, there, missing) in [
        ("by_columns", "'a/3'", "'missing'"),
        ("by_key", "'a/3'", "'missing'"),
        ("bound", "'a/3'", "'missing'"),
        ("marks", "2", "1000"),
    ] {
        let insert = |what| file.execute(&format!("INSERT INTO {table} VALUES (1, {what})"), []);
        assert_eq!(insert(there), Ok(1), "into {table}");
        let error = insert(missing).expect_err("there is no such row");
        assert_eq!(error.to_string(), REFERRED, "into {table}");
    }
    store.close().await
}

/// What is switched off for the migration is on again afterwards.
#[tokio::test]
async fn the_store_removes_nothing_that_somebody_refers_to() -> Result<()> {
    let (_folder, path) = folder();
    let file = with(NOTES, &path);
    let clock = ManualClock::new();
    clock.advance(AGE);
    let store = open(&path, &clock, "one").await?;
    assert_eq!(version(&file), SCHEMA_VERSION);
    for key in ["a/1", "a/2"] {
        let key = Key::new(key)?;
        let error = store.write(Write::Delete(key.clone())).await;
        let error = error.expect_err("somebody refers to it").to_string();
        assert!(error.contains(REFERRED), "{error}");
        // It can be written all the same.
        let put = Put::new(key.clone(), fields([("value", "new")])?);
        store.write(Write::Put(put)).await?;
        assert!(store.record(&key).await?.is_some());
    }
    let compact = Compact {
        history: Some(AGE),
        limit: 1,
        ..Compact::default()
    };
    let error = store.compact(compact.clone()).await;
    let error = error.expect_err("somebody refers to it").to_string();
    assert!(error.contains(REFERRED), "{error}");
    // What nobody refers to goes, and takes with it what is bound to it.
    file.execute_batch("DELETE FROM marks").expect("no marks");
    assert_eq!(store.compact(compact).await?.entries, 1);
    assert_eq!(rows(&file, "SELECT * FROM bound").len(), 1);
    store.write(Write::Delete(Key::new("counter")?)).await?;
    assert_eq!(rows(&file, "SELECT * FROM bound"), [""; 0]);
    store.close().await
}
