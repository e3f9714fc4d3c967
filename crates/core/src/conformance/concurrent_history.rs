//! Many writers and a reader: the history is whole and in order.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::change::{Change, Entry};
use crate::conformance::act::insist;
use crate::conformance::concurrency::{all, handles};
use crate::conformance::parallel;
use crate::conformance::world::{World, text};
use crate::error::Result;
use crate::ids::{Position, Revision};
use crate::names::Key;
use crate::record::fields;
use crate::store::{Changes, Commit, Put, Receipt, Start, Write};

cases!["concurrent_history":
    concurrent_commits_stay_whole_and_each_key_in_order,
    a_reader_that_tails_concurrent_writers_sees_every_entry_once_in_order if TotalOrder,
];

/// Ten commits by each of eight writers, each of a shared key, a key of a pair and an own key.
fn writers(worlds: Vec<World>) -> Vec<impl Future<Output = Result<Vec<(String, Receipt)>>>> {
    (worlds.into_iter().enumerate())
        .map(|(n, w)| async move {
            let mut receipts = Vec::new();
            for turn in 0..10 {
                let mark = format!("{n}-{turn}");
                let mut commit = Commit::new();
                for key in ["shared".to_owned(), format!("pair-{}", n / 2), mark.clone()] {
                    let put = Put::new(Key::new(key)?, fields([("mark", mark.clone())])?);
                    commit = commit.write(Write::Put(put));
                }
                receipts.push((mark, insist(w.store.as_ref(), commit).await?));
                tokio::task::yield_now().await;
            }
            Ok(receipts)
        })
        .collect()
}

/// For each key the revisions grow, and each commit is whole where its receipt says.
fn assert_whole_and_in_order(entries: &[Entry], receipts: &[(String, Receipt)]) {
    let mut revisions: BTreeMap<&Key, Revision> = BTreeMap::new();
    let mut commits: BTreeMap<String, Vec<(Position, &str)>> = BTreeMap::new();
    for entry in entries {
        for change in &entry.changes {
            let Change::Put(record) = change else {
                panic!("unexpected {change:?}");
            };
            let before = revisions.insert(&record.key, record.revision);
            assert!(
                before < Some(record.revision),
                "{record:?} after {before:?}"
            );
            let mark = text(&record.fields, "mark").unwrap_or_default();
            let told = (entry.position, record.key.as_str());
            commits.entry(mark).or_default().push(told);
        }
    }
    assert_eq!(commits.len(), receipts.len());
    for (mark, receipt) in receipts {
        let told = &commits[mark];
        let keys: Vec<&str> = told.iter().map(|(_, key)| *key).collect();
        assert_eq!(keys.len(), 3, "{mark} wrote {keys:?}");
        assert_eq!((keys[0], keys[2]), ("shared", mark.as_str()));
        for (position, _) in told {
            assert_eq!(Some(*position), receipt.position, "{mark} was split");
        }
    }
}

async fn concurrent_commits_stay_whole_and_each_key_in_order(w: World) -> Result<()> {
    let receipts = all(parallel(writers(handles(&w, 8).await?)).await)?.concat();
    assert_eq!(receipts.len(), 80);
    let entries = w.history().await?.entries;
    assert_whole_and_in_order(&entries, &receipts);
    assert!(entries.is_sorted_by(|a, b| a.position < b.position));
    Ok(())
}

async fn a_reader_that_tails_concurrent_writers_sees_every_entry_once_in_order(
    w: World,
) -> Result<()> {
    let start = w.history().await?.next;
    let done = Arc::new(AtomicBool::new(false));
    let readers = (handles(&w, 2).await?.into_iter().zip([1, 5])).map(|(w, limit)| {
        let done = done.clone();
        async move {
            let (mut position, mut seen) = (start, Vec::new());
            loop {
                let last_look = done.load(Ordering::Acquire);
                let changes = Changes::after(position, limit);
                let page = w.store.changes(changes).await?;
                seen.extend(page.entries);
                position = page.next;
                if last_look && !page.more {
                    return Ok(seen);
                }
                tokio::task::yield_now().await;
            }
        }
    });
    let writers = writers(handles(&w, 8).await?);
    let write = async {
        let receipts = parallel(writers).await;
        done.store(true, Ordering::Release);
        receipts
    };
    let (receipts, seen) = tokio::join!(write, parallel(readers));
    let receipts = all(receipts)?.concat();
    let entries = w.history_from(Start::After(start)).await?.entries;
    assert_whole_and_in_order(&entries, &receipts);
    for seen in all(seen)? {
        assert_eq!(seen, entries);
    }
    Ok(())
}
