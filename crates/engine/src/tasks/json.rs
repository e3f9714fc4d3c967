//! Payloads and results as typed values.

use bytes::Bytes;
use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::task::Task;
use plimsoll_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::json;

/// The value as JSON; what JSON cannot hold is `Invalid` and blames `field`.
pub(super) fn encode(field: &str, value: &(impl Serialize + ?Sized)) -> Result<Bytes> {
    json::write(value).map_err(|expected| {
        let expected = expected.into();
        Invalid::new(field, Problem::Malformed { expected }).into()
    })
}

fn decode<T: DeserializeOwned>(task: &Task, what: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::Corrupt(format!("{what} of task {}: {error}", task.id()).into()))
}

/// What a task came to, as it was given to [`Hold::complete_json`](crate::tasks::Hold::complete_json);
/// `None` as long as it has no result. `Corrupt` if it is something else.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::{Engine, Tasks, tasks};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
/// # let client = Tasks::new(Engine::new(store));
/// # let worker = client.worker("w1")?;
/// let id = client.submit(client.task("sums", "add", "1+2")?).await?.id;
/// let held = client.claim(id, &worker, Duration::from_secs(30)).await?;
/// held.complete_json(&3).await?;
/// assert_eq!(tasks::result::<u32>(&client.get(id).await?)?, Some(3));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
pub fn result<T: DeserializeOwned>(task: &Task) -> Result<Option<T>> {
    let result = task.result.as_ref();
    result
        .map(|bytes| decode(task, "result", bytes))
        .transpose()
}

/// What a task is about, as it was given to [`Tasks::json`](crate::Tasks::json). `Corrupt` if it is
/// something else.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::{Engine, Tasks, tasks};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
/// # let client = Tasks::new(Engine::new(store));
/// let id = client.submit(client.json("mail", "send", &("ada", 7))?).await?.id;
/// let (name, number): (String, u8) = tasks::payload(&client.get(id).await?)?;
/// assert_eq!((name.as_str(), number), ("ada", 7));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
pub fn payload<T: DeserializeOwned>(task: &Task) -> Result<T> {
    decode(task, "payload", &task.spec.payload)
}
