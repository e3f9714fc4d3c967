//! The types of the core by themselves: limits of names, texts of errors, JSON, cursors and time.

mod cursors;
mod errors;
mod json;
mod logs;
mod names;
mod samples;
mod time;
mod unreadable;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::error::Invalid;
use plimsoll_core::task::{Lane, NewTask, Status, WorkerId};
use plimsoll_core::{
    Incarnation, Limits, Memory, Name, Namespace, Store, StoreExt, TaskId, Timestamp,
};

type Checked = Result<(), Box<dyn StdError>>;

fn at(seconds: u64) -> Timestamp {
    Timestamp::MIN.saturating_plus(Duration::from_secs(seconds))
}

fn id(number: u128) -> TaskId {
    TaskId::from_u128(number)
}

fn worker() -> Result<WorkerId, Invalid> {
    Ok(WorkerId {
        name: Name::new("w1")?,
        incarnation: Incarnation::from_u128(9),
    })
}

#[tokio::test]
async fn a_store_can_be_used_without_knowing_its_type() -> Checked {
    let clock = Arc::new(ManualClock::new());
    let memory = Memory::with(clock, Limits::default());
    let shared: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("one")?));
    let owned: Box<dyn Store> = Box::new(memory.open(Namespace::new("one")?));
    let new = NewTask::new(id(1), Lane::new("queue", "kind")?, "work");
    assert_eq!(shared.submit(new).await?.id, id(1));
    let stores: Vec<&dyn Store> = vec![shared.as_ref(), owned.as_ref()];
    for store in stores {
        let task = store.task(id(1)).await?;
        assert_eq!(task.map(|task| task.status), Some(Status::Pending));
    }
    Ok(())
}
