//! Many at once on records: every write counts, and no read shows half a commit.

use std::collections::BTreeSet;

use crate::conformance::act::insist;
use crate::conformance::concurrency::{all, handles, insist_on};
use crate::conformance::parallel;
use crate::conformance::world::{World, name, text};
use crate::conformance::writes::open;
use crate::error::{Conflict, Error, Result};
use crate::group::NewGroup;
use crate::ids::Revision;
use crate::names::{GroupId, Key, Prefix};
use crate::record::fields;
use crate::store::{Commit, Get, Guard, Merge, Outcome, Put, Receipt, Scan, StoreExt, Write};

cases!["concurrent_records":
    concurrent_increments_add_up,
    every_compare_and_swap_counts_exactly_once,
    exactly_one_writer_finds_a_record_absent,
    commits_with_the_same_id_are_applied_once,
    a_read_of_many_keys_never_shows_half_a_commit,
    a_scan_shows_each_lasting_key_once_while_others_come_and_go,
];

async fn concurrent_increments_add_up(w: World) -> Result<()> {
    let adders = (handles(&w, 16).await?.into_iter().enumerate()).map(|(n, w)| async move {
        let mut sums = Vec::new();
        for _ in 0..10 {
            let add = Merge::new(Key::new("sum")?)
                .add(name("all")?, 1)
                .add(name(&format!("of-{}", n % 4))?, 2);
            let commit = Commit::of(Write::Merge(add.returning())).id(w.ids.commit());
            let receipt = insist(w.store.as_ref(), commit).await?;
            match &receipt.outcomes[0] {
                Outcome::Written {
                    record: Some(record),
                    ..
                } => sums.extend(text(&record.fields, "all")),
                other => panic!("the record was asked for: {other:?}"),
            }
        }
        Ok(sums)
    });
    let sums: BTreeSet<String> = (all(parallel(adders).await)?.into_iter().flatten()).collect();
    let expected: BTreeSet<String> = (1..=160).map(|n| n.to_string()).collect();
    assert_eq!(sums, expected, "each increment saw a sum of its own");
    let record = w.record("sum").await?;
    let expected = [
        ("all", "160"),
        ("of-0", "80"),
        ("of-1", "80"),
        ("of-2", "80"),
        ("of-3", "80"),
    ];
    assert_eq!(record.map(|record| record.fields), Some(fields(expected)?));
    Ok(())
}

async fn every_compare_and_swap_counts_exactly_once(w: World) -> Result<()> {
    w.put("count", [("n", "0")]).await?;
    let swappers = (handles(&w, 8).await?.into_iter()).map(|w| async move {
        let mut reached = Vec::new();
        while reached.len() < 5 {
            let Some(record) = w.record("count").await? else {
                panic!("the record is gone");
            };
            let next = text(&record.fields, "n").and_then(|n| n.parse::<u64>().ok());
            let next = next.map_or(0, |n| n + 1);
            let put = Put::new(record.key.clone(), fields([("n", next.to_string())])?);
            let commit =
                Commit::of(Write::Put(put)).guard(Guard::RecordAt(record.key, record.revision));
            match insist(w.store.as_ref(), commit).await {
                Ok(_) => reached.push(next),
                Err(Error::Conflict(conflict)) => {
                    assert!(matches!(*conflict, Conflict::Guard { index: 0, .. }));
                    tokio::task::yield_now().await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(reached)
    });
    let mut reached: Vec<u64> = (all(parallel(swappers).await)?.into_iter().flatten()).collect();
    reached.sort_unstable();
    assert_eq!(reached, (1..=40).collect::<Vec<_>>());
    let record = w.record("count").await?;
    assert_eq!(record.map(|r| r.fields), Some(fields([("n", "40")])?));
    Ok(())
}

async fn exactly_one_writer_finds_a_record_absent(w: World) -> Result<()> {
    let worlds = handles(&w, 8).await?;
    for n in 0..20 {
        let key = Key::new(format!("leader-{n}"))?;
        let contenders = (worlds.iter().cloned().enumerate()).map(|(who, w)| {
            let put =
                fields([("who", who.to_string())]).map(|fields| Put::new(key.clone(), fields));
            let guard = Guard::RecordAbsent(key.clone());
            async move {
                let commit = Commit::of(Write::Put(put?)).guard(guard.clone());
                match insist(w.store.as_ref(), commit).await {
                    Ok(_) => Ok(Some(who.to_string())),
                    Err(Error::Conflict(conflict)) => {
                        assert_eq!(*conflict, Conflict::Guard { index: 0, guard });
                        Ok(None)
                    }
                    Err(error) => Err(error),
                }
            }
        });
        let winners: Vec<String> =
            (all(parallel(contenders).await)?.into_iter().flatten()).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        let record = w.store.record(&key).await?;
        let stored = record.and_then(|record| text(&record.fields, "who"));
        assert_eq!(stored.as_ref(), Some(&winners[0]));
    }
    Ok(())
}

async fn commits_with_the_same_id_are_applied_once(w: World) -> Result<()> {
    let group = GroupId::new("g")?;
    w.store.write(open(NewGroup::new(group.clone()))).await?;
    let add = Merge::new(Key::new("sum")?).add(name("n")?, 1);
    let commit = Commit::of(Write::Merge(add.returning()))
        .write(Write::Arrive(group, 1))
        .id(w.ids.commit());
    let calls = (handles(&w, 20).await?.into_iter()).map(|w| {
        let commit = commit.clone();
        async move { insist(w.store.as_ref(), commit).await }
    });
    let receipts = all(parallel(calls).await)?;
    let fresh: Vec<&Receipt> = receipts.iter().filter(|one| !one.repeated).collect();
    assert_eq!(fresh.len(), 1, "{receipts:?}");
    for receipt in &receipts {
        let expected = Receipt {
            repeated: receipt.repeated,
            ..fresh[0].clone()
        };
        assert_eq!(*receipt, expected);
    }
    let record = w.record("sum").await?;
    assert_eq!(record.map(|r| r.fields), Some(fields([("n", "1")])?));
    assert_eq!(w.group("g").await?.arrived, 1);
    Ok(())
}

async fn a_read_of_many_keys_never_shows_half_a_commit(w: World) -> Result<()> {
    let keys = [Key::new("left")?, Key::new("middle")?, Key::new("right")?];
    let write = |value: String| -> Result<Commit> {
        let mut commit = Commit::new();
        for key in &keys {
            let put = Put::new(key.clone(), fields([("value", value.clone())])?);
            commit = commit.write(Write::Put(put));
        }
        Ok(commit)
    };
    w.store.commit_one(write("start".into())?).await?;
    let worlds = handles(&w, 8).await?;
    let mut calls = Vec::new();
    for (n, w) in worlds.into_iter().enumerate() {
        let keys = keys.to_vec();
        let mut commits = Vec::new();
        for turn in 0..20 {
            commits.push(write(format!("{n}-{turn}"))?);
        }
        calls.push(async move {
            for commit in commits {
                if n % 2 == 0 {
                    insist(w.store.as_ref(), commit).await?;
                } else {
                    let get = Get { keys: keys.clone() };
                    let records = w.store.get(get).await?;
                    let values: BTreeSet<Option<String>> = (records.iter())
                        .map(|record| record.as_ref().and_then(|r| text(&r.fields, "value")))
                        .collect();
                    assert_eq!(values.len(), 1, "half a commit: {records:?}");
                    let revisions: BTreeSet<Option<Revision>> = (records.iter())
                        .map(|record| record.as_ref().map(|r| r.revision))
                        .collect();
                    assert!(!revisions.contains(&None));
                }
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    }
    all(parallel(calls).await)?;
    Ok(())
}

async fn a_scan_shows_each_lasting_key_once_while_others_come_and_go(w: World) -> Result<()> {
    let mut lasting = Vec::new();
    for n in 0..40 {
        let key = format!("key.{n:02}");
        w.put(&key, [("n", "0")]).await?;
        lasting.push(key);
    }
    let calls = (handles(&w, 8).await?.into_iter().enumerate()).map(|(n, w)| {
        let lasting = lasting.clone();
        async move {
            if n % 2 == 0 {
                for turn in 0..30 {
                    let passing = Key::new(format!("key.{turn:02}.{n}"))?;
                    let put = Put::new(passing.clone(), fields([("n", "1")])?);
                    insist_on(&w, Write::Put(put)).await?;
                    let rewritten = Key::new(&lasting[(turn * 7 + n) % 40])?;
                    let put = Put::new(rewritten, fields([("n", turn.to_string())])?);
                    insist_on(&w, Write::Put(put)).await?;
                    if turn % 3 > 0 {
                        insist_on(&w, Write::Delete(passing)).await?;
                    }
                    tokio::task::yield_now().await;
                }
                return Ok(());
            }
            for limit in [3, 7, 11] {
                let mut scan = Scan::new(Prefix::new("key.")?, limit);
                let mut found = Vec::new();
                loop {
                    let page = w.store.scan(scan.clone()).await?;
                    found.extend(page.rows.into_iter().map(|record| record.key.to_string()));
                    match page.next {
                        Some(next) => scan.cursor = Some(next),
                        None => break,
                    }
                    tokio::task::yield_now().await;
                }
                assert!(
                    found.is_sorted_by(|a, b| a < b),
                    "once, in order: {found:?}"
                );
                found.retain(|key| key.len() == 6);
                assert_eq!(found, lasting);
            }
            Ok(())
        }
    });
    all(parallel(calls).await)?;
    Ok(())
}
