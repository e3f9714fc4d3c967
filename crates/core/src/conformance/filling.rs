//! An index declared over records that exist: bounded steps, and writes in between.

use std::time::Duration;

use crate::conformance::parallel;
use crate::conformance::ranges::{fill, index, put_value, range, ready};
use crate::conformance::scans::pages;
use crate::conformance::world::{World, name};
use crate::error::Result;
use crate::names::{Key, Prefix};
use crate::record::{Fields, Record, integer};
use crate::store::{DeclareIndex, DropIndex, Merge, Put, Scan, Store, StoreExt, Write};

cases!["filling":
    existing_records_come_in_bounded_steps if IntegerIndexes,
    steps_go_on_through_another_handle if IntegerIndexes,
    writes_between_the_steps_are_in_the_index_as_they_should_be if IntegerIndexes,
    an_index_agrees_with_the_records_after_any_history if IntegerIndexes,
    an_index_agrees_with_the_records_after_concurrent_writes if IntegerIndexes,
];

/// How long some records live, unless they are written again.
const LIFE: Duration = Duration::from_secs(60);

/// Takes one step, and says whether it was the last.
async fn step(store: &dyn Store, limit: usize) -> Result<bool> {
    let index = index("a.", "n")?;
    let declare = DeclareIndex { index, limit };
    Ok(store.declare_index(declare).await?.ready)
}

/// What the index has, in its order: whole records, for a store may keep copies of them.
async fn found(w: &World) -> Result<Vec<Record>> {
    let scan = Scan::new(Prefix::new("a.")?, 1_000).range(range("n")?);
    let rows = pages(w.store.as_ref(), scan).await?;
    Ok(rows.into_iter().flatten().collect())
}

/// What the index should have, from the records themselves.
async fn expected(w: &World) -> Result<Vec<Record>> {
    let scan = Scan::new(Prefix::new("a.")?, 1_000);
    let rows = pages(w.store.as_ref(), scan).await?.into_iter().flatten();
    let place = |record: &Record| Some((integer(record.field("n")?)?, record.key.clone()));
    let mut all: Vec<_> = rows.filter(|record| place(record).is_some()).collect();
    all.sort_unstable_by_key(place);
    Ok(all)
}

async fn existing_records_come_in_bounded_steps(w: World) -> Result<()> {
    for n in 0..7 {
        put_value(&w, &format!("a.{n}"), -n).await?;
    }
    // Neighbours in the order of keys are none of its business.
    for key in ["a", "a-", "a/", "b.1"] {
        put_value(&w, key, 1).await?;
    }
    let mut steps = 1;
    while !step(w.store.as_ref(), 2).await? {
        steps += 1;
        assert!(steps <= 5, "the steps do not end");
    }
    assert!(steps >= 4, "{steps} steps for 7 records, 2 at a time");
    assert!(step(w.store.as_ref(), 1).await?, "it stays ready");
    assert_eq!(found(&w).await?, expected(&w).await?);
    assert_eq!(found(&w).await?.len(), 7);
    Ok(())
}

async fn steps_go_on_through_another_handle(w: World) -> Result<()> {
    for n in 0..9 {
        put_value(&w, &format!("a.{n}"), n % 3).await?;
    }
    let stores = [w.store.clone(), w.second().await?];
    let mut steps = 0;
    for store in stores.iter().cycle() {
        steps += 1;
        assert!(steps <= 6, "the steps do not end");
        if step(store.as_ref(), 2).await? {
            break;
        }
    }
    assert_eq!(found(&w).await?, expected(&w).await?);
    Ok(())
}

async fn writes_between_the_steps_are_in_the_index_as_they_should_be(w: World) -> Result<()> {
    for n in 0..10 {
        put_value(&w, &format!("a.{n}"), n).await?;
    }
    assert!(!step(w.store.as_ref(), 5).await?);
    // Both where the steps have been and where they have not: moved, gone, not an integer, new.
    for n in [0, 6] {
        put_value(&w, &format!("a.{n}"), 100 + n).await?;
        let delete = Write::Delete(Key::new(format!("a.{}", n + 1))?);
        w.store.write(delete).await?;
        w.put(&format!("a.{}", n + 2), [("n", "none")]).await?;
        put_value(&w, &format!("a.{n}new"), 50).await?;
    }
    // There and back again, before the steps get there.
    put_value(&w, "a.9", 77).await?;
    put_value(&w, "a.9", 9).await?;
    fill(w.store.as_ref(), index("a.", "n")?, 1).await?;
    let found = found(&w).await?;
    assert_eq!(found, expected(&w).await?);
    assert_eq!(found.len(), 8);
    Ok(())
}

/// One write at random, of records of any size. Most leave the value where it is.
async fn write_something(w: &World, store: &dyn Store) -> Result<()> {
    let key = Key::new(format!("a.{:02}", w.ids.below(30)))?;
    let n = w.ids.below(7) as i64 - 3;
    let padding = || -> Result<Fields> {
        let bytes = [0, 100, 500, 520, 5_000][w.ids.below(5) as usize];
        // Some that cannot be made smaller, for a store may keep these elsewhere.
        let alike = w.ids.below(2) == 0;
        let byte = |_| if alike { b'x' } else { w.ids.below(256) as u8 };
        let padding: Vec<u8> = (0..bytes).map(byte).collect();
        Ok(Fields::from([(name("padding")?, padding.into())]))
    };
    let put = |text: String| -> Result<Put> {
        let mut fields = padding()?;
        fields.insert(name("n")?, text.into());
        Ok(Put::new(key.clone(), fields))
    };
    let write = match w.ids.below(11) {
        0..=2 => Write::Put(put(n.to_string())?),
        3 => Write::Put(put("none".into())?),
        4 => Write::Delete(key),
        5 => Write::Merge(Merge::new(key).unset(name("n")?)),
        6 => Write::Touch(key, None),
        7 => Write::Touch(key, Some(LIFE)),
        8 => Write::Merge(Merge::new(key).set(padding()?)),
        9 => Write::Merge(Merge::new(key).add(name("n")?, w.ids.below(2) as i64)),
        _ => Write::Put(Put::new(key, Fields::new())),
    };
    // Whether there is something to touch is a matter of luck.
    store.write(write).await.ok();
    Ok(())
}

async fn an_index_agrees_with_the_records_after_any_history(w: World) -> Result<()> {
    for round in 0..20 {
        for _ in 0..20 {
            write_something(&w, w.store.as_ref()).await?;
        }
        for _ in 0..10 {
            step(w.store.as_ref(), 1 + w.ids.below(4) as usize).await?;
            write_something(&w, w.store.as_ref()).await?;
        }
        ready(&w, "a.", "n").await?;
        for _ in 0..10 {
            write_something(&w, w.store.as_ref()).await?;
        }
        assert_eq!(found(&w).await?, expected(&w).await?);
        w.advance(LIFE / 4);
        assert_eq!(found(&w).await?, expected(&w).await?);
        if round % 3 == 0 {
            w.sweep().await?;
        }
        assert_eq!(found(&w).await?, expected(&w).await?);
        let index = index("a.", "n")?;
        w.store.drop_index(DropIndex { index }).await?;
    }
    Ok(())
}

async fn an_index_agrees_with_the_records_after_concurrent_writes(w: World) -> Result<()> {
    let stores = [w.store.clone(), w.second().await?];
    for _ in 0..50 {
        write_something(&w, w.store.as_ref()).await?;
    }
    let writers = (0..6).map(|n| {
        let (w, store) = (w.clone(), stores[n % 2].clone());
        async move {
            for turn in 0..30 {
                if turn % 3 == n % 3 {
                    step(store.as_ref(), 2).await?;
                }
                write_something(&w, store.as_ref()).await?;
            }
            Result::<()>::Ok(())
        }
    });
    for written in parallel(writers.collect::<Vec<_>>()).await {
        written?;
    }
    ready(&w, "a.", "n").await?;
    assert_eq!(found(&w).await?, expected(&w).await?);
    Ok(())
}
