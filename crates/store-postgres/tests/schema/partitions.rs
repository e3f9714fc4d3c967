//! Finished tasks by month.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::ids::Ids;
use plimsoll_core::store::Compact;
use plimsoll_core::task::Status;
use plimsoll_core::{Store, StoreExt, TaskId, Timestamp};
use plimsoll_engine::Engine;

use crate::server::Place;

const MINUTE: Duration = Duration::from_secs(60);

/// The moment in the middle of a month, by the server's clock: 0 is this one.
async fn middle(place: &Place, month: i32) -> Timestamp {
    let query = format!(
        "SELECT (extract(epoch FROM month_of(now()) + {month} * interval '1 month' + interval '14 days') * 1000000)::bigint"
    );
    let micros = place.column(&query).await.remove(0).parse().unwrap();
    Timestamp::from_micros(micros).unwrap()
}

/// A task that ends at this moment.
async fn ended_at(place: &Place, at: Timestamp) -> TaskId {
    let clock = Arc::new(ManualClock::new());
    clock.jump_to(at);
    let store: Arc<dyn Store> = Arc::new(place.store_with(clock.clone()).await);
    let tasks = Engine::with(store, clock.clone(), Ids::random(clock)).tasks();
    let id = tasks
        .submit(tasks.task("media", "clip", "{}").unwrap())
        .await
        .unwrap()
        .id;
    let held = tasks
        .claim(id, &tasks.worker("w").unwrap(), MINUTE)
        .await
        .unwrap();
    held.complete("[]").await.unwrap();
    id
}

/// Where a finished task is.
async fn partition_of(place: &Place, id: TaskId) -> Vec<String> {
    let query = format!("SELECT tableoid::regclass FROM tasks_done WHERE id = '{id}'");
    place.column(&query).await
}

/// The name of the partition of a month.
async fn name_of(place: &Place, month: i32) -> String {
    let first = "month_of(now()) AT TIME ZONE 'UTC'";
    let query = format!(
        "SELECT 'tasks_done_' || to_char({first} + {month} * interval '1 month', 'YYYY_MM')"
    );
    place.column(&query).await.remove(0)
}

async fn kept(place: &Place, ahead: i32) -> (String, String) {
    let query = format!("SELECT made || ' ' || dropped FROM keep_partitions({ahead})");
    let found = place.column(&query).await.remove(0);
    let (made, dropped) = found.split_once(' ').unwrap();
    (made.into(), dropped.into())
}

#[tokio::test]
async fn what_ends_in_a_month_is_in_its_partition() {
    let place = Place::new("test_months").await;
    let store = place.store().await;
    for month in 0..3 {
        let id = ended_at(&place, middle(&place, month).await).await;
        assert_eq!(
            partition_of(&place, id).await,
            [name_of(&place, month).await]
        );
        let task = store.task(id).await.unwrap().unwrap();
        assert_eq!(task.status, Status::Completed);
        let shown = place
            .column(&format!("SELECT status FROM jobs WHERE job_id = '{id}'"))
            .await;
        assert_eq!(shown, ["completed"]);
    }
    // Where there is no partition, the default one takes it, until there is one.
    let later = ended_at(&place, middle(&place, 4).await).await;
    assert_eq!(partition_of(&place, later).await, ["tasks_done_other"]);
    assert_eq!(kept(&place, 4).await, ("2".into(), "0".into()));
    assert_eq!(
        partition_of(&place, later).await,
        [name_of(&place, 4).await]
    );
    assert!(store.task(later).await.unwrap().is_some());
    assert_eq!(kept(&place, 4).await, ("0".into(), "0".into()));
    place.drop().await;
}

#[tokio::test]
async fn a_month_of_which_nothing_is_left_goes() {
    let place = Place::new("test_old_months").await;
    let (old, older) = (middle(&place, -2).await, middle(&place, -3).await);
    for at in [old, older] {
        let made = format!(
            "SELECT make_partition(to_timestamp({}))",
            at.as_micros() / 1_000_000
        );
        assert_eq!(place.column(&made).await, ["t"]);
    }
    let (id, left) = (ended_at(&place, older).await, ended_at(&place, old).await);
    assert_eq!(partition_of(&place, id).await, [name_of(&place, -3).await]);
    assert_eq!(
        kept(&place, 2).await,
        ("0".into(), "0".into()),
        "nothing is empty"
    );

    // As long ago as that, only the older one is removed.
    let clock = Arc::new(ManualClock::new());
    clock.jump_to(old);
    let store = place.store_with(clock.clone() as Arc<dyn Clock>).await;
    let compact = Compact {
        tasks: BTreeMap::from([(Status::Completed, Duration::from_secs(1))]),
        groups: None,
        history: None,
        logs: None,
        limit: 100,
    };
    assert_eq!(store.compact(compact.clone()).await.unwrap().tasks, 1);
    // The next process that removes something finds the month empty.
    let other = place.store().await;
    let nothing = Compact {
        tasks: BTreeMap::new(),
        ..compact
    };
    other.compact(nothing).await.unwrap();
    let gone = format!(
        "SELECT to_regclass('{}') IS NULL",
        name_of(&place, -3).await
    );
    assert_eq!(place.column(&gone).await, ["t"]);
    assert_eq!(
        partition_of(&place, left).await,
        [name_of(&place, -2).await]
    );
    assert!(store.task(id).await.unwrap().is_none());
    assert!(store.task(left).await.unwrap().is_some());
    place.drop().await;
}

#[tokio::test]
async fn one_that_is_in_the_way_delays_nobody_for_long() {
    let place = Place::new("test_locked_months").await;
    let other = crate::server::connect(&place.config).await;
    let hold = format!("BEGIN; SELECT 1 FROM {}.tasks_done", place.quoted());
    other.batch_execute(&hold).await.unwrap();
    // Whoever waits longer than this fails.
    place.run("SET statement_timeout = '3s'").await;
    assert_eq!(
        kept(&place, 3).await,
        ("0".into(), "0".into()),
        "it gives up"
    );
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(
        kept(&place, 3).await,
        ("1".into(), "0".into()),
        "and tries again"
    );
    place.drop().await;
}
