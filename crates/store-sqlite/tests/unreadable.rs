//! Rows that cannot be read: they fail those who ask for them, and nobody else.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::record::{Index, fields};
use plimsoll_core::store::{
    Claim, Compact, DeclareIndex, Due, List, Pick, Put, Range, Scan, Selector, Write,
};
use plimsoll_core::task::{Lane, NewTask, Status, WorkerId};
use plimsoll_core::{Error, Ids, Key, Name, Namespace, Prefix, Result, Store, StoreExt, TaskId};
use plimsoll_store_sqlite::{Config, Sqlite, SqliteStore};
use rusqlite::{Connection, Params};
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3_600);

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
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let config = Config {
        clock: shared.clone(),
        ..Config::new(&path)
    };
    let sqlite = Sqlite::open(config)?;
    Ok(World {
        store: sqlite.namespace(Namespace::new("test")?).await?,
        ids: Ids::seeded(1, shared),
        _folder: folder,
        path,
        clock,
    })
}

impl World {
    /// Makes rows unreadable, behind the store's back.
    fn break_rows(&self, statement: &str, params: impl Params) {
        let changed = Connection::open(&self.path)
            .expect("SQLite opens it")
            .execute(statement, params)
            .expect("a bad row");
        assert_eq!(changed, 1, "{statement}");
    }

    fn break_task(&self, statement: &str, id: TaskId) {
        self.break_rows(statement, [id.as_u128().to_be_bytes().to_vec()]);
    }

    async fn put(&self, key: &str, ttl: Option<Duration>) -> Result<()> {
        let mut put = Put::new(Key::new(key)?, fields([("f", "v")])?);
        put.ttl = ttl;
        self.store.write(Write::Put(put)).await.map(drop)
    }

    async fn submit(&self, delay: Duration) -> Result<TaskId> {
        let task = NewTask::new(self.ids.task(), Lane::new("q", "k")?, "payload").after(delay);
        Ok(self.store.submit(task).await?.id)
    }

    async fn claim(&self, id: TaskId, lease: Duration) -> Result<()> {
        let claim = Claim {
            pick: Pick::Ids(vec![id]),
            worker: WorkerId {
                name: Name::new("w")?,
                incarnation: self.ids.incarnation(),
            },
            lease,
            request: self.ids.request(),
        };
        assert_eq!(self.store.claim(claim).await?.tasks.len(), 1);
        Ok(())
    }
}

#[tokio::test]
async fn a_scan_is_not_failed_by_what_it_does_not_answer() -> Result<()> {
    let w = world().await?;
    for key in ["a/1", "a/2", "b"] {
        w.put(key, None).await?;
    }
    let keys = |limit| {
        let scan = w.store.scan(Scan {
            limit,
            ..Scan::new(Prefix::new("a/").expect("a prefix"), 1)
        });
        async move {
            let page = scan.await?;
            let keys = page.rows.iter().map(|record| record.key.to_string());
            Ok::<_, Error>((keys.collect::<Vec<_>>(), page.next.is_some()))
        }
    };
    // The row after the prefix.
    w.break_rows("UPDATE records SET fields = x'c1' WHERE key = ?", ["b"]);
    assert_eq!(keys(10).await?, (vec!["a/1".into(), "a/2".into()], false));
    // The row after a full page.
    w.break_rows("UPDATE records SET fields = x'c1' WHERE key = ?", ["a/2"]);
    assert_eq!(keys(1).await?, (vec!["a/1".into()], true));
    let Err(Error::Corrupt(what)) = keys(10).await else {
        panic!("it is asked for");
    };
    assert!(what.contains("a/2"), "{what}");
    Ok(())
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_named_by_the_index_that_needs_it() -> Result<()> {
    let w = world().await?;
    for key in ["a/1", "a/2", "a/3"] {
        let put = Put::new(Key::new(key)?, fields([("n", "1")])?);
        w.store.write(Write::Put(put)).await?;
    }
    let index = Index {
        prefix: Prefix::new("a/")?,
        field: Name::new("n")?,
    };
    let scan = |limit| -> Result<Scan> {
        let range = Range::new(Name::new("n")?);
        Ok(Scan::new(Prefix::new("a/")?, limit).range(range))
    };
    w.break_rows("UPDATE records SET fields = x'c1' WHERE key = ?", ["a/2"]);
    let declare = DeclareIndex {
        index: index.clone(),
        limit: 10,
    };
    // Beside others in the same transaction, who are not kept from anything.
    let (declared, written) = tokio::join!(w.store.declare_index(declare), w.put("b", None));
    written?;
    let Err(Error::Corrupt(what)) = declared else {
        panic!("the record is needed: {declared:?}");
    };
    assert!(what.contains("a/2"), "{what}");
    assert_eq!(w.store.indexes().await?, []);
    w.break_rows("UPDATE records SET fields = x'80' WHERE key = ?", ["a/2"]);
    w.store.ensure_index(&index).await?;
    // What is not answered is not read.
    let entry = "UPDATE index_entries SET fields = x'c1' WHERE key = ?";
    w.break_rows(entry, ["a/3"]);
    assert_eq!(w.store.scan(scan(1)?).await?.rows.len(), 1);
    let Err(Error::Corrupt(what)) = w.store.scan(scan(2)?).await else {
        panic!("it is asked for");
    };
    assert!(what.contains("a/3"), "{what}");
    Ok(())
}

#[tokio::test]
async fn what_is_due_is_found_behind_more_than_a_page_of_unreadable_rows() -> Result<()> {
    const LIMIT: usize = 3;
    const BAD: u64 = 2 * LIMIT as u64;
    let w = world().await?;
    let at = |n: u64| Duration::from_secs(100 + n);
    let (mut scheduled, mut leased) = (Vec::new(), Vec::new());
    for n in 0..BAD + 2 {
        scheduled.push(w.submit(at(n)).await?);
        let held = w.submit(Duration::ZERO).await?;
        w.claim(held, at(n)).await?;
        leased.push(held);
        w.put(&format!("r/{n}"), Some(at(n))).await?;
    }
    for n in 0..BAD as usize {
        // Either half of a task may be the bad one.
        let half = [
            "UPDATE tasks SET state = x'c1'",
            "UPDATE specs SET spec = x'c1'",
        ][n % 2];
        for id in [scheduled[n], leased[n]] {
            w.break_task(&format!("{half} WHERE id = ?"), id);
        }
        let record = "UPDATE records SET fields = x'c1' WHERE key = ?";
        w.break_rows(record, [format!("r/{n}")]);
    }
    w.clock.advance(HOUR);
    let due = w.store.due(Due { limit: LIMIT }).await?;
    let bad = BAD as usize;
    assert_eq!(due.scheduled[..2], scheduled[bad..]);
    let expired: Vec<TaskId> = due.expired.iter().map(|(id, _)| *id).collect();
    assert_eq!(expired[..2], leased[bad..]);
    let records: Vec<String> = due.records.iter().map(Key::to_string).collect();
    assert_eq!(records[..2], ["r/6", "r/7"]);
    // There is room for one that cannot be read: whoever sweeps hears of it.
    assert_eq!(
        due.scheduled.len() + expired.len() + records.len(),
        3 * LIMIT
    );
    let swept = w.store.sweep(LIMIT, &w.ids).await?;
    assert_eq!((swept.promoted, swept.expired, swept.records), (2, 2, 2));
    let corrupt = |error: &Error| matches!(error, Error::Corrupt(_));
    assert!(swept.errors.len() == 3 && swept.errors.iter().all(corrupt));
    assert!(!swept.more);
    for id in &scheduled[bad..] {
        let task = w.store.task(*id).await?.expect("it is there");
        assert_eq!(task.status, Status::Pending);
    }
    Ok(())
}

#[tokio::test]
async fn only_unreadable_rows_being_due_does_not_hide_when_the_next_one_is() -> Result<()> {
    let w = world().await?;
    let bad = w.submit(Duration::from_secs(1)).await?;
    w.submit(HOUR).await?;
    let then = w.clock.now().saturating_plus(HOUR);
    w.break_task("UPDATE tasks SET state = x'c1' WHERE id = ?", bad);
    w.clock.advance(Duration::from_secs(1));
    let due = w.store.due(Due { limit: 10 }).await?;
    assert_eq!(
        (due.scheduled, due.next, due.more),
        (vec![bad], Some(then), false)
    );
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_read_keeps_nothing_else_from_being_compacted() -> Result<()> {
    let world = world().await?;
    let mut ids = Vec::new();
    for n in 0..20 {
        let id = world.submit(Duration::ZERO).await?;
        world.store.cancel(id, None).await?;
        world.clock.advance(Duration::from_secs(1));
        if n < 8 {
            world.break_task("UPDATE done SET state = x'c1' WHERE id = ?", id);
        }
        ids.push(id);
    }
    world.clock.advance(HOUR);
    let compact = Compact {
        tasks: BTreeMap::from([(Status::Cancelled, HOUR)]),
        limit: 5,
        ..Compact::default()
    };
    let mut removed = Vec::new();
    loop {
        let done = world.store.compact(compact.clone()).await?;
        removed.push(done.tasks);
        if !done.more {
            break;
        }
    }
    assert_eq!(removed, [5, 5, 2]);
    for (n, id) in ids.into_iter().enumerate() {
        let answer = world.store.task(id).await;
        match n {
            0..8 => assert!(matches!(answer, Err(Error::Corrupt(_))), "{answer:?}"),
            _ => assert_eq!(answer?, None),
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_read_keeps_nothing_else_from_being_found_by_its_age() -> Result<()> {
    let world = world().await?;
    let mut readable = Vec::new();
    for n in 0..20 {
        let id = world.submit(Duration::ZERO).await?;
        world.store.cancel(id, None).await?;
        world.clock.advance(Duration::from_secs(1));
        match n < 8 {
            true => world.break_task("UPDATE done SET state = x'c1' WHERE id = ?", id),
            false => readable.push(id),
        }
    }
    let mut list = List::new(Selector::KeptFor(Status::Cancelled, Duration::ZERO), 5);
    let mut found = Vec::new();
    loop {
        let page = world.store.list(list.clone()).await?;
        found.extend(page.rows.iter().map(|task| task.id()));
        list.cursor = page.next;
        if list.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, readable);
    Ok(())
}
