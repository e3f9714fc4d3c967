//! JSON that breaks a limit is refused, not taken for something else.

use std::fmt::Debug;

use plimsoll_core::error::Error;
use plimsoll_core::task::{Priority, Task};
use plimsoll_core::{Name, Namespace, Prefix};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Checked;
use crate::samples::{new_task, record, task};

/// Whether JSON with `value` at `pointer` is refused as a `T`.
pub(crate) fn refuses<T: Serialize + DeserializeOwned + Debug>(
    good: &T,
    pointer: &str,
    value: Value,
) -> Checked {
    let mut tree = serde_json::to_value(good)?;
    let place = tree.pointer_mut(pointer);
    *place.ok_or_else(|| format!("nothing at {pointer}"))? = value.clone();
    let read = serde_json::from_value::<T>(tree.clone());
    assert!(read.is_err(), "{pointer} = {value} was read as {read:?}");
    let text = serde_json::from_str::<T>(&tree.to_string());
    assert!(text.is_err(), "{pointer} = {value} was read as {text:?}");
    Ok(())
}

#[test]
fn a_stored_task_that_breaks_a_limit_is_not_read() -> Checked {
    let good = task()?;
    for (pointer, value) in [
        ("/spec/lane/queue", json!("x".repeat(129))),
        ("/spec/lane/kind", json!("")),
        ("/spec/owner", json!("a\0b")),
        ("/spec/group", json!("x".repeat(513))),
        ("/spec/key/0", json!("")),
        ("/spec/labels", json!({"": "b"})),
        ("/spec/id", json!("seven")),
        ("/spec/created_at", json!(-1)),
        ("/spec/fingerprint", json!("seven")),
        ("/spec/group_born", json!(-1)),
        ("/spec/payload", json!([256])),
        (
            "/spec/attempt_timeout",
            json!({"secs": u64::MAX, "nanos": 1_000_000_000}),
        ),
        ("/spec/retry/max_attempts", json!(4_294_967_296_u64)),
        ("/spec/retry/backoff", json!({"linear": 1})),
        ("/state/status", json!("paused")),
        ("/state/status", json!("Pending")),
        ("/state/status", json!(null)),
        ("/state/defeats", json!(-1)),
        ("/state/settled/by", json!("seven")),
        ("/state/priority", json!(11)),
        ("/state/priority", json!(-1)),
        ("/state/priority", json!(256)),
        ("/state/fence", json!(-1)),
        ("/state/fence", json!(1.5)),
        ("/state/runnable_at", json!(253_402_207_200_000_001_i64)),
        ("/state/runnable_at", json!(i64::MIN)),
        ("/state/runnable_at", json!(u64::MAX)),
        ("/state/runnable_at", json!("1970-01-01T00:00:00Z")),
        ("/state/lease/worker/name", json!("")),
        ("/state/errors/0/kind", json!("unlucky")),
        ("/state/progress/percent", json!(256)),
        ("/state/attributes", json!({"a\u{0}b": []})),
    ] {
        refuses(&good, pointer, value)?;
    }
    Ok(())
}

#[test]
fn a_stored_value_without_a_part_it_must_have_is_not_read() -> Checked {
    let whole = serde_json::to_value(task()?)?;
    for (outer, part) in [
        ("", "spec"),
        ("", "state"),
        ("/spec", "id"),
        ("/spec", "fingerprint"),
        ("/spec", "created_at"),
        ("/state", "status"),
        ("/state", "priority"),
        ("/state", "fence"),
        ("/state", "attempts"),
        ("/state", "failures"),
        ("/state", "defeats"),
        ("/state", "redrives"),
        ("/state", "runnable_at"),
        ("/state", "attributes"),
        ("/state", "errors"),
        ("/state", "modified_at"),
        ("/state", "revision"),
        ("/state/settled", "by"),
    ] {
        let mut tree = whole.clone();
        let parts = tree.pointer_mut(outer).and_then(Value::as_object_mut);
        let removed = parts.ok_or("not an object")?.remove(part);
        assert!(removed.is_some(), "{outer}/{part}");
        let read = serde_json::from_value::<Task>(tree);
        assert!(read.is_err(), "without {outer}/{part}: {read:?}");
    }
    Ok(())
}

#[test]
fn other_stored_values_that_break_a_limit_are_not_read() -> Checked {
    refuses(&record()?, "/key", json!("x".repeat(513)))?;
    refuses(&record()?, "/key", json!(""))?;
    refuses(&record()?, "/expires_at", json!(i64::MAX))?;
    refuses(&record()?, "/revision", json!(-1))?;
    refuses(&new_task(1)?, "/priority", json!(11))?;
    refuses(&new_task(1)?, "/on_failure/lane/kind", json!("\u{0}"))?;
    refuses(&new_task(1)?, "/due", json!({"at": -1}))?;
    let namespace = Namespace::new("plain")?;
    refuses(&namespace, "", json!("not plain"))?;
    refuses(&namespace, "", json!("x".repeat(65)))?;
    refuses(&Prefix::any(), "", json!("x".repeat(513)))?;
    refuses(&Error::Closed, "", json!("Exploded"))
}

#[test]
fn the_reader_of_json_is_told_the_limit() {
    let text = json!("x".repeat(129)).to_string();
    let error = serde_json::from_str::<Name>(&text).err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(
        error.contains("name: 129 bytes, at most 128 are allowed"),
        "{error}"
    );
    let error = serde_json::from_str::<Priority>("11").err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("11 is not between 0 and 10"), "{error}");
}
