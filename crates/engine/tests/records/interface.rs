//! Each operation of the interface, on each store.

use bytes::Bytes;
use plimsoll_core::decorate::Method;
use plimsoll_core::record::{Fields, Value, fields};
use plimsoll_core::store::Merge;
use plimsoll_core::{Key, Name, Result};
use plimsoll_engine::records::Swap;

use crate::world::{MINUTE, World, code, on_each_store};

on_each_store!(
    get_answers_what_was_put,
    get_many_is_one_snapshot,
    put_replaces_fields_and_time_to_live,
    delete_says_whether_it_was_there,
    fields_are_set_and_unset_alone,
    any_bytes_are_kept,
    a_field_is_swapped_only_if_it_is_as_expected,
    merge_answers_the_record_afterwards,
    numbers_are_added_and_raised,
    ping_answers_the_time_of_the_store,
    close_ends_this_handle_alone,
);

async fn get_answers_what_was_put(w: World) -> Result<()> {
    assert_eq!(w.records.get("a").await?, None);
    let revision = w.records.put("a", [("x", "1"), ("y", "2")], None).await?;
    let record = w.records.get("a").await?.unwrap();
    assert_eq!(record.key, Key::new("a")?);
    assert_eq!(record.fields, fields([("x", "1"), ("y", "2")])?);
    assert_eq!((record.revision, record.expires_at), (revision, None));
    assert_eq!(w.records.get_field("a", "y").await?.unwrap(), "2");
    assert_eq!(w.records.get_field("a", "z").await?, None);
    assert_eq!(w.records.get_field("b", "x").await?, None);
    Ok(())
}

async fn get_many_is_one_snapshot(w: World) -> Result<()> {
    for key in ["a", "b"] {
        w.records.put(key, [("n", 1)], None).await?;
    }
    let answers = w.records.get_many(["b", "nobody", "a", "b"]).await?;
    let keys = |record: &Option<plimsoll_core::record::Record>| {
        record.as_ref().map(|record| record.key.to_string())
    };
    let keys: Vec<_> = answers.iter().map(keys).collect();
    let expected = [Some("b"), None, Some("a"), Some("b")];
    assert_eq!(keys, expected.map(|key| key.map(str::to_owned)));
    assert_eq!(w.spy.calls(Method::Get), 1, "one read is one snapshot");
    Ok(())
}

async fn put_replaces_fields_and_time_to_live(w: World) -> Result<()> {
    let first = w.records.put("a", [("x", "1")], Some(MINUTE)).await?;
    assert_eq!(w.records.ttl("a").await?, Some(MINUTE));
    let second = w.records.put("a", [("y", "2")], None).await?;
    assert!(second > first);
    let record = w.records.get("a").await?.unwrap();
    assert_eq!(record.fields, fields([("y", "2")])?);
    assert_eq!(w.records.ttl("a").await?, None);
    w.clock.advance(2 * MINUTE);
    assert!(w.records.get("a").await?.is_some());
    // A record may have no fields.
    w.records.put("a", Fields::new(), None).await?;
    assert!(w.records.get("a").await?.unwrap().fields.is_empty());
    Ok(())
}

async fn delete_says_whether_it_was_there(w: World) -> Result<()> {
    let before = w.records.put("a", [("x", "1")], None).await?;
    assert!(w.records.delete("a").await?);
    assert!(!w.records.delete("a").await?);
    assert_eq!(w.records.get("a").await?, None);
    let after = w.records.put("a", [("x", "1")], None).await?;
    assert!(after > before, "revisions go on over deletion");
    Ok(())
}

async fn fields_are_set_and_unset_alone(w: World) -> Result<()> {
    w.records
        .put("a", [("x", "1"), ("y", "2")], Some(MINUTE))
        .await?;
    w.records.set_field("a", "x", "one").await?;
    w.records
        .set_fields("a", [("z", "3"), ("w", "4")], &["y", "nobody"])
        .await?;
    let record = w.records.get("a").await?.unwrap();
    assert_eq!(
        record.fields,
        fields([("w", "4"), ("x", "one"), ("z", "3")])?
    );
    assert_eq!(w.records.ttl("a").await?, Some(MINUTE), "it stays");
    // Neither has to be there before.
    w.records.set_field("b", "x", 7).await?;
    assert_eq!(w.text("b", "x").await?.unwrap(), "7");
    let nothing: [(&str, &str); 0] = [];
    w.records.set_fields("c", nothing, &["x"]).await?;
    assert!(w.records.get("c").await?.unwrap().fields.is_empty());
    let only = |key: &str| Swap::new(key).unset("x");
    assert!(w.records.swap(only("d")).await?.is_done());
    assert!(w.records.get("d").await?.unwrap().fields.is_empty());
    let refused = w.records.swap(only("e").when_present()).await?;
    assert!(!refused.is_done());
    assert_eq!(w.records.get("e").await?, None);
    Ok(())
}

async fn any_bytes_are_kept(w: World) -> Result<()> {
    let bytes = Bytes::from((0..=255).collect::<Vec<u8>>());
    w.records
        .put("a", [("x", bytes.clone()), ("y", Bytes::new())], None)
        .await?;
    assert_eq!(w.records.get_field("a", "x").await?, Some(bytes.clone()));
    assert_eq!(w.records.get_field("a", "y").await?, Some(Bytes::new()));
    assert!(
        w.records
            .compare_and_swap("a", "x", bytes, Bytes::new())
            .await?
    );
    Ok(())
}

async fn a_field_is_swapped_only_if_it_is_as_expected(w: World) -> Result<()> {
    w.records
        .put("a", [("state", "pending"), ("x", "1")], None)
        .await?;
    assert!(
        !w.records
            .compare_and_swap("a", "state", "claimed", "done")
            .await?
    );
    assert!(
        !w.records
            .compare_and_swap("a", "nobody", "", "done")
            .await?
    );
    assert!(
        !w.records
            .compare_and_swap("b", "state", "pending", "done")
            .await?
    );
    assert_eq!(w.records.get("b").await?, None, "a refusal creates nothing");
    assert!(
        w.records
            .compare_and_swap("a", "state", "pending", "claimed")
            .await?
    );
    let record = w.records.get("a").await?.unwrap();
    assert_eq!(record.fields, fields([("state", "claimed"), ("x", "1")])?);
    Ok(())
}

async fn merge_answers_the_record_afterwards(w: World) -> Result<()> {
    w.records
        .put("a", [("x", "1"), ("y", "2"), ("n", "5")], None)
        .await?;
    let merge = Merge::new(Key::new("a")?)
        .set(fields([("x", "one")])?)
        .unset(Name::new("y")?)
        .add(Name::new("n")?, 3)
        .raise(Name::new("offset")?, 9);
    let record = w.records.merge(merge).await?;
    let expected = fields([("n", "8"), ("offset", "9"), ("x", "one")])?;
    assert_eq!(record.fields, expected);
    assert_eq!(w.records.get("a").await?, Some(record));
    Ok(())
}

async fn numbers_are_added_and_raised(w: World) -> Result<()> {
    assert_eq!(w.records.increment("a", "n", 5).await?, 5);
    assert_eq!(w.records.increment("a", "n", -7).await?, -2);
    assert_eq!(w.records.raise("a", "offset", 10).await?, 10);
    assert_eq!(w.records.raise("a", "offset", 4).await?, 10);
    assert_eq!(w.records.raise("a", "offset", 11).await?, 11);
    w.records
        .set_field("a", "n", Value::Integer(i64::MAX))
        .await?;
    assert_eq!(code(w.records.increment("a", "n", 1).await), "overflow");
    w.records.set_field("a", "n", "many").await?;
    assert_eq!(code(w.records.increment("a", "n", 1).await), "not_integer");
    assert_eq!(code(w.records.raise("a", "n", 1).await), "not_integer");
    assert_eq!(w.text("a", "n").await?.unwrap(), "many");
    Ok(())
}

async fn ping_answers_the_time_of_the_store(w: World) -> Result<()> {
    let before = w.records.ping().await?;
    w.clock.advance(MINUTE);
    assert_eq!(w.records.ping().await?.since(before), MINUTE);
    Ok(())
}

async fn close_ends_this_handle_alone(w: World) -> Result<()> {
    w.records.put("a", [("x", "1")], None).await?;
    w.records.close().await?;
    w.records.close().await?;
    assert_eq!(code(w.records.get("a").await), "closed");
    assert_eq!(code(w.records.set_field("a", "x", "2").await), "closed");
    assert_eq!(w.text("a", "x").await?.unwrap(), "1");
    Ok(())
}
