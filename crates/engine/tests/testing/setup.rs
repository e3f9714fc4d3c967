//! What these tests share.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::TaskId;
use plimsoll_core::task::NewTask;
use plimsoll_engine::testing::Kit;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A task `q/kind`.
pub(crate) fn task(kit: &Kit, kind: &str, payload: &'static str) -> NewTask {
    kit.tasks().task("q", kind, payload).unwrap()
}

pub(crate) async fn submit(kit: &Kit, task: NewTask) -> TaskId {
    kit.tasks().submit(task).await.unwrap().id
}

/// What it says when it fails.
pub(crate) async fn failure(future: impl Future) -> String {
    let panic = AssertUnwindSafe(future).catch_unwind().await;
    let panic = panic.err().expect("must fail");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()))
        .expect("a message")
}
