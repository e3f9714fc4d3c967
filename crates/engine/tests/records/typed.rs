//! Structs as records.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::FutureExt;
use plimsoll_core::decorate::Method;
use plimsoll_core::record::{Fields, fields};
use plimsoll_core::{Name, Result};
use plimsoll_engine::records::{from_fields, from_record, to_fields};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::world::{MINUTE, World, code};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Point,
    Circle(f64),
    Named { text: String, of: Option<u8> },
    Pair(i8, String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Meters(u16);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    text: String,
    numbers: Vec<f64>,
}

/// One of everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct All {
    text: String,
    letter: char,
    signed: i64,
    large: u64,
    huge: i128,
    small: f32,
    real: f64,
    yes: bool,
    bytes: Bytes,
    shape: Shape,
    shapes: Vec<Shape>,
    meters: Meters,
    inner: Inner,
    map: BTreeMap<String, Option<i32>>,
    pair: (u8, String),
    nothing: (),
    maybe_text: Option<String>,
    maybe_number: Option<u64>,
    maybe_shape: Option<Shape>,
    maybe_list: Option<Vec<String>>,
}

/// Text that could be taken for something else, and any other.
fn text() -> impl Strategy<Value = String> {
    const TRICKY: &[&str] = &[
        "",
        "0",
        "123",
        "-0",
        "true",
        "null",
        "{}",
        "[1]",
        "\"x\"",
        "1.5",
        "\0",
        "ä€🦀",
    ];
    prop_oneof![
        prop::sample::select(TRICKY).prop_map(str::to_owned),
        any::<String>(),
    ]
}

fn finite() -> impl Strategy<Value = f64> {
    prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Point),
        finite().prop_map(Shape::Circle),
        (text(), any::<Option<u8>>()).prop_map(|(text, of)| Shape::Named { text, of }),
        (any::<i8>(), text()).prop_map(|(number, text)| Shape::Pair(number, text)),
    ]
}

prop_compose! {
    fn scalars()(
        text in text(), letter in any::<char>(), signed in any::<i64>(), large in any::<u64>(),
        huge in any::<i128>(), small in prop::num::f32::NORMAL, real in finite(),
        yes in any::<bool>(), bytes in any::<Vec<u8>>(), meters in any::<u16>(),
    ) -> All {
        All {
            text: text.clone(), letter, signed, large, huge, small, real, yes,
            bytes: bytes.into(), meters: Meters(meters), shape: Shape::Point, shapes: vec![],
            inner: Inner { text, numbers: vec![] }, map: BTreeMap::new(), pair: (0, String::new()),
            nothing: (), maybe_text: None, maybe_number: None, maybe_shape: None, maybe_list: None,
        }
    }
}

prop_compose! {
    fn all()(
        all in scalars(), shape in shape(), shapes in prop::collection::vec(shape(), 0..3),
        numbers in prop::collection::vec(finite(), 0..3),
        map in prop::collection::btree_map(text(), any::<Option<i32>>(), 0..3),
        pair in (any::<u8>(), text()), maybe_text in prop::option::of(text()),
        maybe_number in any::<Option<u64>>(), maybe_shape in prop::option::of(shape()),
        maybe_list in prop::option::of(prop::collection::vec(text(), 0..3)),
    ) -> All {
        let inner = Inner { numbers, ..all.inner };
        All { shape, shapes, inner, map, pair, maybe_text, maybe_number, maybe_shape, maybe_list, ..all }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_is_written_is_read_again(value in all()) {
        let fields = to_fields(&value).unwrap();
        let absent = [value.maybe_text.is_none(), value.maybe_number.is_none(),
            value.maybe_shape.is_none(), value.maybe_list.is_none()];
        let absent = absent.into_iter().filter(|absent| *absent).count();
        prop_assert_eq!(fields.len(), 20 - absent, "what is none is not there");
        prop_assert_eq!(&fields["text"], &value.text);
        prop_assert_eq!(&fields["signed"], &value.signed.to_string());
        prop_assert_eq!(&fields["yes"], &value.yes.to_string());
        prop_assert_eq!(&fields["bytes"], &value.bytes);
        prop_assert_eq!(from_fields::<All>(&fields).unwrap(), value);
    }

    #[test]
    fn maps_are_records_too(map in prop::collection::btree_map("[a-z]{1,9}", any::<i64>(), 0..9)) {
        let fields = to_fields(&map).unwrap();
        prop_assert_eq!(from_fields::<BTreeMap<String, i64>>(&fields).unwrap(), map);
    }

    /// Whatever somebody else wrote there: an answer, never a panic.
    #[test]
    fn whatever_is_stored_is_read_or_corrupt(
        name in prop::sample::select(&["text", "signed", "real", "shape", "inner", "yes"][..]),
        value in any::<Vec<u8>>(),
        all in scalars(),
    ) {
        let mut fields = to_fields(&all).unwrap();
        fields.insert(Name::new(name).unwrap(), value.into());
        if let Err(error) = from_fields::<All>(&fields) {
            prop_assert_eq!(error.code(), "corrupt");
            let said = error.to_string();
            prop_assert!(said.contains(&format!("field {name}: ")), "{said}");
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Job {
    state: String,
    step: u32,
    worker: Option<String>,
}

fn job() -> Job {
    Job {
        state: "123".into(),
        step: 1,
        worker: Some("w1".into()),
    }
}

#[tokio::test]
async fn fields_are_told_as_people_and_filters_expect() -> Result<()> {
    let w = World::memory();
    w.records.typed().put("a", &job(), Some(MINUTE)).await?;
    let record = w.records.get("a").await?.unwrap();
    let expected = fields([("state", "123"), ("step", "1"), ("worker", "w1")])?;
    assert_eq!(record.fields, expected);
    assert_eq!(w.records.ttl("a").await?, Some(MINUTE));
    assert_eq!(w.records.increment("a", "step", 1).await?, 2);
    assert_eq!(w.records.typed::<Job>().get("a").await?.unwrap().step, 2);
    assert_eq!(w.records.typed::<Job>().get("nobody").await?, None);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_read_is_corrupt_and_named() -> Result<()> {
    let w = World::memory();
    let read = |changed: Fields| {
        let w = &w;
        async move {
            let mut fields = to_fields(&job())?;
            fields.extend(changed);
            w.records.put("job.7", fields, None).await?;
            let record = w.records.get("job.7").await?.unwrap();
            let error = from_record::<Job>(&record).unwrap_err();
            let got = w.records.typed::<Job>().get("job.7").await;
            assert_eq!(code(got), "corrupt");
            Ok::<_, plimsoll_core::Error>(error.to_string())
        }
    };
    let begins = "stored value cannot be read: record job.7: ";
    assert_eq!(
        read(fields([("step", "-1")])?).await?,
        format!("{begins}field step: expected an integer of 32 bits without a sign")
    );
    let state = [(Name::new("state")?, Bytes::from_static(b"\xff"))];
    assert_eq!(
        read(state.into()).await?,
        format!("{begins}field state: not UTF-8")
    );
    w.records.put("job.7", [("state", "x")], None).await?;
    let missing = w.records.typed::<Job>().get("job.7").await.unwrap_err();
    assert_eq!(missing.to_string(), format!("{begins}missing field `step`"));
    // Also before anything is changed.
    let update = w
        .records
        .typed::<Job>()
        .update("job.7", |_| Some(job()))
        .await;
    assert_eq!(code(update), "corrupt");
    assert_eq!(w.records.get("job.7").await?.unwrap().fields.len(), 1);
    Ok(())
}

#[tokio::test]
async fn what_does_not_say_its_type_is_not_guessed() -> Result<()> {
    let found = from_fields::<BTreeMap<String, serde_json::Value>>(&fields([("x", "123")])?);
    let said = found.unwrap_err().to_string();
    assert_eq!(
        said,
        "stored value cannot be read: field x: its type does not say how to read it"
    );
    // Inside of a list it is JSON, and says.
    let list = BTreeMap::from([("x".to_owned(), vec![serde_json::json!("123")])]);
    assert_eq!(from_fields::<BTreeMap<_, _>>(&to_fields(&list)?)?, list);
    Ok(())
}

#[tokio::test]
async fn an_update_writes_what_differs_and_keeps_the_rest() -> Result<()> {
    let w = World::memory();
    let jobs = w.records.typed::<Job>();
    jobs.put("a", &job(), Some(MINUTE)).await?;
    w.records.set_field("a", "note", "of somebody else").await?;
    let done = |job: Option<Job>| {
        job.map(|job| Job {
            step: job.step + 1,
            worker: None,
            ..job
        })
    };
    let updated = jobs.update("a", done).await?.unwrap();
    assert_eq!((updated.step, updated.worker), (2, None));
    let record = w.records.get("a").await?.unwrap();
    let expected = fields([
        ("note", "of somebody else"),
        ("state", "123"),
        ("step", "2"),
    ])?;
    assert_eq!(record.fields, expected);
    assert_eq!(w.records.ttl("a").await?, Some(MINUTE));

    // The same again is not written, nor is what the change declines.
    let commits = w.spy.calls(Method::Commit);
    assert_eq!(jobs.update("a", |job| job).await?.unwrap().step, 2);
    assert_eq!(jobs.update("a", |_| None).await?, None);
    assert_eq!(jobs.update("b", |job| job).await?, None);
    assert_eq!(w.spy.calls(Method::Commit), commits);

    assert_eq!(jobs.update("b", |_| Some(job())).await?, Some(job()));
    assert_eq!(jobs.get("b").await?, Some(job()));
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Renamed {
    #[serde(alias = "worker")]
    owner: Option<String>,
    // This one comes before its field in a record, that one after it.
    #[serde(alias = "count", alias = "zahl")]
    number: u32,
    /// Others write it.
    #[serde(skip_serializing)]
    secret: String,
}

/// What fields were called before goes, with its value; what is read and not written stays, as what the type does not know.
#[tokio::test]
async fn an_update_writes_a_field_by_its_name_alone() -> Result<()> {
    let w = World::memory();
    let jobs = w.records.typed::<Renamed>();
    let beside = [("note", "of somebody else"), ("secret", "x")];
    let released = |job: Option<Renamed>| job.map(|job| Renamed { owner: None, ..job });
    for before in ["count", "zahl"] {
        let old = fields([("worker", "w1"), (before, "7")])?;
        let old: Fields = old.into_iter().chain(fields(beside)?).collect();
        w.records.put("a", old.clone(), None).await?;
        let updated = jobs.update("a", |job| job).await?;
        let new = fields([("owner", "w1"), ("number", "7")])?;
        let new: Fields = new.into_iter().chain(fields(beside)?).collect();
        assert_eq!(w.records.get("a").await?.unwrap().fields, new);
        assert_eq!(jobs.get("a").await?, updated);
        let commits = w.spy.calls(Method::Commit);
        assert_eq!(jobs.update("a", |job| job).await?, updated);
        assert_eq!(w.spy.calls(Method::Commit), commits, "nothing differs");

        w.records.put("a", old, None).await?;
        jobs.update("a", released).await?;
        assert_eq!(jobs.get("a").await?.unwrap().owner, None);
        assert_eq!(w.text("a", "worker").await?, None);
    }
    Ok(())
}

#[tokio::test]
async fn an_update_that_others_overtake_sees_what_they_wrote() -> Result<()> {
    let w = World::memory();
    let jobs = w.records.typed::<Job>();
    jobs.put("a", &job(), None).await?;
    let others = w.others.clone();
    w.spy.before(Method::Commit, move || {
        let others = others.clone();
        async move {
            others.set_field("a", "state", "theirs").await.unwrap();
        }
        .boxed()
    });
    let next = |job: Option<Job>| {
        job.map(|job| Job {
            state: job.state + "+mine",
            ..job
        })
    };
    let updated = w.drive(jobs.update("a", next)).await?.unwrap();
    assert_eq!(updated.state, "theirs+mine");
    assert_eq!(w.text("a", "state").await?.unwrap(), "theirs+mine");
    Ok(())
}

/// Nobody can write it back, so nobody is told that it could be read.
#[tokio::test]
async fn a_stored_number_that_is_not_finite_is_corrupt() -> Result<()> {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Part {
        small: f32,
        ratio: f64,
    }
    let w = World::memory();
    let parts = w.records.typed::<Part>();
    let mended = Part {
        small: 1.5,
        ratio: 0.5,
    };
    for (field, value) in [("ratio", "NaN"), ("ratio", "-inf"), ("small", "1e40")] {
        parts.put("a", &mended, None).await?;
        w.records.set_field("a", field, value).await?;
        let error = parts.get("a").await.unwrap_err();
        assert_eq!(error.code(), "corrupt");
        assert!(error.to_string().contains(field), "{error}");
        let update = parts.update("a", |_| Some(mended.clone())).await;
        assert_eq!(code(update), "corrupt", "nobody is to blame who calls");
    }
    parts.put("a", &mended, None).await?;
    assert_eq!(parts.get("a").await?, Some(mended));
    Ok(())
}
