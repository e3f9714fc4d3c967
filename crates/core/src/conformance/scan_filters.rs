//! Filters of scans: each compares as what it declares, and all must match.

use bytes::Bytes;

use crate::conformance::scans::{keys, matching, pages, put_all};
use crate::conformance::world::{World, name, text};
use crate::error::Result;
use crate::names::Prefix;
use crate::record::{Filter, Operator, Value};
use crate::store::Scan;

cases!["scan_filters":
    text_is_compared_in_code_point_order,
    integers_are_compared_as_numbers,
    bytes_are_compared_in_byte_order,
    a_field_that_is_absent_meets_no_filter,
    all_filters_must_match,
    a_filtered_scan_comes_to_its_end_through_rows_that_do_not_match,
];

/// Puts one record for each value, in the field that [`matching`] asks for.
async fn put_values(w: &World, values: &[&'static [u8]]) -> Result<()> {
    for (n, value) in values.iter().enumerate() {
        w.put(&format!("{n:03}"), [("field", *value)]).await?;
    }
    w.put("without", [("other", "1")]).await?;
    Ok(())
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
