//! Scans by range: bounds, order, and pages without gap or repeat.

use std::time::Duration;

use crate::conformance::scans::{keys, pages};
use crate::conformance::world::{World, invalid, name};
use crate::error::Result;
use crate::names::{Key, Prefix};
use crate::record::{Fields, Filter, Index, Operator, Record, Value, fields, integer};
use crate::store::{Commit, Cursor, DeclareIndex, Put, Range, Scan, Store, StoreExt, Write};

cases!["ranges":
    a_range_has_its_first_value_and_not_its_end if IntegerIndexes,
    values_come_in_numeric_order_and_keys_break_ties if IntegerIndexes,
    the_query_of_a_sweeper_finds_what_is_stuck if IntegerIndexes,
    pages_of_a_range_cover_every_record_exactly_once if IntegerIndexes,
    what_moves_during_a_scan_by_range_does_not_disturb_the_rest if IntegerIndexes,
    a_scan_by_range_goes_on_through_another_handle if IntegerIndexes,
    a_cursor_of_another_question_is_invalid if IntegerIndexes,
    an_expired_record_is_in_no_range if IntegerIndexes,
    a_page_of_a_range_examines_a_bounded_number_of_records if IntegerIndexes,
    a_page_of_a_range_holds_a_bounded_number_of_bytes if IntegerIndexes,
];

pub(super) fn index(prefix: &str, field: &str) -> Result<Index> {
    Ok(Index {
        prefix: Prefix::new(prefix)?,
        field: name(field)?,
    })
}

pub(super) fn range(field: &str) -> Result<Range> {
    Ok(Range::new(name(field)?))
}

/// Declares an index and fills it.
pub(super) async fn ready(w: &World, prefix: &str, field: &str) -> Result<()> {
    fill(w.store.as_ref(), index(prefix, field)?, 1_000).await
}

/// Declares an index and takes steps until it is ready.
pub(super) async fn fill(store: &dyn Store, index: Index, limit: usize) -> Result<()> {
    let declare = DeclareIndex { index, limit };
    for _ in 0..100 {
        if store.declare_index(declare.clone()).await?.ready {
            return Ok(());
        }
    }
    panic!("the steps do not end");
}

/// Puts a record whose field `n` is this.
pub(super) async fn put_value(w: &World, key: &str, n: i64) -> Result<Record> {
    w.put(key, [("n", n.to_string())]).await
}

/// What the index on `n` has of a prefix, in its order.
pub(super) async fn in_order(w: &World, prefix: &str) -> Result<Vec<(i64, String)>> {
    let scan = Scan::new(Prefix::new(prefix)?, 1_000).range(range("n")?);
    values(w.store.as_ref(), scan).await
}

/// Scans to the end: values of `n`, and keys.
pub(super) async fn values(store: &dyn Store, scan: Scan) -> Result<Vec<(i64, String)>> {
    let rows = pages(store, scan).await?.into_iter().flatten();
    let place = |record: Record| {
        let n = record.field("n").and_then(|n| integer(n));
        (n.expect("an integer"), record.key.to_string())
    };
    Ok(rows.map(place).collect())
}

fn scan(limit: usize) -> Result<Scan> {
    Ok(Scan::new(Prefix::new("a.")?, limit).range(range("n")?))
}

async fn a_range_has_its_first_value_and_not_its_end(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let (min, max) = (i64::MIN, i64::MAX);
    let all = [min, min + 1, -10, -9, -1, 0, 1, 9, 10, max - 1, max];
    for n in all {
        put_value(&w, &format!("a.{n}"), n).await?;
    }
    let bounds = [None].into_iter().chain(all.map(Some));
    for from in bounds.clone() {
        for before in bounds.clone() {
            let range = Range {
                from,
                before,
                ..range("n")?
            };
            let belongs = |n: &i64| from.is_none_or(|f| *n >= f) && before.is_none_or(|b| *n < b);
            let expected: Vec<i64> = all.into_iter().filter(belongs).collect();
            let scan = Scan {
                range: Some(range),
                ..scan(1_000)?
            };
            let found = values(w.store.as_ref(), scan).await?.into_iter();
            let found: Vec<i64> = found.map(|(n, _)| n).collect();
            assert_eq!(found, expected, "{from:?} to {before:?}");
        }
    }
    Ok(())
}

async fn values_come_in_numeric_order_and_keys_break_ties(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let mut expected = Vec::new();
    for key in ["a.b", "a.\u{ff}", "a.B", "a. ", "a.b b", "a.~"] {
        for n in [-10_i64, -9, 0, 5, 10, 9] {
            let key = format!("{key}{n}");
            put_value(&w, &key, n).await?;
            expected.push((n, key));
        }
    }
    expected.sort_unstable();
    assert_eq!(in_order(&w, "a.").await?, expected);
    Ok(())
}

async fn the_query_of_a_sweeper_finds_what_is_stuck(w: World) -> Result<()> {
    let prefix = "gbe.state.tasks.";
    ready(&w, prefix, "updated_at").await?;
    for (id, state, updated_at) in [
        ("mail.1", "running", "100"),
        ("mail.2", "completed", "200"),
        ("mail.3", "claimed", "300"),
        ("image.4", "pending", "50"),
        ("image.5", "running", "301"),
        ("image.6", "failed", "10"),
    ] {
        let key = format!("{prefix}{id}");
        let all = [("state", state), ("updated_at", updated_at)];
        w.put(&key, all).await?;
    }
    w.put("gbe.state.other", [("updated_at", "1")]).await?;
    let stuck = range("updated_at")?.before(301);
    let mut scan = Scan::new(Prefix::new(prefix)?, 2).range(stuck);
    for terminal in ["completed", "failed", "cancelled"] {
        scan.filters.push(Filter {
            field: name("state")?,
            operator: Operator::NotEqual,
            value: Value::Text(terminal.into()),
        });
    }
    let expected = ["image.4", "mail.1", "mail.3"].map(|id| format!("{prefix}{id}"));
    assert_eq!(keys(w.store.as_ref(), scan).await?, expected);
    Ok(())
}

async fn pages_of_a_range_cover_every_record_exactly_once(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let mut all = Vec::new();
    for n in 0..13 {
        // Several have the same value; their keys have blanks, as places do.
        let key = format!("a.{} {n}", n * 7 % 13);
        put_value(&w, &key, n % 4 - 1).await?;
        all.push((n % 4 - 1, key));
    }
    all.sort_unstable();
    for limit in 1..=14 {
        assert_eq!(values(w.store.as_ref(), scan(limit)?).await?, all);
        let some = Scan {
            range: Some(range("n")?.from(0).before(2)),
            ..scan(limit)?
        };
        let mut expected = all.clone();
        expected.retain(|(n, _)| (0..2).contains(n));
        assert_eq!(values(w.store.as_ref(), some).await?, expected);
    }
    Ok(())
}

async fn what_moves_during_a_scan_by_range_does_not_disturb_the_rest(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let key = |n: i64| format!("a.{n:02}");
    for n in 0..20 {
        put_value(&w, &key(n), n / 3).await?;
    }
    let mut scan = scan(3)?;
    let mut seen = Vec::new();
    let moved = [2, 5, 12, 17];
    loop {
        let page = w.store.scan(scan.clone()).await?;
        seen.extend(page.rows.iter().map(|record| record.key.to_string()));
        if seen.len() == 6 {
            // One from behind to the end, one is gone, one from the end to behind, one to its place.
            put_value(&w, &key(2), 100).await?;
            w.store.write(Write::Delete(Key::new(key(5))?)).await?;
            put_value(&w, &key(12), -1).await?;
            w.store.write(Write::Delete(Key::new(key(17))?)).await?;
            put_value(&w, &key(17), 17 / 3).await?;
            w.put(&key(9), [("n", "3"), ("new", "1")]).await?;
        }
        match page.next {
            Some(next) => scan.cursor = Some(next),
            None => break,
        }
        assert!(seen.len() < 100, "the scan does not end");
    }
    let stayed = (0..20).filter(|n| !moved.contains(n)).map(key);
    let found = |key: &String| seen.iter().filter(|other| *other == key).count();
    for key in stayed {
        assert_eq!(found(&key), 1, "{key}");
    }
    Ok(())
}

async fn a_scan_by_range_goes_on_through_another_handle(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let all: Vec<_> = (0..9).map(|n| (n / 4, format!("a.{n}"))).collect();
    for (n, key) in &all {
        put_value(&w, key, *n).await?;
    }
    let stores = [w.store.clone(), w.second().await?];
    let mut scan = scan(2)?;
    let mut seen = Vec::new();
    for store in stores.iter().cycle().take(20) {
        let page = store.scan(scan.clone()).await?;
        seen.extend(page.rows.iter().map(|record| record.key.to_string()));
        scan.cursor = page.next;
        if scan.cursor.is_none() {
            break;
        }
    }
    let keys: Vec<String> = all.into_iter().map(|(_, key)| key).collect();
    assert_eq!(seen, keys);
    Ok(())
}

async fn a_cursor_of_another_question_is_invalid(w: World) -> Result<()> {
    for (prefix, field) in [("a.", "n"), ("a.", "m"), ("a", "n")] {
        ready(&w, prefix, field).await?;
    }
    for n in 0..4 {
        w.put(&format!("a.{n}"), [("n", n.to_string()), ("m", "1".into())])
            .await?;
    }
    let asked = |range| Ok::<_, crate::Error>(scan(1)?.range(range));
    let first = asked(range("n")?.from(0).before(3))?;
    let cursor = w.store.scan(first.clone()).await?.next;
    assert!(cursor.is_some());
    let wider = Scan {
        prefix: Prefix::new("a")?,
        ..first.clone()
    };
    for other in [
        asked(range("n")?)?,
        asked(range("n")?.from(0))?,
        asked(range("n")?.before(3))?,
        asked(range("n")?.from(0).before(4))?,
        asked(range("n")?.from(1).before(3))?,
        asked(range("m")?.from(0).before(3))?,
        wider,
        Scan::new(Prefix::new("a.")?, 1),
    ] {
        let cursor = cursor.clone();
        let answer = w.store.scan(Scan { cursor, ..other }).await;
        assert_eq!(invalid(answer).field, "cursor");
    }
    let plain = w.store.scan(Scan::new(Prefix::new("a.")?, 1)).await?.next;
    let mut bad = vec![plain.expect("more"), Cursor::from_text("nonsense")];
    for place in ["", "1", "1 ", "x a.1", "3 a.3", "-1 a.0", "a.1"] {
        bad.push(Cursor::new(&first.scope(), place));
    }
    for cursor in bad {
        let again = Scan {
            cursor: Some(cursor),
            ..first.clone()
        };
        assert_eq!(invalid(w.store.scan(again).await).field, "cursor");
    }
    Ok(())
}

async fn an_expired_record_is_in_no_range(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let ttl = Duration::from_secs(5);
    for key in ["a.1", "a.2", "a.3"] {
        let put = Put::new(Key::new(key)?, fields([("n", "1")])?);
        let put = if key == "a.2" { put.ttl(ttl) } else { put };
        w.store.write(Write::Put(put)).await?;
    }
    // A scan that stands on it goes on.
    let mut next = scan(2)?;
    next.cursor = w.store.scan(next.clone()).await?.next;
    w.advance(ttl);
    for swept in [false, true] {
        if swept {
            w.sweep().await?;
        }
        assert_eq!(keys(w.store.as_ref(), scan(1)?).await?, ["a.1", "a.3"]);
        assert_eq!(keys(w.store.as_ref(), next.clone()).await?, ["a.3"]);
    }
    Ok(())
}

/// Puts records with these values of `n`, many a call.
async fn put_many(w: &World, values: impl Iterator<Item = i64>) -> Result<()> {
    let puts = values.enumerate().map(|(place, n)| {
        let fields = Fields::from([(name("n")?, n.to_string().into())]);
        Ok(Write::Put(Put::new(
            Key::new(format!("a.{place:05}"))?,
            fields,
        )))
    });
    let puts = puts.collect::<Result<Vec<Write>>>()?;
    for writes in puts.chunks(200) {
        let commit = Commit {
            writes: writes.to_vec(),
            ..Commit::new()
        };
        w.store.commit_one(commit).await?;
    }
    Ok(())
}

async fn a_page_of_a_range_examines_a_bounded_number_of_records(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    put_many(&w, 0..10_100).await?;
    let mut scan = scan(10)?;
    scan.filters.push(Filter {
        field: name("n")?,
        operator: Operator::Greater,
        value: Value::Integer(10_097),
    });
    let first = w.store.scan(scan.clone()).await?;
    assert!(first.rows.is_empty() && first.next.is_some(), "{first:?}");
    let found = values(w.store.as_ref(), scan).await?.into_iter();
    let found: Vec<i64> = found.map(|(n, _)| n).collect();
    assert_eq!(found, [10_098, 10_099]);
    Ok(())
}

async fn a_page_of_a_range_holds_a_bounded_number_of_bytes(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let large = "x".repeat(200 * 1024);
    for n in 0..24 {
        let all = [("n", n.to_string()), ("large", large.clone())];
        w.put(&format!("a.{n:02}"), all).await?;
    }
    let all = pages(w.store.as_ref(), scan(1_000)?).await?;
    assert!(all[0].len() <= 22, "{} in a page", all[0].len());
    assert_eq!(all.concat().len(), 24);
    Ok(())
}
