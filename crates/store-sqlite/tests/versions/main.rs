//! Files that were written by earlier versions: they read as they did, and work goes on in them.
//!
//! `golden/version-N.sql` is a file of schema version N as text, written by the program that had
//! this version, and `golden/version-N.txt` is what its reads answered then. Both are kept for
//! ever. When the schema gets a new version, run these tests with `PLIMSOLL_UPDATE_GOLDEN=1` once:
//! that adds the files of the new version. It never changes an old `.sql`.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

mod content;

use std::path::{Path, PathBuf};

use content::{AGE, answers, fill, open};
use plimsoll_core::Result;
use plimsoll_core::clock::ManualClock;
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
