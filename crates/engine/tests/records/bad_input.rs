//! Bad input: an error that names the field and the limit, and nothing is written.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use plimsoll_core::record::Fields;
use plimsoll_core::store::Merge;
use plimsoll_core::{Key, Result};
use plimsoll_engine::records::Swap;
use serde::Serialize;

use crate::world::{World, on_each_store};

fn said<T: Debug>(answer: Result<T>) -> String {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), "invalid");
    error.to_string().replace("invalid input: ", "")
}

on_each_store!(bad_input_names_field_and_limit_and_writes_nothing);

async fn bad_input_names_field_and_limit_and_writes_nothing(w: World) -> Result<()> {
    let r = &w.records;
    let (long_key, long_name) = ("k".repeat(513), "n".repeat(129));
    let big = Bytes::from(vec![b'x'; 256 * 1024 + 1]);
    let no_fields: [(&str, &str); 0] = [];
    let (key, name) = (
        "key: 513 bytes, at most 512 are allowed",
        "field: 129 bytes, at most 128 are allowed",
    );
    let cases = [
        (said(r.get("").await), "key: must not be empty"),
        (said(r.get(&long_key).await), key),
        (said(r.get("a\0b").await), "key: contains a NUL character"),
        (said(r.get_many(["a", &long_key]).await), key),
        (
            said(r.get_many((0..1_001).map(|n| n.to_string())).await),
            "keys: 1001 given, at most 1000 are allowed",
        ),
        (
            said(r.set_field("plimsoll.jobs.a", "partitions", 2).await),
            "key: plimsoll.jobs.a: what begins with plimsoll. belongs to the engine",
        ),
        (
            said(r.delete("plimsoll.locks.a").await),
            "key: plimsoll.locks.a: what begins with plimsoll. belongs to the engine",
        ),
        (
            said(r.declare_index("plimsoll.jobs.", "partitions").await),
            "prefix: plimsoll.jobs.: what begins with plimsoll. belongs to the engine",
        ),
        (said(r.get_field("a", &long_name).await), name),
        (said(r.put(&long_key, [("x", "1")], None).await), key),
        (said(r.put("a", [(&long_name, "1")], None).await), name),
        (
            said(r.put("a", [("x", big.clone())], None).await),
            "writes[0].fields.x: 262145 bytes, at most 262144 are allowed",
        ),
        (
            said(r.put("a", (0..257).map(|n| (n.to_string(), n)), None).await),
            "writes[0].fields: 257 given, at most 256 are allowed",
        ),
        (
            said(r.put("a", [("x", "1")], Some(Duration::ZERO)).await),
            "writes[0].ttl: 0ns is not between 1ms and 3153600000s",
        ),
        (
            said(r.touch("a", Duration::MAX).await),
            "writes[0].ttl: 18446744073709551615.999999999s is not between 1ms and 3153600000s",
        ),
        (
            said(r.set_field("a", "", "1").await),
            "field: must not be empty",
        ),
        (
            said(r.set_fields("a", no_fields, &[]).await),
            "fields: must not be empty",
        ),
        (
            said(r.set_fields("a", [("x", "1")], &["x"]).await),
            "writes[0].fields: names x twice",
        ),
        (
            said(r.merge(Merge::new(Key::new("a")?)).await),
            "fields: must not be empty",
        ),
        (said(r.increment("a", &long_name, 1).await), name),
        (
            said(r.swap(Swap::new("a")).await),
            "writes: must not be empty",
        ),
        (
            said(r.swap(Swap::new("").set("x", "1")).await),
            "swaps[0].key: must not be empty",
        ),
        (
            said(r.swap(Swap::new("a").when("x", big).set("x", "1")).await),
            "guards[0].value: 262145 bytes, at most 262144 are allowed",
        ),
        (
            said(
                r.commit([Swap::new("a").set("x", "1"), Swap::new("b").unset("")])
                    .await,
            ),
            "swaps[1].field: must not be empty",
        ),
        (
            said(
                r.commit((0..201).map(|n| Swap::new(n.to_string()).add("n", 1)))
                    .await,
            ),
            "writes: 201 given, at most 200 are allowed",
        ),
        (
            said(r.scan("p".repeat(513)).page(None).await),
            "prefix: 513 bytes, at most 512 are allowed",
        ),
        (said(r.scan("").eq(&long_name, "1").page(None).await), name),
        (
            said(
                r.scan("")
                    .max_results(0)
                    .stream()
                    .try_collect::<Vec<_>>()
                    .await,
            ),
            "max_results: 0 is not between 1 and 4294967295",
        ),
        (
            said(r.scan("").page_size(0).page(None).await),
            "limit: 0 is not between 1 and 1000",
        ),
    ];
    for (said, expected) in cases {
        assert_eq!(said, expected);
    }
    assert_eq!(w.others.scan("").page(None).await?.rows, []);
    assert_eq!(w.others.indexes().await?, []);
    Ok(())
}

#[derive(Debug, Default, Serialize, serde::Deserialize)]
struct Reading {
    celsius: f64,
    samples: Vec<f32>,
    mean: (u8, Option<f64>),
    shape: Shape,
    by_day: BTreeMap<u8, f64>,
}

#[derive(Debug, Default, Serialize, serde::Deserialize)]
enum Shape {
    #[default]
    Point,
    Circle(f64),
    Box {
        sides: [f32; 2],
    },
}

#[tokio::test]
async fn what_cannot_be_a_record_is_refused() -> Result<()> {
    let w = World::memory();
    let no_record = "record: expected a struct, or a map with text for keys";
    assert_eq!(said(w.records.typed().put("a", &7, None).await), no_record);
    let list = vec!["x".to_owned()];
    assert_eq!(
        said(w.records.typed().put("a", &list, None).await),
        no_record
    );
    let reading = Reading {
        celsius: f64::NAN,
        ..Reading::default()
    };
    assert_eq!(
        said(w.records.typed().put("a", &reading, None).await),
        "fields.celsius: expected a value that can be stored: a number that is finite"
    );
    let fields = Fields::new();
    assert!(w.records.typed().put("a", &fields, None).await.is_ok());
    Ok(())
}

/// JSON has no other numbers than finite ones, wherever they are.
#[tokio::test]
async fn what_json_has_no_number_for_is_refused_and_named() -> Result<()> {
    let w = World::memory();
    let readings = w.records.typed::<Reading>();
    let plain = Reading::default;
    let circle = |radius| Shape::Circle(radius);
    let sides = |sides| Shape::Box { sides };
    let infinite = f32::NEG_INFINITY;
    for (field, reading) in [
        (
            "samples",
            Reading {
                samples: vec![1.0, f32::NAN],
                ..plain()
            },
        ),
        (
            "mean",
            Reading {
                mean: (1, Some(f64::NAN)),
                ..plain()
            },
        ),
        (
            "shape",
            Reading {
                shape: circle(f64::INFINITY),
                ..plain()
            },
        ),
        (
            "shape",
            Reading {
                shape: sides([infinite, 0.0]),
                ..plain()
            },
        ),
        (
            "by_day",
            Reading {
                by_day: [(1, f64::NAN)].into(),
                ..plain()
            },
        ),
    ] {
        let expected = format!(
            "fields.{field}: expected a value that can be stored: a value that JSON can hold: \
             a number must be finite"
        );
        assert_eq!(said(readings.put("a", &reading, None).await), expected);
        let mut reading = Some(reading);
        let updated = readings.update("a", |_| reading.take());
        assert_eq!(said(updated.await), expected);
    }
    assert_eq!(w.others.get("a").await?, None);
    Ok(())
}
