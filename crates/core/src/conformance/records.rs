//! Records: what each write leaves of them, when they expire, and that all text is data.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use crate::change::{Change, Removal};
use crate::conformance::parallel;
use crate::conformance::world::{World, conflict, name, text};
use crate::error::{Conflict, Error, NotFound, Result};
use crate::ids::Revision;
use crate::names::{Key, Name, Prefix};
use crate::record::{Fields, Record, fields};
use crate::store::{
    Commit, Due, Get, Guard, Merge, Outcome, Put, Receipt, Scan, Store, StoreExt, Write,
};

cases!["records":
    a_put_replaces_all_fields_and_the_time_to_live,
    a_record_without_fields_is_a_record,
    a_merge_changes_the_named_fields_and_keeps_the_time_to_live,
    a_merge_creates_a_record_that_is_not_there,
    a_merge_answers_the_record_as_it_is_afterwards_if_asked,
    an_addition_counts_an_absent_field_as_zero_and_is_exact,
    concurrent_additions_are_all_counted,
    a_raise_never_lowers,
    what_is_not_an_integer_is_neither_added_to_nor_raised,
    a_sum_past_64_bits_is_refused,
    a_delete_says_whether_the_record_was_there,
    a_touch_changes_the_expiry_and_the_revision_and_nothing_else,
    a_touch_of_what_is_not_there_is_not_found,
    a_record_is_there_until_exactly_its_expiry,
    an_expired_record_is_not_there_before_anybody_sweeps,
    a_sweep_tells_of_an_expiry_once,
    a_write_over_an_expired_record_tells_of_the_expiry_first,
    a_merge_that_races_the_expiry_finds_the_record_or_starts_anew,
    an_expiry_decided_too_late_leaves_the_record_alone,
    an_expiry_of_what_is_not_there_does_nothing,
    a_revision_grows_with_every_write_and_over_every_removal,
    a_record_was_modified_at_the_time_of_its_last_write,
    a_read_answers_every_key_in_the_order_asked,
    a_read_of_a_thousand_keys_answers_them_all,
    values_are_bytes,
    keys_are_data_whatever_they_contain,
    field_names_are_data_whatever_they_contain,
    the_longest_keys_are_told_apart,
    two_handles_see_each_others_writes,
    namespaces_are_apart,
];

/// Texts that mean something to SQL, Lua, patterns, paths or subjects, and texts that are easily
/// mistaken for one another. All are different.
#[rustfmt::skip]
pub(super) const AWKWARD: &[&str] = &[
    "%", "_", "*", ">", "?", ".", "..", "/", ":", "'", "\"", "`", ";", "\\", "{", "}", "[", "]",
    "(", "$1", "?1", "@p", "#", "&", "=", "|", "--", "<", "~", "^", "!", "+", ",", " ", "  ",
    "\n", "\r\n", "\t", "\u{1}", "\u{7f}", "\u{feff}", "\u{fffd}", "\u{10ffff}", "null", "NULL",
    "0", "00", "-1", "a", "A", "a.", ".a", "a.b", "a:b", "a/b", "a_b", "a%b", "a*b", "a>b", "a b",
    "a\nb", "a\\b", "a'b", "a''b", "a\"b", "a;b", "a{b}", "a[b]", "a%2Eb", "a%2eb", "a\\u002Eb",
    "a=2Eb", "a..b", "a::b", "a ", " a", "\u{e9}", "e\u{301}", "\u{df}", "ss", "\u{1f41f}",
    "\u{1f41f}\u{1f41f}", "__name__", "'; DROP TABLE records; --", "\" or 1=1", "{{a}}", "$a.b",
];

/// What a store may call its own columns, members and headers.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "key", "revision", "rev", "_rev", "__rev", "version", "ttl", "modified_at", "expires_at",
    "fields", "id", "_id", "data", "value", "rowid", "Nats-TTL", "__proto__", "created_at",
];

const TTL: Duration = Duration::from_secs(5);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Puts a record and answers it.
async fn put(w: &World, put: Put) -> Result<Record> {
    let key = put.key.clone();
    w.store.write(Write::Put(put)).await?;
    let record = w.store.record(&key).await?;
    record.ok_or_else(|| NotFound::Record(key).into())
}

/// Puts a record that lives for [`TTL`] and answers it.
async fn put_for_a_while(w: &World, key: &str) -> Result<Record> {
    let old = fields([("old", "1"), ("count", "7")])?;
    put(w, Put::new(Key::new(key)?, old).ttl(TTL)).await
}

/// Everything that the history says about a record.
async fn told(w: &World, key: &str) -> Result<Vec<Change>> {
    let changes = w.history().await?.entries.into_iter();
    let about = |change: &Change| match change {
        Change::Put(record) => record.key.as_str() == key,
        Change::Removed { key: removed, .. } => removed.as_str() == key,
        Change::Task(_) | Change::Group { .. } => false,
    };
    Ok(changes.flat_map(|e| e.changes).filter(about).collect())
}

fn removed(record: &Record, how: Removal) -> Change {
    Change::Removed {
        key: record.key.clone(),
        revision: record.revision,
        how,
    }
}

fn revision(outcome: Outcome) -> Revision {
    match outcome {
        Outcome::Written { revision, .. } => revision,
        other => panic!("expected a written record, got {other:?}"),
    }
}

/// Asserts that the record is there with these fields.
pub(super) async fn assert_fields(w: &World, key: &str, expected: Fields) -> Result<()> {
    let record = w.record(key).await?;
    assert_eq!(record.map(|record| record.fields), Some(expected), "{key}");
    Ok(())
}

fn merge(key: &str) -> Result<Merge> {
    Ok(Merge::new(Key::new(key)?))
}

/// Makes a commit, again while others are in its way.
pub(super) async fn persist(store: &dyn Store, commit: Commit) -> Result<Receipt> {
    loop {
        match store.commit_one(commit.clone()).await {
            Err(Error::Conflict(why)) if matches!(*why, Conflict::Contended { .. }) => {}
            answer => return answer,
        }
    }
}

async fn a_put_replaces_all_fields_and_the_time_to_live(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let first = Put::new(key.clone(), fields([("a", "1"), ("b", "1")])?).ttl(TTL);
    let first = revision(w.store.write(Write::Put(first)).await?);
    w.advance(Duration::from_secs(1));
    let outcome = w
        .store
        .write(Write::Put(Put::new(
            key.clone(),
            fields([("b", "2"), ("c", "2")])?,
        )))
        .await?;
    let second = Record {
        key: key.clone(),
        fields: fields([("b", "2"), ("c", "2")])?,
        revision: revision(outcome),
        modified_at: w.now(),
        expires_at: None,
    };
    assert!(second.revision > first);
    w.advance(TTL);
    assert_eq!(w.record("key").await?.as_ref(), Some(&second));
    let third = put(&w, Put::new(key, fields([("d", "3")])?).ttl(TTL)).await?;
    let expected = Record {
        fields: fields([("d", "3")])?,
        revision: third.revision,
        modified_at: w.now(),
        expires_at: Some(w.now().saturating_plus(TTL)),
        ..second
    };
    assert_eq!(third, expected);
    Ok(())
}

async fn a_record_without_fields_is_a_record(w: World) -> Result<()> {
    let empty = put(&w, Put::new(Key::new("empty")?, Fields::new())).await?;
    assert_eq!(empty.fields, Fields::new());
    w.put("emptied", [("only", "1")]).await?;
    let unset = merge("emptied")?.unset(name("only")?);
    w.store.write(Write::Merge(unset)).await?;
    assert_fields(&w, "emptied", Fields::new()).await?;
    w.store.write(Write::Merge(merge("merged")?)).await?;
    assert_fields(&w, "merged", Fields::new()).await?;
    for key in ["empty", "emptied", "merged"] {
        let key = Key::new(key)?;
        let present = Commit::new().guard(Guard::RecordPresent(key.clone()));
        w.store.commit_one(present).await?;
        let outcome = w.store.write(Write::Delete(key)).await?;
        assert_eq!(outcome, Outcome::Removed { existed: true });
    }
    Ok(())
}

async fn a_merge_changes_the_named_fields_and_keeps_the_time_to_live(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let before = fields([("kept", "1"), ("set", "1"), ("unset", "1")])?;
    let before = put(&w, Put::new(key, before).ttl(TTL)).await?;
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
            match persist(store.as_ref(), commit).await?.outcomes.pop() {
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

async fn a_delete_says_whether_the_record_was_there(w: World) -> Result<()> {
    let record = w.put("key", [("a", "1")]).await?;
    let neighbour = w.put("key2", [("a", "1")]).await?;
    let delete = || w.store.write(Write::Delete(record.key.clone()));
    assert_eq!(delete().await?, Outcome::Removed { existed: true });
    assert_eq!(w.record("key").await?, None);
    assert_eq!(delete().await?, Outcome::Removed { existed: false });
    let all = [
        Change::Put(record.clone()),
        removed(&record, Removal::Deleted),
    ];
    assert_eq!(told(&w, "key").await?, all);
    assert_eq!(w.record("key2").await?, Some(neighbour));
    Ok(())
}

async fn a_touch_changes_the_expiry_and_the_revision_and_nothing_else(w: World) -> Result<()> {
    let mut record = put_for_a_while(&w, "key").await?;
    let history = w.history().await?.entries;
    for ttl in [
        Some(Duration::from_secs(60)),
        Some(TTL),
        None,
        Some(Duration::from_secs(9)),
    ] {
        w.advance(Duration::from_secs(4));
        let touch = Write::Touch(record.key.clone(), ttl);
        let outcome = w.store.write(touch).await?;
        let touched = Record {
            revision: revision(outcome),
            expires_at: ttl.map(|ttl| w.now().saturating_plus(ttl)),
            ..record.clone()
        };
        assert!(touched.revision > record.revision);
        assert_eq!(w.record("key").await?.as_ref(), Some(&touched));
        let stale = Guard::RecordAt(record.key.clone(), record.revision);
        conflict(w.store.commit_one(Commit::new().guard(stale)).await);
        record = touched;
    }
    assert_eq!(w.history().await?.entries, history);
    w.advance(Duration::from_secs(9));
    assert_eq!(w.record("key").await?, None);
    Ok(())
}

async fn a_touch_of_what_is_not_there_is_not_found(w: World) -> Result<()> {
    put_for_a_while(&w, "expired").await?;
    w.advance(TTL);
    let history = w.history().await?.entries;
    for key in ["absent", "expired"] {
        let key = Key::new(key)?;
        for ttl in [None, Some(TTL)] {
            let answer = w.store.write(Write::Touch(key.clone(), ttl)).await;
            assert_eq!(answer, Err(NotFound::Record(key.clone()).into()));
        }
        assert_eq!(w.store.record(&key).await?, None);
    }
    assert_eq!(w.history().await?.entries, history);
    Ok(())
}

async fn a_record_is_there_until_exactly_its_expiry(w: World) -> Result<()> {
    for ttl in [MILLISECOND, TTL, Duration::from_secs(100 * 365 * 86_400)] {
        let record = put(&w, Put::new(Key::new("key")?, Fields::new()).ttl(ttl)).await?;
        assert_eq!(record.expires_at, Some(w.now().saturating_plus(ttl)));
        w.advance(ttl - MILLISECOND);
        assert_eq!(w.record("key").await?, Some(record));
        assert_eq!(w.sweep().await?.records, 0);
        w.advance(MILLISECOND);
        assert_eq!(w.record("key").await?, None);
        assert_eq!(w.sweep().await?.records, 1);
    }
    Ok(())
}

async fn an_expired_record_is_not_there_before_anybody_sweeps(w: World) -> Result<()> {
    let record = put_for_a_while(&w, "key").await?;
    w.advance(TTL);
    let history = w.history().await?.entries;
    assert_eq!(w.record("key").await?, None);
    let scan = Scan::new(Prefix::any(), 10);
    assert_eq!(w.store.scan(scan).await?.rows, []);
    let key = record.key.clone();
    let old = Guard::Field(key.clone(), name("old")?, Some("1".into()));
    for guard in [
        Guard::RecordPresent(key.clone()),
        Guard::RecordAt(key.clone(), record.revision),
        old,
    ] {
        let answer = w.store.commit_one(Commit::new().guard(guard.clone())).await;
        assert_eq!(conflict(answer), Conflict::Guard { index: 0, guard });
    }
    let absent = Commit::new()
        .guard(Guard::RecordAbsent(key.clone()))
        .guard(Guard::Field(key, name("old")?, None));
    w.store.commit_one(absent).await?;
    assert_eq!(w.history().await?.entries, history);
    Ok(())
}

async fn a_sweep_tells_of_an_expiry_once(w: World) -> Result<()> {
    let record = put_for_a_while(&w, "key").await?;
    let stays = w.put("stays", [("a", "1")]).await?;
    assert_eq!(w.sweep().await?.next, record.expires_at);
    w.advance(TTL);
    assert_eq!(w.sweep().await?.records, 1);
    let all = [
        Change::Put(record.clone()),
        removed(&record, Removal::Expired),
    ];
    assert_eq!(told(&w, "key").await?, all);
    assert_eq!(w.sweep().await?, Default::default());
    let outcome = w.store.write(Write::Delete(record.key)).await?;
    assert_eq!(outcome, Outcome::Removed { existed: false });
    assert_eq!(told(&w, "key").await?, all);
    assert_eq!(w.record("stays").await?, Some(stays));
    Ok(())
}

async fn a_write_over_an_expired_record_tells_of_the_expiry_first(w: World) -> Result<()> {
    for (key, anew) in [("put", true), ("merge", true), ("delete", false)] {
        let old = put_for_a_while(&w, key).await?;
        w.advance(TTL);
        let write = match key {
            "put" => Write::Put(Put::new(old.key.clone(), fields([("new", "1")])?)),
            "merge" => Write::Merge(merge(key)?.set(fields([("new", "1")])?)),
            _ => Write::Delete(old.key.clone()),
        };
        let outcome = w.store.write(write).await?;
        let mut all = vec![Change::Put(old.clone()), removed(&old, Removal::Expired)];
        if anew {
            let record = Record {
                key: old.key,
                fields: fields([("new", "1")])?,
                revision: revision(outcome),
                modified_at: w.now(),
                expires_at: None,
            };
            assert!(record.revision > old.revision);
            assert_eq!(w.record(key).await?.as_ref(), Some(&record));
            all.push(Change::Put(record));
        } else {
            assert_eq!(outcome, Outcome::Removed { existed: false });
        }
        assert_eq!(told(&w, key).await?, all);
        assert_eq!(w.sweep().await?.records, 0);
        assert_eq!(told(&w, key).await?, all);
    }
    Ok(())
}

async fn a_merge_that_races_the_expiry_finds_the_record_or_starts_anew(w: World) -> Result<()> {
    for (key, wait, in_time) in [
        ("just before", TTL - MILLISECOND, true),
        ("at", TTL, false),
        ("just after", TTL + MILLISECOND, false),
    ] {
        let old = put_for_a_while(&w, key).await?;
        w.advance(wait);
        let write = merge(key)?
            .set(fields([("new", "1")])?)
            .add(name("count")?, 1);
        let outcome = w.write_with_id(Write::Merge(write)).await?;
        let (all, expires_at) = if in_time {
            let all = [("count", "8"), ("new", "1"), ("old", "1")];
            (fields(all)?, old.expires_at)
        } else {
            (fields([("count", "1"), ("new", "1")])?, None)
        };
        let after = Record {
            key: old.key.clone(),
            fields: all,
            revision: revision(outcome),
            modified_at: w.now(),
            expires_at,
        };
        assert_eq!(w.sweep().await?.records, 0);
        assert_eq!(w.record(key).await?.as_ref(), Some(&after), "{key}");
        let mut all = vec![Change::Put(old.clone())];
        if !in_time {
            all.push(removed(&old, Removal::Expired));
        }
        all.push(Change::Put(after.clone()));
        assert_eq!(told(&w, key).await?, all);
        w.advance(MILLISECOND);
        assert_eq!(w.sweep().await?.records, u64::from(in_time));
        if in_time {
            assert_eq!(w.record(key).await?, None);
            all.push(removed(&after, Removal::Expired));
        } else {
            assert_eq!(w.record(key).await?, Some(after));
        }
        assert_eq!(told(&w, key).await?, all);
    }
    Ok(())
}

async fn an_expiry_decided_too_late_leaves_the_record_alone(w: World) -> Result<()> {
    let touched = put_for_a_while(&w, "touched").await?;
    let expired = put_for_a_while(&w, "expired").await?;
    w.store.write(Write::Touch(touched.key, None)).await?;
    w.advance(TTL);
    let due = w.store.due(Due { limit: 10 }).await?;
    assert_eq!(due.records, std::slice::from_ref(&expired.key));
    let again = w.put("expired", [("new", "1")]).await?;
    let history = w.history().await?.entries;
    for key in ["touched", "expired"] {
        let before = w.record(key).await?;
        let expire = Write::ExpireRecord(Key::new(key)?);
        let receipt = w.store.commit_one(Commit::of(expire)).await?;
        let expected = Receipt {
            outcomes: vec![Outcome::Removed { existed: false }],
            position: None,
            repeated: false,
        };
        assert_eq!(receipt, expected);
        assert_eq!(w.record(key).await?, before);
    }
    assert_eq!(w.record("expired").await?, Some(again));
    assert_eq!(w.history().await?.entries, history);
    Ok(())
}

async fn an_expiry_of_what_is_not_there_does_nothing(w: World) -> Result<()> {
    let record = put_for_a_while(&w, "key").await?;
    w.advance(TTL);
    let expire = |key: &Key| w.store.write(Write::ExpireRecord(key.clone()));
    let first = expire(&record.key).await?;
    assert_eq!(first, Outcome::Removed { existed: true });
    let history = w.history().await?.entries;
    let second = expire(&record.key).await?;
    assert_eq!(second, Outcome::Removed { existed: false });
    let never = expire(&Key::new("never there")?).await?;
    assert_eq!(never, Outcome::Removed { existed: false });
    assert_eq!(w.history().await?.entries, history);
    Ok(())
}

async fn a_revision_grows_with_every_write_and_over_every_removal(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let mut last = Revision::ZERO;
    let mut seen = Vec::new();
    let put = || Write::Put(Put::new(key.clone(), Fields::new()));
    for write in [
        put(),
        put(),
        Write::Merge(Merge::new(key.clone())),
        Write::Touch(key.clone(), None),
        Write::Delete(key.clone()),
        put(),
        Write::Delete(key.clone()),
        Write::Merge(Merge::new(key.clone())),
        Write::Touch(key.clone(), Some(TTL)),
        Write::ExpireRecord(key.clone()),
        put(),
        Write::Touch(key.clone(), Some(TTL)),
        put(),
    ] {
        if matches!(write, Write::ExpireRecord(_)) {
            w.advance(TTL);
        }
        match w.store.write(write.clone()).await? {
            Outcome::Written { revision, .. } => {
                assert!(revision > last, "{revision} after {last} by {write:?}");
                let record = w.record("key").await?;
                assert_eq!(record.map(|record| record.revision), Some(revision));
                seen.push(revision);
                last = revision;
            }
            outcome => assert_eq!(outcome, Outcome::Removed { existed: true }),
        }
    }
    // No earlier life of the record can be mistaken for this one.
    for (n, revision) in seen.iter().enumerate() {
        let guard = Guard::RecordAt(key.clone(), *revision);
        let answer = w.store.commit_one(Commit::new().guard(guard)).await;
        assert_eq!(answer.is_ok(), n == seen.len() - 1, "{revision}");
    }
    Ok(())
}

async fn a_record_was_modified_at_the_time_of_its_last_write(w: World) -> Result<()> {
    let second = w.second().await?;
    let created = w.put("key", [("a", "1")]).await?;
    assert_eq!(created.modified_at, w.now());
    w.advance(Duration::from_millis(1_234));
    assert_eq!(w.record("key").await?, Some(created));
    let same = merge("key")?.set(fields([("a", "1")])?);
    second.write(Write::Merge(same)).await?;
    let merged = w.record("key").await?;
    assert_eq!(merged.map(|record| record.modified_at), Some(w.now()));
    assert_eq!(w.store.ping().await?, w.now());
    Ok(())
}

async fn a_read_answers_every_key_in_the_order_asked(w: World) -> Result<()> {
    let b = w.put("b", [("value", "b")]).await?;
    let a = w.put("a", [("value", "a")]).await?;
    let c = w.put("c", [("value", "c")]).await?;
    let keys = ["c", "absent", "a", "c", "absent", "b", "a", "a"];
    let keys = keys.into_iter().map(Key::new).collect::<Result<_, _>>()?;
    let (a, b, c) = (Some(a), Some(b), Some(c));
    let expected = [c.clone(), None, a.clone(), c, None, b, a.clone(), a];
    assert_eq!(w.store.get(Get { keys }).await?, expected);
    assert_eq!(w.store.get(Get { keys: Vec::new() }).await?, []);
    Ok(())
}

async fn a_read_of_a_thousand_keys_answers_them_all(w: World) -> Result<()> {
    let key = |n: usize| Key::new(format!("key.{n}"));
    let mut commits = vec![Commit::new(); 4];
    for n in 0..500 {
        let value = [("n", n.to_string())];
        let write = Write::Put(Put::new(key(n)?, fields(value)?));
        commits[n % 4].writes.push(write);
    }
    for receipt in w.store.commit(commits).await {
        receipt?;
    }
    let keys = (0..1_000).rev().map(key).collect::<Result<_, _>>()?;
    let found = w.store.get(Get { keys }).await?;
    let found: Vec<Option<String>> = (found.into_iter())
        .map(|record| record.and_then(|record| text(&record.fields, "n")))
        .collect();
    let expected: Vec<Option<String>> = (0..1_000)
        .rev()
        .map(|n| (n < 500).then(|| n.to_string()))
        .collect();
    assert_eq!(found, expected);
    Ok(())
}

async fn values_are_bytes(w: World) -> Result<()> {
    let every: Vec<u8> = (0..=255).collect();
    let values = [
        ("every byte", Bytes::from(every)),
        ("empty", Bytes::new()),
        ("nul", Bytes::from_static(b"\0")),
        (
            "not text",
            Bytes::from_static(b"\xc3\x28 \xff\xfe \xed\xa0\x80"),
        ),
        ("with spaces", Bytes::from_static(b" \r\n\t ")),
        ("a number", Bytes::from_static(b"007.50e0")),
        ("json", Bytes::from_static(b"{\"a\":[null]}")),
        ("large", Bytes::from(vec![0x80; 200 * 1024])),
    ];
    let stored = w.put("key", values.clone()).await?;
    assert_eq!(stored.fields, fields(values.clone())?);
    let mut commit = Commit::new();
    for (field, value) in values {
        let field = name(field)?;
        commit = commit.guard(Guard::Field(stored.key.clone(), field, Some(value)));
    }
    w.store.commit_one(commit).await?;
    for other in [None, Some("\0".into()), Some(" ".into())] {
        let guard = Guard::Field(stored.key.clone(), name("empty")?, other);
        conflict(w.store.commit_one(Commit::new().guard(guard)).await);
    }
    Ok(())
}

async fn keys_are_data_whatever_they_contain(w: World) -> Result<()> {
    let mut commit = Commit::new();
    for text in AWKWARD {
        let value = [("key", text.as_bytes())];
        let put = Put::new(Key::new(text)?, fields(value)?);
        commit = commit.write(Write::Put(put));
    }
    w.store.commit_one(commit).await?;
    let keys = AWKWARD
        .iter()
        .map(Key::new)
        .collect::<Result<Vec<_>, _>>()?;
    for index in 0..keys.len() {
        let found = w.store.get(Get { keys: keys.clone() }).await?;
        let found: Vec<Option<(&str, Option<String>)>> = (found.iter())
            .map(|record| {
                record
                    .as_ref()
                    .map(|r| (r.key.as_str(), text(&r.fields, "key")))
            })
            .collect();
        let left = |(n, text): (usize, &&'static str)| {
            (n >= index).then(|| (*text, Some((*text).to_owned())))
        };
        let expected: Vec<_> = AWKWARD.iter().enumerate().map(left).collect();
        assert_eq!(found, expected);
        let outcome = w.store.write(Write::Delete(keys[index].clone())).await?;
        assert_eq!(outcome, Outcome::Removed { existed: true });
    }
    Ok(())
}

async fn field_names_are_data_whatever_they_contain(w: World) -> Result<()> {
    let names = AWKWARD.iter().chain(RESERVED);
    let all = names.map(|text| Ok((name(text)?, Bytes::from(format!("is {text}")))));
    let all = all.collect::<Result<Fields>>()?;
    assert_eq!(all.len(), AWKWARD.len() + RESERVED.len());
    let stored = put(&w, Put::new(Key::new("key")?, all.clone())).await?;
    assert_eq!(stored.fields, all);
    let (even, odd): (Vec<_>, Vec<_>) =
        (all.into_iter().enumerate()).partition(|(n, _)| n % 2 == 0);
    let unset: Vec<Name> = even.into_iter().map(|(_, (field, _))| field).collect();
    let set: Fields = (odd.into_iter())
        .map(|(_, (field, value))| (field, [b"not ", value.as_ref()].concat().into()))
        .collect();
    let mut write = merge("key")?.set(set.clone());
    write.unset = unset;
    w.store.write(Write::Merge(write)).await?;
    let after = w.record("key").await?;
    assert_eq!(after.as_ref().map(|record| &record.fields), Some(&set));
    assert_eq!(after.and_then(|record| record.expires_at), None);
    Ok(())
}

async fn the_longest_keys_are_told_apart(w: World) -> Result<()> {
    let long = ["k".repeat(511), ".".repeat(511), "\u{1f41f}".repeat(127)];
    let keys: Vec<String> = (long.iter())
        .flat_map(|long| [format!("{long}1"), format!("{long}2"), long.clone()])
        .collect();
    for key in &keys {
        w.put(key, [("key", key.clone())]).await?;
    }
    let field = name(&"f".repeat(128))?;
    for key in &keys {
        let set = Fields::from([(field.clone(), Bytes::from("set"))]);
        let write = Write::Merge(merge(key)?.set(set.clone()));
        w.store.write(write).await?;
        let mut expected = fields([("key", key.clone())])?;
        expected.extend(set);
        assert_fields(&w, key, expected).await?;
    }
    Ok(())
}

async fn two_handles_see_each_others_writes(w: World) -> Result<()> {
    let second = w.second().await?;
    let key = Key::new("key")?;
    let first = w.put("key", [("a", "1")]).await?;
    assert_eq!(second.record(&key).await?, Some(first.clone()));
    let guarded = Commit::new()
        .guard(Guard::RecordAt(key.clone(), first.revision))
        .write(Write::Merge(merge("key")?.set(fields([("b", "2")])?)));
    second.commit_one(guarded).await?;
    let record = w.record("key").await?;
    assert_eq!(
        record.as_ref().map(|record| record.fields.clone()),
        Some(fields([("a", "1"), ("b", "2")])?)
    );
    assert_eq!(second.record(&key).await?, record);
    w.store.write(Write::Delete(key.clone())).await?;
    assert_eq!(second.record(&key).await?, None);
    Ok(())
}

async fn namespaces_are_apart(w: World) -> Result<()> {
    let other = w.elsewhere().await?;
    let here = w.put("key", [("a", "here")]).await?;
    assert_eq!(other.record(&here.key).await?, None);
    let absent = Guard::RecordAbsent(here.key.clone());
    let there = Put::new(here.key.clone(), fields([("a", "there")])?);
    // One id in two namespaces names two commits.
    let commit = Commit::of(Write::Put(there)).id(w.ids.commit());
    let receipt = other.commit_one(commit.clone().guard(absent)).await?;
    assert!(!receipt.repeated);
    assert_eq!(w.record("key").await?.as_ref(), Some(&here));
    assert_eq!(told(&w, "key").await?, [Change::Put(here.clone())]);
    let scan = Scan::new(Prefix::any(), 10);
    let rows = w.store.scan(scan.clone()).await?.rows;
    assert_eq!(rows, std::slice::from_ref(&here));
    other.write(Write::Delete(here.key.clone())).await?;
    assert_eq!(w.record("key").await?, Some(here));
    assert_eq!(other.scan(scan).await?.rows, []);
    let receipt = w.store.commit_one(commit).await?;
    assert!(!receipt.repeated);
    assert_eq!(told(&w, "key").await?.len(), 2);
    Ok(())
}
