//! Scans: byte order, and pages without gap or repeat.

use std::time::Duration;

use bytes::Bytes;

use crate::conformance::text_as_data::AWKWARD;
use crate::conformance::world::{World, invalid, name};
use crate::conformance::writes::open;
use crate::error::{Error, Result};
use crate::group::NewGroup;
use crate::names::{GroupId, Key, Prefix};
use crate::record::{Filter, Operator, Record, Value, fields};
use crate::store::{Commit, Cursor, Get, Merge, Put, Scan, Store, StoreExt, Write};

cases!["scans":
    a_scan_answers_whole_records_in_the_byte_order_of_keys,
    a_prefix_is_text_and_nothing_else,
    a_prefix_that_ends_where_an_encoding_does_is_found,
    an_empty_prefix_answers_every_record_and_nothing_else,
    pages_cover_every_key_exactly_once,
    a_scan_that_fits_its_page_ends_there,
    keys_written_and_removed_during_a_scan_do_not_disturb_the_others,
    a_scan_goes_on_through_another_handle,
    large_records_are_all_answered,
    an_expired_record_is_not_answered,
    a_scan_goes_on_across_the_expiry_of_what_it_stands_on,
    a_cursor_that_no_scan_made_is_invalid,
];

/// Scans to the end: what each page answered.
pub(super) async fn pages(store: &dyn Store, mut scan: Scan) -> Result<Vec<Vec<Record>>> {
    let mut pages = Vec::new();
    loop {
        let page = store.scan(scan.clone()).await?;
        assert!(page.rows.len() <= scan.limit);
        pages.push(page.rows);
        assert!(pages.len() <= 2_000, "the scan does not end");
        match page.next {
            Some(next) => scan.cursor = Some(next),
            None => return Ok(pages),
        }
    }
}

/// Scans to the end: the keys that were answered.
pub(super) async fn keys(store: &dyn Store, scan: Scan) -> Result<Vec<String>> {
    let rows = pages(store, scan).await?.into_iter().flatten();
    Ok(rows.map(|record| String::from(record.key)).collect())
}

fn prefix(text: &str) -> Result<Prefix> {
    Ok(Prefix::new(text)?)
}

/// Puts an empty record under each key.
pub(super) async fn put_all<K: AsRef<str>>(
    w: &World,
    keys: impl IntoIterator<Item = K>,
) -> Result<()> {
    let puts = keys.into_iter().map(|key| {
        let put = Put::new(Key::new(key)?, Default::default());
        Ok(Write::Put(put))
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

/// Which of the values a filter lets through, with a word for a record that has none.
pub(super) async fn matching(w: &World, operator: Operator, value: Value) -> Result<Vec<Bytes>> {
    let mut scan = Scan::new(Prefix::any(), 10);
    scan.filters.push(Filter {
        field: name("field")?,
        operator,
        value,
    });
    let rows = pages(w.store.as_ref(), scan).await?.into_iter().flatten();
    let value = |record: Record| record.field("field").cloned();
    Ok(rows
        .map(|record| value(record).unwrap_or("absent".into()))
        .collect())
}

async fn a_scan_answers_whole_records_in_the_byte_order_of_keys(w: World) -> Result<()> {
    for key in AWKWARD.iter().rev() {
        w.put(key, [("key", *key)]).await?;
    }
    let mut sorted = AWKWARD.to_vec();
    sorted.sort_unstable();
    let by_key = Get {
        keys: sorted.iter().map(Key::new).collect::<Result<_, _>>()?,
    };
    let expected: Vec<Record> = w.store.get(by_key).await?.into_iter().flatten().collect();
    assert_eq!(expected.len(), AWKWARD.len());
    let found = pages(w.store.as_ref(), Scan::new(Prefix::any(), 1_000)).await?;
    assert_eq!(found.concat(), expected);
    Ok(())
}

async fn a_prefix_is_text_and_nothing_else(w: World) -> Result<()> {
    put_all(&w, AWKWARD).await?;
    let mut sorted = AWKWARD.to_vec();
    sorted.sort_unstable();
    for text in AWKWARD.iter().chain(&["a%2", "a\\u", "b", "\u{c3}"]) {
        let found = keys(w.store.as_ref(), Scan::new(prefix(text)?, 1_000)).await?;
        let mut expected = sorted.clone();
        expected.retain(|key| key.starts_with(text));
        assert_eq!(found, expected, "{text:?}");
    }
    Ok(())
}

async fn a_prefix_that_ends_where_an_encoding_does_is_found(w: World) -> Result<()> {
    // The text that follows all texts with such a prefix cannot be had by adding one to its end.
    for end in ["\u{7f}", "\u{7ff}", "\u{d7ff}", "\u{ffff}", "\u{10ffff}"] {
        let all = [
            format!("a{end}"),
            format!("a{end}\u{1}"),
            format!("a{end}a"),
            format!("a{end}{end}"),
            format!("a{end}\u{10ffff}z"),
        ];
        put_all(&w, &all).await?;
        put_all(&w, ["a", "b"]).await?;
        let mut expected = all.to_vec();
        expected.sort_unstable();
        expected.dedup();
        let scan = Scan::new(prefix(&format!("a{end}"))?, 2);
        assert_eq!(keys(w.store.as_ref(), scan).await?, expected);
    }
    let scan = Scan::new(prefix("a")?, 1_000);
    let found = keys(w.store.as_ref(), scan).await?;
    assert_eq!(found.first().map(String::as_str), Some("a"));
    assert!(!found.contains(&"b".to_owned()));
    Ok(())
}

async fn an_empty_prefix_answers_every_record_and_nothing_else(w: World) -> Result<()> {
    let all = ["a", "tasks", "tasks.task.1", "~"];
    put_all(&w, all).await?;
    let (_, _) = w.claimed(w.new_task("work").key("key".try_into()?)).await?;
    let group = NewGroup::new(GroupId::new("group")?);
    w.commit_with_id(Commit::of(open(group))).await?;
    let found = keys(w.store.as_ref(), Scan::new(Prefix::any(), 3)).await?;
    assert_eq!(found, all);
    Ok(())
}

async fn pages_cover_every_key_exactly_once(w: World) -> Result<()> {
    let all: Vec<String> = (0..15).map(|n| format!("key.{n:02}")).collect();
    put_all(&w, all.iter().rev()).await?;
    put_all(&w, ["ke", "kez"]).await?;
    for limit in [1, 2, 7, 14, 15, 16, 1_000] {
        let scan = Scan::new(prefix("key")?, limit);
        assert_eq!(keys(w.store.as_ref(), scan).await?, all, "{limit} a page");
    }
    Ok(())
}

async fn a_scan_that_fits_its_page_ends_there(w: World) -> Result<()> {
    put_all(&w, ["a.1", "a.2", "a.3", "b"]).await?;
    let page = w.store.scan(Scan::new(prefix("a.")?, 10)).await?;
    assert_eq!(page.rows.len(), 3);
    assert_eq!(page.next, None);
    let page = w.store.scan(Scan::new(prefix("c")?, 10)).await?;
    assert_eq!((page.rows, page.next), (Vec::new(), None));
    let found = keys(w.store.as_ref(), Scan::new(prefix("a.")?, 3)).await?;
    assert_eq!(found, ["a.1", "a.2", "a.3"]);
    Ok(())
}

async fn keys_written_and_removed_during_a_scan_do_not_disturb_the_others(w: World) -> Result<()> {
    let all: Vec<String> = (0..20).map(|n| format!("key.{n:02}0")).collect();
    put_all(&w, &all).await?;
    let mut scan = Scan::new(prefix("key.")?, 3);
    let mut seen: Vec<String> = Vec::new();
    let mut disturbed = false;
    for _ in 0..100 {
        let page = w.store.scan(scan.clone()).await?;
        seen.extend(page.rows.into_iter().map(|record| String::from(record.key)));
        if seen.len() >= 3 && !disturbed {
            disturbed = true;
            // The key that the scan stands on, one ahead of it, and one behind it.
            for key in [&seen[seen.len() - 1], "key.150", "key.000"] {
                w.store.write(Write::Delete(Key::new(key)?)).await?;
            }
            for key in ["key.010", "key.120"] {
                let merge = Merge::new(Key::new(key)?).set(fields([("new", "1")])?);
                w.store.write(Write::Merge(merge)).await?;
            }
            put_all(&w, ["key.005", "key.125", "key.995"]).await?;
        }
        match page.next {
            Some(next) => scan.cursor = Some(next),
            None => break,
        }
    }
    assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
    let come_and_gone = ["key.150", "key.125", "key.995"];
    seen.retain(|key| !come_and_gone.contains(&key.as_str()));
    let mut expected = all;
    expected.retain(|key| key != "key.150");
    assert_eq!(seen, expected);
    Ok(())
}

async fn a_scan_goes_on_through_another_handle(w: World) -> Result<()> {
    let all: Vec<String> = (0..9).map(|n| format!("key.{n}")).collect();
    put_all(&w, &all).await?;
    let stores = [w.store.clone(), w.second().await?];
    let mut scan = Scan::new(Prefix::any(), 2);
    let mut seen = Vec::new();
    for store in stores.iter().cycle().take(100) {
        let page = store.scan(scan.clone()).await?;
        seen.extend(page.rows.into_iter().map(|record| String::from(record.key)));
        scan.cursor = page.next;
        if scan.cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, all);
    Ok(())
}

async fn large_records_are_all_answered(w: World) -> Result<()> {
    let all: Vec<String> = (0..24).map(|n| format!("key.{n:02}")).collect();
    for key in &all {
        w.put(key, [("large", vec![b'x'; 200 * 1024])]).await?;
    }
    let scan = Scan::new(Prefix::any(), 1_000);
    assert_eq!(keys(w.store.as_ref(), scan).await?, all);
    Ok(())
}

async fn an_expired_record_is_not_answered(w: World) -> Result<()> {
    put_all(&w, ["a", "c"]).await?;
    let ttl = Duration::from_secs(5);
    let short = Put::new(Key::new("b")?, fields([("field", "1")])?).ttl(ttl);
    w.store.write(Write::Put(short)).await?;
    let scan = Scan::new(Prefix::any(), 10);
    w.advance(ttl - Duration::from_millis(1));
    assert_eq!(keys(w.store.as_ref(), scan.clone()).await?, ["a", "b", "c"]);
    w.advance(Duration::from_millis(1));
    assert_eq!(keys(w.store.as_ref(), scan.clone()).await?, ["a", "c"]);
    let found = matching(&w, Operator::Equal, Value::Integer(1)).await?;
    assert_eq!(found, Vec::<Bytes>::new());
    w.sweep().await?;
    assert_eq!(keys(w.store.as_ref(), scan).await?, ["a", "c"]);
    Ok(())
}

async fn a_scan_goes_on_across_the_expiry_of_what_it_stands_on(w: World) -> Result<()> {
    let ttl = Duration::from_secs(5);
    for swept in [false, true] {
        put_all(&w, ["a", "c", "e", "f"]).await?;
        for key in ["b", "d"] {
            let put = Put::new(Key::new(key)?, Default::default()).ttl(ttl);
            w.store.write(Write::Put(put)).await?;
        }
        let mut scan = Scan::new(Prefix::any(), 1);
        let mut seen = Vec::new();
        let mut expired = false;
        for _ in 0..100 {
            let page = w.store.scan(scan.clone()).await?;
            seen.extend(page.rows.into_iter().map(|record| String::from(record.key)));
            if seen.len() == 2 && !expired {
                expired = true;
                w.advance(ttl);
                if swept {
                    w.sweep().await?;
                }
            }
            match page.next {
                Some(next) => scan.cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, ["a", "b", "c", "e", "f"]);
    }
    Ok(())
}

async fn a_cursor_that_no_scan_made_is_invalid(w: World) -> Result<()> {
    put_all(&w, ["a", "b", "c"]).await?;
    let long = "x".repeat(10_000);
    for text in ["", "nonsense", "a", "-1", "null", "\u{1f41f}", "'", &long] {
        let mut scan = Scan::new(Prefix::any(), 2);
        scan.cursor = Some(Cursor::from_text(text));
        let answer = w.store.scan(scan).await;
        assert!(
            matches!(&answer, Err(Error::Invalid(_))),
            "{text:?}: {answer:?}"
        );
        assert_eq!(invalid(answer).field, "cursor");
    }
    Ok(())
}
