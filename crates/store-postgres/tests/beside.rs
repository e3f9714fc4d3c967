//! Many new tasks of one call are written by two connections, and take effect in order all the same.

#![allow(clippy::expect_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::ids::Ids;
use plimsoll_core::store::{Commit, Outcome, Receipt, SubmitOutcome, Tasks, Write};
use plimsoll_core::task::{Lane, NewTask};
use plimsoll_core::{Namespace, Result, Store, TaskId};
use plimsoll_store_postgres::tokio_postgres::{Client, NoTls};
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};

/// So many tasks are two transactions of 300.
const TASKS: usize = 600;

struct World {
    store: PostgresStore,
    namespace: Namespace,
    config: Config,
    ids: Ids,
}

impl World {
    async fn new(writers: usize) -> Self {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
        let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
        let config = Config {
            unsafe_durability: true,
            writers,
            ..Config::new(&url).expect("a URL")
        };
        migrate(&config).await.expect("a schema");
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let namespace = Namespace::new(ids.task().to_string()).expect("a namespace");
        let postgres = Postgres::open(config.clone()).await.expect("a server");
        let store = postgres.namespace(namespace.clone()).await;
        Self {
            store: store.expect("a handle"),
            namespace,
            config,
            ids,
        }
    }

    fn tasks(&self) -> Vec<NewTask> {
        let lane = Lane::new("queue", "kind").expect("a lane");
        let task = |_| NewTask::new(self.ids.task(), lane.clone(), "payload");
        (0..TASKS).map(task).collect()
    }

    async fn submit(&self, tasks: &[NewTask]) -> Vec<Result<Receipt>> {
        let submit = |task: &NewTask| Commit::of(Write::Submit(Box::new(task.clone())));
        self.store.commit(tasks.iter().map(submit).collect()).await
    }

    /// How many of these tasks there are.
    async fn there(&self, tasks: &[NewTask]) -> usize {
        let ids = tasks.iter().map(|task| task.id).collect();
        let found = self.store.tasks(Tasks { ids }).await.expect("an answer");
        found.iter().flatten().count()
    }

    /// Somebody whose transaction is about to write this task.
    async fn rival(&self, task: TaskId) -> Client {
        let connected = self.config.server.connect(NoTls).await;
        let (client, connection) = connected.expect("connected");
        #[allow(clippy::disallowed_methods, reason = "it ends with the client")]
        tokio::spawn(async move { drop(connection.await) });
        let sql = format!(
            "BEGIN; INSERT INTO plimsoll.specs (ns, id, lane, born, created_at, queue, kind, payload) \
             SELECT ns, '{task}', 1, 1, now(), 'queue', 'kind', '' FROM plimsoll.namespaces \
             WHERE name = '{}'",
            self.namespace
        );
        client.batch_execute(&sql).await.expect("written");
        client
    }
}

fn outcome(receipt: &Result<Receipt>) -> SubmitOutcome {
    let receipt = receipt.as_ref().expect("a receipt");
    match &receipt.outcomes[..] {
        [Outcome::Submitted(submitted)] => submitted.outcome.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_second_half_takes_effect_after_the_first() {
    let world = World::new(4).await;
    let clock = SystemClock::new();
    for held_up in [0, TASKS / 2 - 1] {
        let tasks = world.tasks();
        let rival = world.rival(tasks[held_up].id).await;
        let meanwhile = async {
            clock.sleep(Duration::from_millis(300)).await;
            assert_eq!(world.there(&tasks).await, 0, "the first half is held up");
            rival.batch_execute("ROLLBACK").await.expect("an answer");
        };
        let (receipts, ()) = join(world.submit(&tasks), meanwhile).await;
        let mut positions = BTreeSet::new();
        let mut last = None;
        for receipt in &receipts {
            assert_eq!(outcome(receipt), SubmitOutcome::Created);
            let position = receipt.as_ref().expect("a receipt").position;
            assert!(position >= last, "{position:?} after {last:?}");
            last = position;
            positions.extend(position);
        }
        assert_eq!(positions.len(), 2, "two transactions");
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

#[tokio::test]
async fn a_first_half_is_not_held_up_by_the_second() {
    let world = World::new(4).await;
    let tasks = world.tasks();
    let (first, second) = tasks.split_at(TASKS / 2);
    let rival = world.rival(second[7].id).await;
    let meanwhile = async {
        while world.there(first).await < first.len() {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.there(second).await, 0);
        rival.batch_execute("ROLLBACK").await.expect("an answer");
    };
    let (receipts, ()) = join(world.submit(&tasks), meanwhile).await;
    assert!(receipts.iter().all(Result::is_ok), "{receipts:?}");
    assert_eq!(world.there(&tasks).await, TASKS);
}

/// Whatever is wrong with one task, the others are submitted, the first half before the second.
#[tokio::test]
async fn one_that_is_there_already_does_not_keep_the_others() {
    let world = World::new(4).await;
    for place in [3, TASKS - 3] {
        let mut tasks = world.tasks();
        let known = tasks[place].clone();
        outcome(&world.submit(std::slice::from_ref(&known)).await[0]);
        tasks[place].payload = "another".into();
        let mut receipts = world.submit(&tasks).await;
        let refused = receipts.remove(place);
        assert_eq!(refused.expect_err("another task").code(), "id_taken");
        let mut last = None;
        for receipt in &receipts {
            assert_eq!(outcome(receipt), SubmitOutcome::Created);
            let position = receipt.as_ref().expect("a receipt").position;
            assert!(position >= last, "{position:?} after {last:?}");
            last = position;
        }
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

#[tokio::test]
async fn one_connection_is_enough() {
    let world = World::new(1).await;
    let (one, other) = (world.tasks(), world.tasks());
    let (first, second) = join(world.submit(&one), world.submit(&other)).await;
    for receipt in first.iter().chain(&second) {
        assert_eq!(outcome(receipt), SubmitOutcome::Created);
    }
    assert_eq!(
        world.there(&one).await + world.there(&other).await,
        2 * TASKS
    );
}
