//! Declared indexes: what is in them, and that every write keeps them.

use std::time::Duration;

use crate::conformance::ranges::{fill, in_order, index, put_value, range, ready};
use crate::conformance::records::{merge, revision};
use crate::conformance::scans::keys;
use crate::conformance::text_as_data::AWKWARD;
use crate::conformance::world::{World, conflict, invalid, name};
use crate::error::{Conflict, Invalid, NotFound, Problem, Result};
use crate::limits::INDEXES_MAX;
use crate::names::{Key, Prefix};
use crate::record::{Fields, fields};
use crate::store::{
    Commit, DeclareIndex, Declared, DropIndex, Dropped, Guard, Put, Scan, StoreExt, Write,
};

cases!["indexes":
    a_record_is_there_exactly_while_its_field_is_an_integer if IntegerIndexes,
    every_kind_of_write_moves_a_record if IntegerIndexes,
    a_record_written_anew_after_it_expired_is_there_once if IntegerIndexes,
    what_a_commit_leaves_counts_and_a_refused_one_leaves_nothing if IntegerIndexes,
    the_prefix_of_an_index_is_text_and_nothing_else if IntegerIndexes,
    indexes_that_overlap_are_kept_apart if IntegerIndexes,
    an_index_is_kept_by_every_handle_and_known_to_no_other_namespace if IntegerIndexes,
    indexes_are_listed_in_order if IntegerIndexes,
    an_index_that_is_not_declared_or_not_ready_is_told if IntegerIndexes,
    a_dropped_index_is_gone_at_once_and_filled_anew if IntegerIndexes,
    a_namespace_has_a_bounded_number_of_indexes if IntegerIndexes,
    a_step_of_a_bad_size_is_invalid if IntegerIndexes,
    indexes_leave_nothing_in_the_history if IntegerIndexes,
];

const TTL: Duration = Duration::from_secs(5);

async fn drop_index(w: &World, prefix: &str, field: &str) -> Result<bool> {
    let index = index(prefix, field)?;
    Ok(w.store.drop_index(DropIndex { index }).await?.existed)
}

async fn a_record_is_there_exactly_while_its_field_is_an_integer(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let none: [&[u8]; 14] = [
        b"",
        b"01",
        b"+1",
        b"-0",
        b"-",
        b"1.0",
        b"1e3",
        b" 1",
        b"1 ",
        b"0x1",
        b"9223372036854775808",
        b"-9223372036854775809",
        "\u{661}".as_bytes(),
        b"1\xff",
    ];
    for value in none {
        put_value(&w, "a.1", 1).await?;
        w.put("a.1", [("n", value)]).await?;
        assert_eq!(in_order(&w, "a.").await?, [], "{value:?}");
    }
    for value in [i64::MIN, -1, 0, 7, i64::MAX] {
        put_value(&w, "a.1", value).await?;
        assert_eq!(in_order(&w, "a.").await?, [(value, "a.1".into())]);
    }
    w.put("a.1", [("m", "1")]).await?;
    assert_eq!(in_order(&w, "a.").await?, []);
    Ok(())
}

async fn every_kind_of_write_moves_a_record(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let key = Key::new("a.1")?;
    let n = || name("n");
    let writes: Vec<(Write, Option<i64>)> = vec![
        (
            Write::Put(Put::new(key.clone(), fields([("n", "5")])?)),
            Some(5),
        ),
        (
            Write::Put(Put::new(key.clone(), fields([("n", "3")])?).ttl(TTL)),
            Some(3),
        ),
        (Write::Touch(key.clone(), None), Some(3)),
        (
            Write::Merge(merge("a.1")?.set(fields([("m", "x")])?)),
            Some(3),
        ),
        (
            Write::Merge(merge("a.1")?.set(fields([("n", "-9")])?)),
            Some(-9),
        ),
        (Write::Merge(merge("a.1")?.add(n()?, 10)), Some(1)),
        (Write::Merge(merge("a.1")?.raise(n()?, 0)), Some(1)),
        (Write::Merge(merge("a.1")?.raise(n()?, 40)), Some(40)),
        (Write::Merge(merge("a.1")?.unset(n()?)), None),
        (Write::Merge(merge("a.1")?.add(n()?, 2)), Some(2)),
        (Write::Delete(key.clone()), None),
        (Write::Merge(merge("a.1")?.raise(n()?, 8)), Some(8)),
        (Write::Put(Put::new(key, Fields::new())), None),
    ];
    for (write, expected) in writes {
        let what = format!("{write:?}");
        w.write_with_id(write).await?;
        let expected: Vec<_> = expected
            .map(|n| (n, "a.1".to_owned()))
            .into_iter()
            .collect();
        assert_eq!(in_order(&w, "a.").await?, expected, "{what}");
    }
    Ok(())
}

async fn a_record_written_anew_after_it_expired_is_there_once(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    for swept in [false, true] {
        for anew in [
            Write::Put(Put::new(Key::new("a.1")?, fields([("n", "2")])?)),
            Write::Merge(merge("a.1")?.set(fields([("n", "2")])?)),
            Write::Merge(merge("a.1")?.add(name("n")?, 2)),
        ] {
            let short = Put::new(Key::new("a.1")?, fields([("n", "1")])?).ttl(TTL);
            w.store.write(Write::Put(short)).await?;
            w.advance(TTL - Duration::from_millis(1));
            assert_eq!(in_order(&w, "a.").await?, [(1, "a.1".into())]);
            w.advance(Duration::from_millis(1));
            assert_eq!(in_order(&w, "a.").await?, []);
            if swept {
                assert_eq!(w.sweep().await?.records, 1);
                assert_eq!(in_order(&w, "a.").await?, []);
            }
            w.write_with_id(anew).await?;
            assert_eq!(in_order(&w, "a.").await?, [(2, "a.1".into())]);
            w.store.write(Write::Delete(Key::new("a.1")?)).await?;
            assert_eq!(in_order(&w, "a.").await?, []);
        }
    }
    Ok(())
}

async fn what_a_commit_leaves_counts_and_a_refused_one_leaves_nothing(w: World) -> Result<()> {
    ready(&w, "a.", "n").await?;
    let put = |key: &str, n: &'static str| -> Result<Write> {
        Ok(Write::Put(Put::new(Key::new(key)?, fields([("n", n)])?)))
    };
    let twice = Commit::of(put("a.1", "1")?)
        .write(put("a.1", "2")?)
        .write(put("a.2", "9")?)
        .write(Write::Delete(Key::new("a.2")?));
    let refused = Commit::of(put("a.1", "7")?)
        .write(put("a.3", "7")?)
        .guard(Guard::RecordAbsent(Key::new("a.1")?));
    let after = Commit::of(Write::Merge(merge("a.1")?.add(name("n")?, 3))).id(w.ids.commit());
    let answers = w.store.commit(vec![twice, refused, after]).await;
    assert_eq!(
        answers.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, true]
    );
    assert_eq!(in_order(&w, "a.").await?, [(5, "a.1".into())]);
    Ok(())
}

async fn the_prefix_of_an_index_is_text_and_nothing_else(w: World) -> Result<()> {
    let all = || (0_i64..).zip(AWKWARD);
    let put = |(n, key): (i64, &&str)| -> Result<Write> {
        let fields = Fields::from([(name("n")?, n.to_string().into())]);
        Ok(Write::Put(Put::new(Key::new(key)?, fields)))
    };
    let puts = all().map(put).collect::<Result<Vec<Write>>>()?;
    let deletes = AWKWARD.iter().map(|key| Ok(Write::Delete(Key::new(key)?)));
    let deletes = deletes.collect::<Result<Vec<Write>>>()?;
    for (n, prefix) in all() {
        // Some are declared before the records are there, some after.
        if n % 2 == 0 {
            ready(&w, prefix, "n").await?;
        }
        for writes in [&deletes, &puts] {
            let commit = Commit {
                writes: writes.clone(),
                ..Commit::new()
            };
            w.store.commit_one(commit).await?;
        }
        ready(&w, prefix, "n").await?;
        let expected: Vec<_> = all()
            .filter(|(_, key)| key.starts_with(prefix))
            .map(|(n, key)| (n, (*key).to_owned()))
            .collect();
        assert_eq!(in_order(&w, prefix).await?, expected, "{prefix:?}");
        assert!(drop_index(&w, prefix, "n").await?);
    }
    Ok(())
}

async fn indexes_that_overlap_are_kept_apart(w: World) -> Result<()> {
    for (prefix, field) in [("", "n"), ("a.", "n"), ("a.b.", "n"), ("a.", "m")] {
        ready(&w, prefix, field).await?;
    }
    w.put("a.b.1", [("n", "1"), ("m", "-1")]).await?;
    w.put("a.2", [("n", "2"), ("m", "-2")]).await?;
    w.put("b.3", [("n", "3"), ("m", "-3")]).await?;
    w.put("a.b.4", [("n", "4")]).await?;
    let found = async |prefix: &str, field: &str| {
        let scan = Scan::new(Prefix::new(prefix)?, 10).range(range(field)?);
        keys(w.store.as_ref(), scan).await
    };
    assert_eq!(found("", "n").await?, ["a.b.1", "a.2", "b.3", "a.b.4"]);
    assert_eq!(found("a.", "n").await?, ["a.b.1", "a.2", "a.b.4"]);
    assert_eq!(found("a.b.", "n").await?, ["a.b.1", "a.b.4"]);
    assert_eq!(found("a.", "m").await?, ["a.2", "a.b.1"]);
    assert!(drop_index(&w, "a.", "n").await?);
    put_value(&w, "a.2", 9).await?;
    assert_eq!(found("", "n").await?, ["a.b.1", "b.3", "a.b.4", "a.2"]);
    assert_eq!(found("a.b.", "n").await?, ["a.b.1", "a.b.4"]);
    assert_eq!(found("a.", "m").await?, ["a.b.1"]);
    Ok(())
}

async fn an_index_is_kept_by_every_handle_and_known_to_no_other_namespace(w: World) -> Result<()> {
    let (second, elsewhere) = (w.second().await?, w.elsewhere().await?);
    let put = |key: &str, n: i64| -> Result<Write> {
        let fields = Fields::from([(name("n")?, n.to_string().into())]);
        Ok(Write::Put(Put::new(Key::new(key)?, fields)))
    };
    // All have written before, so they may believe to know what there is.
    second.write(put("a.1", 1)?).await?;
    elsewhere.write(put("a.1", 1)?).await?;
    put_value(&w, "a.2", 2).await?;
    ready(&w, "a.", "n").await?;
    second.write(put("a.1", 5)?).await?;
    elsewhere.write(put("a.9", 9)?).await?;
    let expected = [(2, "a.2".into()), (5, "a.1".into())];
    assert_eq!(in_order(&w, "a.").await?, expected);
    assert_eq!(second.indexes().await?, w.store.indexes().await?);
    assert_eq!(elsewhere.indexes().await?, []);
    let index = index("a.", "n")?;
    let not_there = NotFound::Index(index.clone());
    let scan = Scan::new(Prefix::new("a.")?, 10).range(range("n")?);
    assert_eq!(elsewhere.scan(scan.clone()).await, Err(not_there.into()));
    fill(elsewhere.as_ref(), index.clone(), 1_000).await?;
    assert_eq!(keys(elsewhere.as_ref(), scan).await?, ["a.1", "a.9"]);
    let dropped = elsewhere.drop_index(DropIndex { index }).await?;
    assert_eq!(dropped, Dropped { existed: true });
    assert_eq!(in_order(&w, "a.").await?, expected);
    // Dropped by one, it is not kept by the other.
    assert!(drop_index(&w, "a.", "n").await?);
    second.write(put("a.1", 6)?).await?;
    ready(&w, "a.", "n").await?;
    let expected = [(2, "a.2".into()), (6, "a.1".into())];
    assert_eq!(in_order(&w, "a.").await?, expected);
    Ok(())
}

async fn indexes_are_listed_in_order(w: World) -> Result<()> {
    assert_eq!(w.store.indexes().await?, []);
    put_value(&w, "b1", 1).await?;
    put_value(&w, "b2", 1).await?;
    let mut expected = Vec::new();
    for (prefix, field) in [("b", "n"), ("a", "n"), ("", "z"), ("b", "m")] {
        let index = index(prefix, field)?;
        let declare = DeclareIndex {
            index: index.clone(),
            limit: 1,
        };
        let declared = w.store.declare_index(declare).await?;
        assert_eq!(declared.index, index);
        expected.push(declared);
    }
    expected.sort_by(|one, other| one.index.cmp(&other.index));
    assert_eq!(w.store.indexes().await?, expected);
    let is_ready = |declared: &Declared| declared.ready;
    let states: Vec<bool> = expected.iter().map(is_ready).collect();
    assert_eq!(states, [false, true, false, false]);
    Ok(())
}

async fn an_index_that_is_not_declared_or_not_ready_is_told(w: World) -> Result<()> {
    for n in 0..3 {
        put_value(&w, &format!("a.{n}"), n).await?;
    }
    let index = index("a.", "n")?;
    let scan = Scan::new(Prefix::new("a.")?, 10).range(range("n")?);
    let not_there = NotFound::Index(index.clone());
    assert_eq!(w.store.scan(scan.clone()).await, Err(not_there.into()));
    let declare = DeclareIndex {
        index: index.clone(),
        limit: 1,
    };
    assert!(!w.store.declare_index(declare.clone()).await?.ready);
    let not_ready = Conflict::IndexNotReady {
        index: index.clone(),
    };
    assert_eq!(conflict(w.store.scan(scan.clone()).await), not_ready);
    fill(w.store.as_ref(), index, 1).await?;
    assert_eq!(w.store.scan(scan).await?.rows.len(), 3);
    // An index on another field, or on more or fewer records, does not do.
    for (prefix, field) in [("a.", "m"), ("a", "n"), ("a.1", "n")] {
        let scan = Scan::new(Prefix::new(prefix)?, 10).range(range(field)?);
        let other = super::ranges::index(prefix, field)?;
        let not_there = NotFound::Index(other);
        assert_eq!(w.store.scan(scan).await, Err(not_there.into()));
    }
    Ok(())
}

async fn a_dropped_index_is_gone_at_once_and_filled_anew(w: World) -> Result<()> {
    assert!(!drop_index(&w, "a.", "n").await?);
    for n in 0..5 {
        put_value(&w, &format!("a.{n}"), n).await?;
    }
    ready(&w, "a.", "n").await?;
    assert!(drop_index(&w, "a.", "n").await?);
    assert!(!drop_index(&w, "a.", "n").await?);
    assert_eq!(w.store.indexes().await?, []);
    let scan = Scan::new(Prefix::new("a.")?, 10).range(range("n")?);
    let not_there = NotFound::Index(index("a.", "n")?);
    assert_eq!(w.store.scan(scan).await, Err(not_there.into()));
    // What is written meanwhile must not be met as it was.
    put_value(&w, "a.0", 10).await?;
    w.store.write(Write::Delete(Key::new("a.1")?)).await?;
    let declare = DeclareIndex {
        index: index("a.", "n")?,
        limit: 2,
    };
    assert!(!w.store.declare_index(declare.clone()).await?.ready);
    assert!(drop_index(&w, "a.", "n").await?);
    assert!(!w.store.declare_index(declare).await?.ready);
    ready(&w, "a.", "n").await?;
    let expected = [(2, "a.2"), (3, "a.3"), (4, "a.4"), (10, "a.0")];
    let expected = expected.map(|(n, key)| (n, key.to_owned()));
    assert_eq!(in_order(&w, "a.").await?, expected);
    Ok(())
}

async fn a_namespace_has_a_bounded_number_of_indexes(w: World) -> Result<()> {
    for n in 0..INDEXES_MAX {
        ready(&w, "a.", &format!("n{n}")).await?;
    }
    let one_more = DeclareIndex {
        index: index("a.", "more")?,
        limit: 1,
    };
    let (count, max) = (INDEXES_MAX + 1, INDEXES_MAX);
    let problem = Problem::TooMany { count, max };
    let answer = w.store.declare_index(one_more.clone()).await;
    assert_eq!(invalid(answer), Invalid::new("index", problem));
    assert_eq!(w.store.indexes().await?.len(), INDEXES_MAX);
    ready(&w, "a.", "n0").await?;
    assert!(drop_index(&w, "a.", "n0").await?);
    assert!(w.store.declare_index(one_more).await?.ready);
    Ok(())
}

async fn a_step_of_a_bad_size_is_invalid(w: World) -> Result<()> {
    for limit in [0, 1_001, usize::MAX] {
        let index = index("a.", "n")?;
        let answer = w.store.declare_index(DeclareIndex { index, limit }).await;
        assert_eq!(invalid(answer).field, "limit");
    }
    assert_eq!(w.store.indexes().await?, []);
    Ok(())
}

async fn indexes_leave_nothing_in_the_history(w: World) -> Result<()> {
    let record = put_value(&w, "a.1", 1).await?;
    let before = w.history().await?;
    ready(&w, "a.", "n").await?;
    assert!(drop_index(&w, "a.", "n").await?);
    assert_eq!(w.history().await?, before);
    assert_eq!(w.record("a.1").await?.as_ref(), Some(&record));
    let next = w.store.write(Write::Touch(record.key, None)).await?;
    assert!(revision(next) > record.revision);
    Ok(())
}
