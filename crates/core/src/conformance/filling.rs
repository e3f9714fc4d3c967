//! An index declared over records that exist: bounded steps, and writes in between.

use crate::conformance::parallel;
use crate::conformance::ranges::{fill, in_order, index, put_value, ready};
use crate::conformance::scans::pages;
use crate::conformance::world::{World, name};
use crate::error::Result;
use crate::names::{Key, Prefix};
use crate::record::{Fields, integer};
use crate::store::{DeclareIndex, DropIndex, Merge, Put, Scan, Store, StoreExt, Write};

cases!["filling":
    existing_records_come_in_bounded_steps if IntegerIndexes,
    steps_go_on_through_another_handle if IntegerIndexes,
    writes_between_the_steps_are_in_the_index_as_they_should_be if IntegerIndexes,
    an_index_agrees_with_the_records_after_any_history if IntegerIndexes,
    an_index_agrees_with_the_records_after_concurrent_writes if IntegerIndexes,
];

/// Takes one step, and says whether it was the last.
async fn step(store: &dyn Store, limit: usize) -> Result<bool> {
    let index = index("a.", "n")?;
    let declare = DeclareIndex { index, limit };
    Ok(store.declare_index(declare).await?.ready)
}

/// What the index should have, from the records themselves.
async fn expected(w: &World) -> Result<Vec<(i64, String)>> {
    let scan = Scan::new(Prefix::new("a.")?, 1_000);
    let rows = pages(w.store.as_ref(), scan).await?.into_iter().flatten();
    let mut all: Vec<_> = rows
        .filter_map(|record| Some((integer(record.field("n")?)?, record.key.to_string())))
        .collect();
    all.sort_unstable();
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
    assert_eq!(in_order(&w, "a.").await?, expected(&w).await?);
    assert_eq!(in_order(&w, "a.").await?.len(), 7);
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
    assert_eq!(in_order(&w, "a.").await?, expected(&w).await?);
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
    let found = in_order(&w, "a.").await?;
    assert_eq!(found, expected(&w).await?);
    assert_eq!(found.len(), 8);
    Ok(())
}

/// One write at random.
async fn write_something(w: &World, store: &dyn Store) -> Result<()> {
    let key = Key::new(format!("a.{:02}", w.ids.below(30)))?;
    let n = w.ids.below(7) as i64 - 3;
    let put = |text: String| -> Result<Write> {
        let fields = Fields::from([(name("n")?, text.into())]);
        Ok(Write::Put(Put::new(key.clone(), fields)))
    };
    let write = match w.ids.below(8) {
        0..=2 => put(n.to_string())?,
        3 => put("none".into())?,
        4 => Write::Delete(key),
        5 => Write::Merge(Merge::new(key).unset(name("n")?)),
        6 => Write::Touch(key, None),
        _ => Write::Put(Put::new(key, Fields::new())),
    };
    // Whether there is something to touch is a matter of luck.
    store.write(write).await.ok();
    Ok(())
}

async fn an_index_agrees_with_the_records_after_any_history(w: World) -> Result<()> {
    for _ in 0..20 {
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
        assert_eq!(in_order(&w, "a.").await?, expected(&w).await?);
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
    assert_eq!(in_order(&w, "a.").await?, expected(&w).await?);
    Ok(())
}
