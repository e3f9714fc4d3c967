//! Scans: byte order, pages without gap or repeat, and filters that compare as what they declare.

use std::time::Duration;

use bytes::Bytes;

use crate::conformance::records::AWKWARD;
use crate::conformance::world::{World, invalid, name, text};
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
    text_is_compared_in_code_point_order,
    integers_are_compared_as_numbers,
    bytes_are_compared_in_byte_order,
    a_field_that_is_absent_meets_no_filter,
    all_filters_must_match,
    a_filtered_scan_comes_to_its_end_through_rows_that_do_not_match,
    an_expired_record_is_not_answered,
    a_scan_goes_on_across_the_expiry_of_what_it_stands_on,
    a_cursor_that_no_scan_made_is_invalid,
];

/// Scans to the end: what each page answered.
async fn pages(store: &dyn Store, mut scan: Scan) -> Result<Vec<Vec<Record>>> {
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
async fn keys(store: &dyn Store, scan: Scan) -> Result<Vec<String>> {
    let rows = pages(store, scan).await?.into_iter().flatten();
    Ok(rows.map(|record| String::from(record.key)).collect())
}

fn prefix(text: &str) -> Result<Prefix> {
    Ok(Prefix::new(text)?)
}

/// Puts an empty record under each key.
async fn put_all<K: AsRef<str>>(w: &World, keys: impl IntoIterator<Item = K>) -> Result<()> {
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

/// Puts one record for each value, in the field that [`matching`] asks for.
async fn put_values(w: &World, values: &[&'static [u8]]) -> Result<()> {
    for (n, value) in values.iter().enumerate() {
        w.put(&format!("{n:03}"), [("field", *value)]).await?;
    }
    w.put("without", [("other", "1")]).await?;
    Ok(())
}

/// Which of the values a filter lets through, with a word for a record that has none.
async fn matching(w: &World, operator: Operator, value: Value) -> Result<Vec<Bytes>> {
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

/// Asserts what each operator lets through.
async fn assert_matching(w: &World, value: Value, expected: [&[&[u8]]; 4]) -> Result<()> {
    let operators = [
        Operator::Equal,
        Operator::NotEqual,
        Operator::Less,
        Operator::Greater,
    ];
    for (operator, expected) in operators.into_iter().zip(expected) {
        let found = matching(w, operator, value.clone()).await?;
        assert_eq!(found, expected, "{operator:?} {value:?}");
    }
    Ok(())
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
    w.commit_with_id(Commit::of(Write::OpenGroup(Box::new(group))))
        .await?;
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

async fn text_is_compared_in_code_point_order(w: World) -> Result<()> {
    // The last two are the other way round in UTF-16; the last one of all is not text.
    let astral = "\u{10000}".as_bytes();
    put_values(
        &w,
        &[
            b"",
            b"10",
            b"9",
            b"B",
            b"a",
            b"a ",
            b"ab",
            "\u{e9}".as_bytes(),
            "\u{fffd}".as_bytes(),
            astral,
            b"\xff",
        ],
    )
    .await?;
    let value = |text: &str| Value::Text(text.to_owned());
    assert_matching(
        &w,
        value("a"),
        [
            &[b"a"],
            &[
                b"",
                b"10",
                b"9",
                b"B",
                b"a ",
                b"ab",
                "\u{e9}".as_bytes(),
                "\u{fffd}".as_bytes(),
                astral,
            ],
            &[b"", b"10", b"9", b"B"],
            &[
                b"a ",
                b"ab",
                "\u{e9}".as_bytes(),
                "\u{fffd}".as_bytes(),
                astral,
            ],
        ],
    )
    .await?;
    let found = matching(&w, Operator::Greater, value("\u{fffd}")).await?;
    assert_eq!(found, [astral]);
    let found = matching(&w, Operator::Less, value("9")).await?;
    assert_eq!(found, ["", "10"]);
    assert_eq!(matching(&w, Operator::Equal, value("")).await?, [""]);
    for pattern in ["%", "_", "*", "a%", "A"] {
        let found = matching(&w, Operator::Equal, value(pattern)).await?;
        assert_eq!(found, Vec::<Bytes>::new(), "{pattern}");
    }
    Ok(())
}

async fn integers_are_compared_as_numbers(w: World) -> Result<()> {
    put_values(
        &w,
        &[
            b"9",
            b"10",
            b"-5",
            b"-10",
            b"0",
            b"9007199254740993",
            b"9223372036854775807",
            b"-9223372036854775808",
            b"",
            b"ten",
            b"9.5",
            b"9 ",
            b"9223372036854775808",
            b"\xff",
        ],
    )
    .await?;
    let (max, min): (&[u8], &[u8]) = (b"9223372036854775807", b"-9223372036854775808");
    // One less is the same number in floating point.
    let odd: &[u8] = b"9007199254740993";
    assert_matching(
        &w,
        Value::Integer(9),
        [
            &[b"9"],
            &[b"10", b"-5", b"-10", b"0", odd, max, min],
            &[b"-5", b"-10", b"0", min],
            &[b"10", odd, max],
        ],
    )
    .await?;
    assert_matching(
        &w,
        Value::Integer(-5),
        [
            &[b"-5"],
            &[b"9", b"10", b"-10", b"0", odd, max, min],
            &[b"-10", min],
            &[b"9", b"10", b"0", odd, max],
        ],
    )
    .await?;
    let found = matching(&w, Operator::Greater, Value::Integer(9_007_199_254_740_992)).await?;
    assert_eq!(found, [odd, max]);
    let found = matching(&w, Operator::Less, Value::Integer(i64::MIN)).await?;
    assert_eq!(found, Vec::<Bytes>::new());
    Ok(())
}

async fn bytes_are_compared_in_byte_order(w: World) -> Result<()> {
    put_values(&w, &[b"", b"\0", b"a", b"a\0", b"b", b"\x80", b"\xff\xff"]).await?;
    let value = Value::Bytes(Bytes::from_static(b"a"));
    assert_matching(
        &w,
        value,
        [
            &[b"a"],
            &[b"", b"\0", b"a\0", b"b", b"\x80", b"\xff\xff"],
            &[b"", b"\0"],
            &[b"a\0", b"b", b"\x80", b"\xff\xff"],
        ],
    )
    .await?;
    let value = Value::Bytes(Bytes::from_static(b"\xff"));
    let found = matching(&w, Operator::Greater, value.clone()).await?;
    assert_eq!(found, [&b"\xff\xff"[..]]);
    assert_eq!(matching(&w, Operator::Less, value).await?.len(), 6);
    Ok(())
}

async fn a_field_that_is_absent_meets_no_filter(w: World) -> Result<()> {
    put_values(&w, &[]).await?;
    put_all(&w, ["empty"]).await?;
    for value in [
        Value::Text("x".into()),
        Value::Integer(0),
        Value::Bytes(Bytes::new()),
    ] {
        assert_matching(&w, value, [&[], &[], &[], &[]]).await?;
    }
    Ok(())
}

async fn all_filters_must_match(w: World) -> Result<()> {
    for n in 0..20 {
        let state = if n % 2 == 0 { "even" } else { "odd" };
        let all = [("n", n.to_string()), ("state", state.to_owned())];
        w.put(&format!("key.{n:02}"), all).await?;
    }
    let filter = |field: &str, operator, value| {
        name(field).map(|field| Filter {
            field,
            operator,
            value,
        })
    };
    let mut scan = Scan::new(Prefix::any(), 2);
    scan.filters = vec![
        filter("n", Operator::Greater, Value::Integer(7))?,
        filter("state", Operator::Equal, Value::Text("even".into()))?,
        filter("n", Operator::Less, Value::Integer(15))?,
        filter("n", Operator::NotEqual, Value::Text("10".into()))?,
    ];
    let rows = pages(w.store.as_ref(), scan.clone()).await?.concat();
    let found: Vec<String> = (rows.iter())
        .filter_map(|record| text(&record.fields, "n"))
        .collect();
    assert_eq!(found, ["8", "12", "14"]);
    let never = filter("missing", Operator::NotEqual, Value::Integer(0))?;
    scan.filters.push(never);
    assert_eq!(keys(w.store.as_ref(), scan).await?, Vec::<String>::new());
    Ok(())
}

async fn a_filtered_scan_comes_to_its_end_through_rows_that_do_not_match(w: World) -> Result<()> {
    put_all(&w, (0..400).map(|n| format!("key.{n:03}"))).await?;
    let mut scan = Scan::new(Prefix::any(), 2);
    scan.filters.push(Filter {
        field: name("wanted")?,
        operator: Operator::Equal,
        value: Value::Integer(1),
    });
    let none = keys(w.store.as_ref(), scan.clone()).await?;
    assert_eq!(none, Vec::<String>::new());
    let wanted = ["key.000", "key.199", "key.200", "key.399"];
    for key in wanted {
        w.put(key, [("wanted", "1")]).await?;
    }
    assert_eq!(keys(w.store.as_ref(), scan).await?, wanted);
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
