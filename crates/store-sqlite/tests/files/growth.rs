//! Neither the file nor its log grows without end, and no transaction is as long as what it removes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock, SystemClock};
use plimsoll_core::record::{Fields, Index, fields};
use plimsoll_core::store::{Claim, Commit, Compact, DropIndex, Ending, Pick, Put, Settle, Write};
use plimsoll_core::task::{Lane, NewTask, Status, WorkerId};
use plimsoll_core::{Ids, Key, Name, Namespace, Prefix, Result, Store, StoreExt};
use plimsoll_store_sqlite::{Config, Sqlite};

use crate::{folder, foreign, held, log, open};

/// What is in the header of a log until it begins anew. Then it is another one.
fn salt(log: &Path) -> [u8; 8] {
    let mut header = [0; 24];
    let mut log = File::open(log).expect("the log");
    log.read_exact(&mut header).expect("its header");
    header[16..].try_into().expect("eight bytes")
}

/// How much is written until it begins anew depends on the disk.
#[tokio::test]
async fn the_log_does_not_grow_without_end_while_everybody_writes() -> Result<()> {
    const MEGABYTES_MAX: u64 = 2_000;
    let (_folder, path) = folder();
    let store = open(&path).await?;
    let mut log = path.into_os_string();
    log.push("-wal");
    let mut salts = BTreeSet::new();
    for n in 0..MEGABYTES_MAX * 5 {
        let key = Key::new(format!("k{}", n % 20))?;
        let put = Put::new(key, fields([("f", "v".repeat(200_000))])?);
        store.write(Write::Put(put)).await?;
        salts.insert(salt(log.as_ref()));
        if salts.len() > 2 {
            return Ok(());
        }
    }
    panic!(
        "of {MEGABYTES_MAX} MB, it has begun anew {} times",
        salts.len() - 1
    );
}

#[tokio::test]
async fn the_file_does_not_grow_without_end_under_steady_load() -> Result<()> {
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
    let worker = WorkerId {
        name: Name::new("w")?,
        incarnation: ids.incarnation(),
    };
    let day = Duration::from_secs(86_400);
    let mut pages = Vec::new();
    for round in 0..ROUNDS {
        // A queue for each day.
        let lane = Lane::new(format!("day {round}"), "k")?;
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
            logs: Some(day),
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
        for table in ["tasks", "done", "specs", "lanes", "counts"] {
            let rows = format!("SELECT count(*) FROM {table}");
            let rows: i64 = looker
                .query_row(&rows, [], |row| row.get(0))
                .expect("a number");
            assert_eq!(rows, 0, "{table}");
        }
    }
    let (early, late) = (pages[3], pages[ROUNDS - 1]);
    assert!(late <= early + early / 10, "pages by round: {pages:?}");
    assert_eq!(store.counts(Default::default()).await?, []);
    Ok(())
}

#[tokio::test]
async fn one_transaction_removes_no_more_than_a_part_of_a_very_long_log() -> Result<()> {
    let compact = Compact {
        tasks: [(Status::Completed, Duration::ZERO)].into(),
        limit: 100,
        ..Compact::default()
    };
    // The task goes by its age, or because somebody deletes it.
    for deleted in [false, true] {
        let (_folder, path) = folder();
        let store = open(&path).await?;
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let holder = held(&store, &ids).await?;
        for _ in 0..21 {
            log(&store, &ids, &holder, 1_000).await?;
        }
        let complete = Ending::Complete { result: None };
        store.settle(holder.clone(), complete).await?;
        let count = |table: &str| -> i64 {
            let count = format!("SELECT count(*) FROM {table}");
            let rows = foreign(&path).query_row(&count, [], |row| row.get(0));
            rows.expect("a count")
        };
        for left in [11_000, 1_000, 0] {
            if deleted && left == 11_000 {
                store.write(Write::DeleteTask(holder.task)).await?;
            } else {
                assert_eq!(store.compact(compact.clone()).await?.more, left > 0);
            }
            assert_eq!(count("logs"), left);
            assert_eq!(count("orphans"), i64::from(left > 0));
            assert_eq!(store.task(holder.task).await?, None);
        }
    }
    Ok(())
}

#[tokio::test]
async fn one_transaction_removes_no_more_than_a_part_of_a_large_index() -> Result<()> {
    let (_folder, path) = folder();
    let store = open(&path).await?;
    let index = Index {
        prefix: Prefix::new("a.")?,
        field: Name::new("n")?,
    };
    store.ensure_index(&index).await?;
    for first in (0..21_000).step_by(200) {
        let put = |n: i32| -> Result<Write> {
            let fields = Fields::from([(Name::new("n")?, n.to_string().into())]);
            Ok(Write::Put(Put::new(Key::new(format!("a.{n}"))?, fields)))
        };
        let writes = (first..first + 200).map(put).collect::<Result<_>>()?;
        let commit = Commit {
            writes,
            ..Commit::default()
        };
        store.commit_one(commit).await?;
    }
    let count = |table: &str| -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        let rows = foreign(&path).query_row(&count, [], |row| row.get(0));
        rows.expect("a count")
    };
    assert_eq!(count("index_entries"), 21_000);
    let drop = DropIndex {
        index: index.clone(),
    };
    assert!(store.drop_index(drop).await?.existed);
    assert_eq!((count("index_entries"), count("indexes")), (11_000, 1));
    // What another one leaves behind is not in it, however it is numbered.
    let other = Index {
        prefix: Prefix::new("b.")?,
        ..index
    };
    store.ensure_index(&other).await?;
    for left in [1_000, 0] {
        let compact = Compact {
            limit: 1,
            ..Compact::default()
        };
        assert_eq!(store.compact(compact).await?.more, left > 0);
        assert_eq!(count("index_entries"), left);
        assert_eq!(count("indexes"), 1 + i64::from(left > 0));
    }
    assert_eq!(store.indexes().await?[0].index, other);
    Ok(())
}
