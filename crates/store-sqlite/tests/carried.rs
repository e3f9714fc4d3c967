//! Entries of indexes carry small records: they are equal to them, whatever is written.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::record::{Fields, Index, Record, fields};
use plimsoll_core::store::{Commit, DeclareIndex, DropIndex, Merge, Put, Range, Scan, Write};
use plimsoll_core::{Error, Ids, Key, Name, Namespace, Prefix, Result, Store, StoreExt};
use plimsoll_store_sqlite::{Config, Sqlite, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

/// Fields that take no more bytes are carried.
const SMALL: i64 = 512;
const LIFE: Duration = Duration::from_secs(60);

struct World {
    _folder: TempDir,
    path: PathBuf,
    clock: ManualClock,
    ids: Ids,
    store: SqliteStore,
}

async fn world() -> Result<World> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("plimsoll.db");
    let clock = ManualClock::new();
    let sqlite = Sqlite::open(Config {
        clock: Arc::new(clock.clone()),
        ..Config::new(&path)
    })?;
    Ok(World {
        _folder: folder,
        path,
        ids: Ids::seeded(5, Arc::new(clock.clone())),
        clock,
        store: sqlite.namespace(Namespace::new("test")?).await?,
    })
}

fn index(field: &str) -> Result<Index> {
    Ok(Index {
        prefix: Prefix::new("a.")?,
        field: Name::new(field)?,
    })
}

fn one(path: &Path, question: &str) -> i64 {
    let looker = Connection::open(path).expect("SQLite opens it");
    let answer = looker.query_row(question, [], |row| row.get(0));
    answer.expect("a number")
}

impl World {
    async fn put(&self, key: &str, bytes: usize) -> Result<()> {
        let fields = fields([("n", "1".into()), ("padding", "x".repeat(bytes))])?;
        let put = Put::new(Key::new(key)?, fields);
        self.store.write(Write::Put(put)).await.map(drop)
    }

    async fn range(&self) -> Result<Vec<Record>> {
        let range = Range::new(Name::new("n")?);
        let scan = Scan::new(Prefix::new("a.")?, 100).range(range);
        Ok(self.store.scan(scan).await?.rows)
    }

    fn change(&self, statement: &str) {
        let other = Connection::open(&self.path).expect("SQLite opens it");
        assert_eq!(other.execute(statement, []), Ok(1), "{statement}");
    }

    /// Any write of some records, which have any size.
    fn something(&self) -> Result<Write> {
        let pick = |count: u64| self.ids.below(count) as usize;
        let key = Key::new(format!("a.{:02}", pick(20)))?;
        let padding = "x".repeat([0, 300, 480, 500, 2_000][pick(5)]);
        let padding = fields([("padding", padding)])?;
        let mut all = fields([("n", pick(4).to_string()), ("m", "7".into())])?;
        all.extend(padding.clone());
        let count = Name::new(["n", "m"][pick(2)])?;
        Ok(match pick(9) {
            0..=1 => Write::Put(Put::new(key, all)),
            2 => Write::Merge(Merge::new(key).set(padding)),
            3 => Write::Merge(Merge::new(key).add(count, pick(2) as i64)),
            4 => Write::Merge(Merge::new(key).unset(count)),
            5 => Write::Touch(key, Some(LIFE)),
            6 => Write::Touch(key, None),
            7 => Write::Delete(key),
            _ => Write::Put(Put::new(key, Fields::new())),
        })
    }

    /// Small records are in their entries as they are, and large ones are not. Answers how many
    /// there are of each.
    fn check(&self) -> (i64, i64) {
        let entries = "FROM indexes i JOIN index_entries e USING (idx) \
             LEFT JOIN records r ON r.ns = i.ns AND r.key = e.key WHERE i.prefix IS NOT NULL AND";
        let carried = "(e.fields, e.revision, e.modified_at, e.expires_at)";
        let count = |condition: &str| {
            one(
                &self.path,
                &format!("SELECT count(*) {entries} {condition}"),
            )
        };
        let small = format!("length(r.fields) <= {SMALL}");
        let copied = format!("{carried} IS (r.fields, r.revision, r.modified_at, r.expires_at)");
        let empty = format!("{carried} IS (NULL, NULL, NULL, NULL)");
        assert_eq!(count("r.key IS NULL"), 0, "entries without a record");
        assert_eq!(
            count(&format!("{small} AND NOT ({copied})")),
            0,
            "not as it is"
        );
        assert_eq!(
            count(&format!("NOT {small} AND NOT ({empty})")),
            0,
            "too large"
        );
        (count(&small), count(&format!("NOT {small}")))
    }
}

#[tokio::test]
async fn entries_are_as_their_records_after_any_history() -> Result<()> {
    let w = world().await?;
    let (mut small, mut large) = (0, 0);
    for round in 0..150 {
        // Several in one transaction, and some records twice.
        let writes = (0..4).map(|_| w.something()).collect::<Result<Vec<_>>>()?;
        let commits = writes.into_iter().map(Commit::of).collect();
        // Whether there is something to touch or to count is a matter of luck.
        drop(w.store.commit(commits).await);
        for (field, every) in [("n", 2), ("m", 3)] {
            let (index, limit) = (index(field)?, 3);
            if round % 40 == 39 {
                w.store.drop_index(DropIndex { index }).await?;
            } else if round % every == 0 {
                w.store.declare_index(DeclareIndex { index, limit }).await?;
            }
        }
        w.clock.advance(LIFE / 10);
        if round % 7 == 0 {
            w.store.sweep(100, &w.ids).await?;
        }
        let found = w.check();
        (small, large) = (small + found.0, large + found.1);
    }
    assert!(small > 500 && large > 100, "{small} small, {large} large");
    Ok(())
}

#[tokio::test]
async fn a_range_of_small_records_reads_nothing_but_their_entries() -> Result<()> {
    let w = world().await?;
    w.store.ensure_index(&index("n")?).await?;
    w.put("a.small", 100).await?;
    w.put("a.large", 1_000).await?;
    let before = w.range().await?;
    assert_eq!(before.len(), 2);
    w.change("UPDATE records SET fields = x'c1' WHERE key = 'a.small'");
    assert_eq!(w.range().await?, before);
    w.change("UPDATE records SET fields = x'c1' WHERE key = 'a.large'");
    let Err(Error::Corrupt(what)) = w.range().await else {
        panic!("it is looked up");
    };
    assert!(what.contains("a.large"), "{what}");
    w.change("DELETE FROM records WHERE key = 'a.large'");
    let Err(Error::Corrupt(what)) = w.range().await else {
        panic!("it is not there");
    };
    assert!(what.contains("a.large"), "{what}");
    Ok(())
}
