//! Several processes that compact, fill and write at the same time, on a real server.

#![allow(clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use plimsoll_core::clock::SystemClock;
use plimsoll_core::ids::Ids;
use plimsoll_core::record::{Index, fields};
use plimsoll_core::store::{
    Cancel, Commit, Compact, Counts, DeclareIndex, Guard, Merge, Put, Range, Receipt, Scan,
    TaskByKey, Write,
};
use plimsoll_core::task::{KeyLifetime, Lane, NewTask, OnConflict, Status};
use plimsoll_core::{IdempotencyKey, Key, Name, Namespace, Prefix, Store, StoreExt};
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};

/// Handles to one new namespace, each with connections of its own, as another process would have.
async fn handles<const N: usize>() -> ([PostgresStore; N], Ids) {
    let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
    let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
    let config = Config {
        unsafe_durability: true,
        ..Config::new(&url).expect("a URL")
    };
    migrate(&config).await.expect("a schema");
    let ids = Ids::random(Arc::new(SystemClock::new()));
    let namespace = Namespace::new(ids.task().to_string()).expect("a namespace");
    let open = std::array::from_fn::<_, N, _>(|_| async {
        let postgres = Postgres::open(config.clone()).await.expect("a server");
        (postgres.namespace(namespace.clone()).await).expect("a handle")
    });
    let handles = join_all(open).await;
    (handles.try_into().expect("as many"), ids)
}

async fn write(store: &PostgresStore, writes: impl Iterator<Item = Write>) {
    let answers = store.commit(writes.map(Commit::of).collect()).await;
    for answer in answers {
        answer.expect("a receipt");
    }
}

#[tokio::test]
async fn each_finished_task_is_removed_and_counted_once() {
    const TASKS: u64 = 500;
    let (handles, ids) = handles::<4>().await;
    let key = |n: u64| IdempotencyKey::new(format!("key {n}")).expect("a key");
    let new = |n| {
        let task = NewTask::new(ids.task(), Lane::new("queue", "kind").expect("a lane"), "x");
        task.key_with(key(n), KeyLifetime::Forever, OnConflict::default())
    };
    let tasks: Vec<NewTask> = (0..TASKS).map(new).collect();
    let submits = tasks
        .iter()
        .map(|task| Write::Submit(Box::new(task.clone())));
    write(&handles[0], submits).await;
    let cancels = tasks.iter().map(|task| {
        let (task, reason) = (task.id, None);
        Write::Cancel(Cancel { task, reason })
    });
    write(&handles[0], cancels).await;
    let compact = Compact {
        tasks: BTreeMap::from([(Status::Cancelled, Duration::ZERO)]),
        history: Some(Duration::ZERO),
        limit: 7,
        ..Compact::default()
    };
    let until_done = async |store: &PostgresStore| {
        let mut removed = 0;
        loop {
            let done = store.compact(compact.clone()).await.expect("compaction");
            removed += done.tasks;
            if !done.more {
                return removed;
            }
        }
    };
    let removed = join_all(handles.iter().map(until_done)).await;
    assert_eq!(removed.iter().sum::<u64>(), TASKS, "{removed:?}");
    let counts = handles[0].counts(Counts::default()).await.expect("counts");
    assert_eq!(counts, []);
    let by = TaskByKey { key: key(0) };
    assert_eq!(handles[0].task_by_key(by).await.expect("a look"), None);
}

#[tokio::test]
async fn an_index_filled_while_records_change_has_each_as_it_is() {
    const RECORDS: u64 = 60;
    const ROUNDS: u64 = 20;
    let ([writer, filler], _) = handles::<2>().await;
    let put = |n: u64, round: u64| {
        let key = Key::new(format!("record {n}")).expect("a key");
        let value = (round * 1_000 + n).to_string();
        Write::Put(Put::new(key, fields([("n", value)]).expect("fields")))
    };
    write(&writer, (0..RECORDS).map(|n| put(n, 0))).await;
    let index = Index {
        prefix: Prefix::new("record").expect("a prefix"),
        field: Name::new("n").expect("a name"),
    };
    let writing = async {
        for round in 1..=ROUNDS {
            write(&writer, (0..RECORDS).map(|n| put(n, round))).await;
        }
    };
    let filling = async {
        let declare = DeclareIndex {
            index: index.clone(),
            limit: 2,
        };
        while !(filler.declare_index(declare.clone()).await)
            .expect("a step")
            .ready
        {}
    };
    join(writing, filling).await;
    let all = Scan::new(index.prefix.clone(), 1_000).range(Range::new(index.field.clone()));
    let page = writer.scan(all).await.expect("a page");
    let values = page.rows.iter().map(|record| record.field("n").cloned());
    let wanted = (0..RECORDS).map(|n| Some((ROUNDS * 1_000 + n).to_string().into()));
    assert!(values.eq(wanted), "{:?}", page.rows);
}

/// As when an answer is lost and the call is repeated before the server is done with the first.
#[tokio::test]
async fn a_commit_that_is_sent_twice_at_once_happens_once_and_both_answers_are_the_same() {
    const TIMES: i64 = 50;
    let (handles, ids) = handles::<2>().await;
    let counted = Key::new("counted").expect("a key");
    let n = Name::new("n").expect("a name");
    let twice = async |commit: Commit| {
        let commit = commit.id(ids.commit());
        let [one, other] = &handles;
        let (one, other) = join(one.commit_one(commit.clone()), other.commit_one(commit)).await;
        let mut receipts = [one, other].map(|answer| answer.expect("a receipt"));
        receipts.sort_by_key(|receipt| receipt.repeated);
        let [first, again] = receipts;
        let repeated = true;
        assert_eq!(Receipt { repeated, ..first }, again);
    };
    for time in 0..TIMES {
        // One that is there, and one that is not.
        let now = (time > 0).then(|| time.to_string().into());
        let next = fields([("n", (time + 1).to_string())]).expect("fields");
        let add = Commit::of(Write::Merge(Merge::new(counted.clone()).set(next.clone())));
        twice(add.guard(Guard::Field(counted.clone(), n.clone(), now))).await;
        let key = Key::new(format!("created.{time}")).expect("a key");
        let create = Commit::of(Write::Put(Put::new(key.clone(), next)));
        twice(create.guard(Guard::RecordAbsent(key))).await;
    }
}
