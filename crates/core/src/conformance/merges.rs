//! Merges: the fields they name change, numbers add up, and nothing else is touched.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::change::Change;
use crate::conformance::act::insist;
use crate::conformance::observe::assert_fields;
use crate::conformance::parallel;
use crate::conformance::records::{TTL, merge, put_for_a_while, revision, told};
use crate::conformance::world::{World, conflict, name, text};
use crate::error::{Conflict, Result};
use crate::ids::Revision;
use crate::names::Key;
use crate::record::{Record, fields};
use crate::store::{Commit, Outcome, Put, StoreExt, Write};

cases!["merges":
    a_merge_changes_the_named_fields_and_keeps_the_time_to_live,
    a_merge_creates_a_record_that_is_not_there,
    a_merge_answers_the_record_as_it_is_afterwards_if_asked,
    an_addition_counts_an_absent_field_as_zero_and_is_exact,
    concurrent_additions_are_all_counted,
    a_raise_never_lowers,
    what_is_not_an_integer_is_neither_added_to_nor_raised,
    a_sum_past_64_bits_is_refused,
];

async fn a_merge_changes_the_named_fields_and_keeps_the_time_to_live(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let before = fields([("kept", "1"), ("set", "1"), ("unset", "1")])?;
    let before = w.put_record(Put::new(key, before).ttl(TTL)).await?;
    w.advance(Duration::from_secs(2));
    let write = merge("key")?
        .set(fields([("set", "2"), ("new", "2")])?)
        .unset(name("unset")?)
        .unset(name("never there")?);
    let outcome = w.store.write(Write::Merge(write)).await?;
    let after = Record {
        fields: fields([("kept", "1"), ("set", "2"), ("new", "2")])?,
        revision: revision(outcome),
        modified_at: w.now(),
        ..before.clone()
    };
    assert!(after.revision > before.revision);
    assert_eq!(w.record("key").await?.as_ref(), Some(&after));
    assert_eq!(
        told(&w, "key").await?,
        [Change::Put(before), Change::Put(after)]
    );
    w.advance(Duration::from_secs(3));
    assert_eq!(w.record("key").await?, None);
    Ok(())
}

async fn a_merge_creates_a_record_that_is_not_there(w: World) -> Result<()> {
    let write = merge("key")?
        .set(fields([("a", "1")])?)
        .unset(name("b")?)
        .raise(name("c")?, -3);
    let outcome = w.store.write(Write::Merge(write)).await?;
    let expected = Record {
        key: Key::new("key")?,
        fields: fields([("a", "1"), ("c", "-3")])?,
        revision: revision(outcome),
        modified_at: w.now(),
        expires_at: None,
    };
    assert_eq!(w.record("key").await?, Some(expected));
    Ok(())
}

async fn a_merge_answers_the_record_as_it_is_afterwards_if_asked(w: World) -> Result<()> {
    put_for_a_while(&w, "key").await?;
    let write = merge("key")?
        .set(fields([("new", "x")])?)
        .unset(name("old")?)
        .add(name("count")?, 3)
        .returning();
    let outcome = w.write_with_id(Write::Merge(write)).await?;
    let after = w.record("key").await?;
    let shown = after.as_ref().map(|record| record.fields.clone());
    assert_eq!(shown, Some(fields([("count", "10"), ("new", "x")])?));
    let expected = Outcome::Written {
        revision: after.as_ref().map_or(Revision::ZERO, |r| r.revision),
        modified_at: w.now(),
        record: after,
    };
    assert_eq!(outcome, expected);
    let silent = merge("key")?.set(fields([("new", "y")])?);
    let outcome = w.store.write(Write::Merge(silent)).await?;
    assert!(matches!(outcome, Outcome::Written { record: None, .. }));
    Ok(())
}

async fn an_addition_counts_an_absent_field_as_zero_and_is_exact(w: World) -> Result<()> {
    w.put("key", [("other", "kept")]).await?;
    // The large ones are not exact in floating point.
    for (number, sum) in [
        (5, "5"),
        (-8, "-3"),
        (0, "-3"),
        (9_007_199_254_740_996, "9007199254740993"),
        (9_214_364_837_600_034_814, "9223372036854775807"),
        (i64::MIN, "-1"),
        (-i64::MAX, "-9223372036854775808"),
    ] {
        let write = merge("key")?.add(name("sum")?, number);
        w.write_with_id(Write::Merge(write)).await?;
        let expected = fields([("other", "kept"), ("sum", sum)])?;
        assert_fields(&w, "key", expected).await?;
    }
    Ok(())
}

async fn concurrent_additions_are_all_counted(w: World) -> Result<()> {
    let stores = [w.store.clone(), w.second().await?];
    let add = |n: usize| {
        let (w, store) = (w.clone(), stores[n % 2].clone());
        async move {
            let write = merge("key")?.add(name("sum")?, 1).returning();
            let commit = Commit::of(Write::Merge(write)).id(w.ids.commit());
            match insist(store.as_ref(), commit).await?.outcomes.pop() {
                Some(Outcome::Written { record, .. }) => Ok(record),
                other => panic!("expected a written record, got {other:?}"),
            }
        }
    };
    let mut sums = BTreeSet::new();
    for answer in parallel((0..12).map(add)).await {
        let answer: Result<Option<Record>> = answer;
        let record = answer?;
        sums.extend(record.and_then(|record| text(&record.fields, "sum")));
    }
    let expected: BTreeSet<String> = (1..=12).map(|sum| sum.to_string()).collect();
    assert_eq!(sums, expected, "each addition sees a sum of its own");
    assert_fields(&w, "key", fields([("sum", "12")])?).await?;
    Ok(())
}

async fn a_raise_never_lowers(w: World) -> Result<()> {
    for (to, then) in [
        (-20, "-20"),
        (-30, "-20"),
        (-3, "-3"),
        (9, "9"),
        (9, "9"),
        (10, "10"),
        (9, "10"),
        (i64::MAX, "9223372036854775807"),
        (i64::MIN, "9223372036854775807"),
    ] {
        let write = merge("key")?.raise(name("mark")?, to);
        w.store.write(Write::Merge(write)).await?;
        let record = w.record("key").await?;
        let expected = fields([("mark", then)])?;
        assert_eq!(
            record.map(|record| record.fields),
            Some(expected),
            "raised to {to}"
        );
    }
    Ok(())
}

async fn what_is_not_an_integer_is_neither_added_to_nor_raised(w: World) -> Result<()> {
    let values: [&[u8]; 9] = [
        b"",
        b"abc",
        b"1.5",
        b"1e3",
        b"0x10",
        b"1 ",
        b"9223372036854775808",
        b"-9223372036854775809",
        b"\xff",
    ];
    for value in values {
        let before = w.put("key", [("field", value)]).await?;
        let history = w.history().await?.entries;
        let (key, field) = (before.key.clone(), name("field")?);
        let write = merge("key")?.set(fields([("new", "1")])?);
        for write in [
            write.clone().add(field.clone(), 0),
            write.clone().raise(field.clone(), 5),
        ] {
            let (key, field) = (key.clone(), field.clone());
            let answer = w.write_with_id(Write::Merge(write)).await;
            assert_eq!(conflict(answer), Conflict::NotInteger { key, field });
        }
        assert_eq!(w.record("key").await?, Some(before), "{value:?}");
        assert_eq!(w.history().await?.entries, history);
    }
    Ok(())
}

async fn a_sum_past_64_bits_is_refused(w: World) -> Result<()> {
    for (value, number) in [
        ("9223372036854775807", 1),
        ("-9223372036854775808", -1),
        ("1", i64::MAX),
        ("-1", i64::MIN),
    ] {
        let before = w.put("key", [("fine", "1"), ("sum", value)]).await?;
        let history = w.history().await?.entries;
        let write = merge("key")?
            .add(name("fine")?, 1)
            .add(name("sum")?, number);
        let answer = w.write_with_id(Write::Merge(write)).await;
        let (key, field) = (before.key.clone(), name("sum")?);
        assert_eq!(conflict(answer), Conflict::Overflow { key, field });
        assert_eq!(w.record("key").await?, Some(before));
        assert_eq!(w.history().await?.entries, history);
    }
    Ok(())
}
