//! What is sent together, or beside each other, takes effect in order all the same: many new tasks of one call are
//! written by two connections, and all that a small transaction writes is one statement.

#![allow(clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::ids::Ids;
use plimsoll_core::store::{Changes, Commit, Outcome, Receipt, Start, SubmitOutcome, Tasks, Write};
use plimsoll_core::task::{Lane, NewTask};
use plimsoll_core::{IdempotencyKey, Namespace, Result, Store, TaskId};
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
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
        let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
        let mut config = Config {
            unsafe_durability: true,
            // Whoever waits for a lock does so until it is free.
            lock_timeout: Duration::from_secs(60),
            ..Config::new(&url).expect("a URL")
        };
        change(&mut config);
        migrate(&config).await.expect("a schema");
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let name = ids.task().to_string();
        config.server.application_name(&name);
        let namespace = Namespace::new(name).expect("a namespace");
        let postgres = Postgres::open(config.clone()).await.expect("a server");
        let store = postgres.namespace(namespace.clone()).await;
        Self {
            store: store.expect("a handle"),
            namespace,
            config,
            ids,
        }
    }

    /// In a schema of its own, in which whoever writes a task can be [held up](Self::hold_up).
    async fn gated(schema: &str) -> Self {
        let world = Self::with(|config| {
            config.schema = schema.into();
            config.call_timeout = Duration::from_secs(5);
        })
        .await;
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS {schema}.gate (id uuid);
             CREATE OR REPLACE FUNCTION {schema}.pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 WHILE EXISTS (SELECT 1 FROM {schema}.gate WHERE id = NEW.id) LOOP
                     PERFORM pg_sleep(0.01);
                 END LOOP;
                 RETURN NEW;
             END $$;
             CREATE OR REPLACE TRIGGER pass BEFORE INSERT ON {schema}.specs
             FOR EACH ROW EXECUTE FUNCTION {schema}.pass()"
        );
        let stranger = world.stranger().await;
        stranger.batch_execute(&sql).await.expect("a gate");
        world
    }

    /// Whoever writes this task does not get on, without waiting for a lock.
    async fn hold_up(&self, task: &NewTask) {
        let sql = format!(
            "INSERT INTO {}.gate VALUES ('{}')",
            self.config.schema, task.id
        );
        self.stranger()
            .await
            .batch_execute(&sql)
            .await
            .expect("closed");
    }

    async fn let_go(&self) {
        let sql = format!("DELETE FROM {}.gate", self.config.schema);
        self.stranger()
            .await
            .batch_execute(&sql)
            .await
            .expect("open");
    }

    fn tasks(&self) -> Vec<NewTask> {
        let lane = Lane::new("queue", "kind").expect("a lane");
        let task = |_| NewTask::new(self.ids.task(), lane.clone(), "payload");
        (0..TASKS).map(task).collect()
    }

    /// Tasks without a key, and tasks with one each.
    fn both(&self) -> [Vec<NewTask>; 2] {
        let keyed = |task: NewTask| {
            let key = IdempotencyKey::new(task.id.to_string()).expect("a key");
            task.key(key)
        };
        [self.tasks(), self.tasks().into_iter().map(keyed).collect()]
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

    /// Somebody who has nothing to do with the store.
    async fn stranger(&self) -> Client {
        let mut server = self.config.server.clone();
        let connected = server.application_name("stranger").connect(NoTls).await;
        let (client, connection) = connected.expect("connected");
        #[allow(clippy::disallowed_methods, reason = "it ends with the client")]
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// Somebody whose transaction is about to write this task.
    async fn rival(&self, task: TaskId) -> Client {
        let client = self.stranger().await;
        let sql = format!(
            "BEGIN; INSERT INTO plimsoll.specs (ns, id, lane, born, created_at, queue, kind, payload) \
             SELECT ns, '{task}', 1, 1, now(), 'queue', 'kind', '' FROM plimsoll.namespaces \
             WHERE name = '{}'",
            self.namespace
        );
        client.batch_execute(&sql).await.expect("written");
        client
    }

    /// The server ends the connection of this number.
    async fn kill(&self, connection: i32) {
        let sql = "SELECT pg_terminate_backend($1, 5000)";
        let killed = self.stranger().await.query(sql, &[&connection]).await;
        assert!(killed.expect("an answer")[0].get::<_, bool>(0));
    }

    /// Waits until a connection of ours is in such a state, and answers its number.
    async fn awaits(&self, state: &str) -> i32 {
        let (stranger, clock) = (self.stranger().await, SystemClock::new());
        let sql =
            format!("SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND {state}");
        for _ in 0..1_000 {
            let found = stranger.query(&sql, &[&self.namespace.as_str()]).await;
            if let Some(row) = found.expect("an answer").first() {
                return row.get(0);
            }
            clock.sleep(Duration::from_millis(10)).await;
        }
        panic!("no connection is ever {state}");
    }
}

fn outcome(receipt: &Result<Receipt>) -> SubmitOutcome {
    let receipt = receipt.as_ref().expect("a receipt");
    match &receipt.outcomes[..] {
        [Outcome::Submitted(submitted)] => submitted.outcome,
        other => panic!("{other:?}"),
    }
}

/// Everything was created, in order. Answers by how many transactions.
fn created(receipts: &[Result<Receipt>]) -> usize {
    let mut positions = BTreeSet::new();
    let mut last = None;
    for receipt in receipts {
        assert_eq!(outcome(receipt), SubmitOutcome::Created);
        let position = receipt.as_ref().expect("a receipt").position;
        assert!(position >= last, "{position:?} after {last:?}");
        last = position;
        positions.extend(position);
    }
    positions.len()
}

/// What a connection does that has written the second half, and waits for the first.
const WAITS: &str = "state = 'idle in transaction' AND state_change < now() - interval '100 ms'";

#[tokio::test]
async fn the_second_half_takes_effect_after_the_first() {
    let world = World::gated("test_beside_order").await;
    for held_up in [0, TASKS / 2 - 1] {
        for tasks in world.both() {
            world.hold_up(&tasks[held_up]).await;
            let meanwhile = async {
                world.awaits(WAITS).await;
                assert_eq!(world.there(&tasks).await, 0, "the first half is held up");
                world.let_go().await;
            };
            let (receipts, ()) = join(world.submit(&tasks), meanwhile).await;
            assert_eq!(created(&receipts), 2, "two transactions");
            assert_eq!(world.there(&tasks).await, TASKS);
        }
    }
}

/// The server does not see that the second half waits for the first: nobody may have to wait for both for long.
#[tokio::test]
async fn while_the_first_half_waits_for_a_lock_the_second_holds_none() {
    let world = World::new().await;
    for tasks in world.both() {
        let rival = world.rival(tasks[0].id).await;
        let meanwhile = async {
            let waits = "wait_event_type = 'Lock' AND query_start < now() - interval '200 ms'";
            let first = world.awaits(waits).await;
            let open = "SELECT pid FROM pg_stat_activity \
                        WHERE application_name = $1 AND xact_start IS NOT NULL";
            let open = rival.query(open, &[&world.namespace.as_str()]).await;
            let open: Vec<i32> = open
                .expect("an answer")
                .iter()
                .map(|row| row.get(0))
                .collect();
            assert_eq!(open, [first]);
            rival.batch_execute("ROLLBACK").await.expect("an answer");
        };
        let (receipts, ()) = join(world.submit(&tasks), meanwhile).await;
        assert_eq!(created(&receipts), 2);
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

#[tokio::test]
async fn a_first_half_is_not_held_up_by_the_second() {
    let world = World::new().await;
    for tasks in world.both() {
        let (first, second) = tasks.split_at(TASKS / 2);
        let rival = world.rival(second[7].id).await;
        let meanwhile = async {
            let clock = SystemClock::new();
            while world.there(first).await < first.len() {
                assert!(clock.monotonic() < Duration::from_secs(30), "held up");
                tokio::task::yield_now().await;
            }
            assert_eq!(world.there(second).await, 0);
            rival.batch_execute("ROLLBACK").await.expect("an answer");
        };
        let (receipts, ()) = join(world.submit(&tasks), meanwhile).await;
        assert_eq!(created(&receipts), 2);
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

/// Whatever is wrong with one task, the others are submitted, the first half before the second.
#[tokio::test]
async fn one_that_is_there_already_does_not_keep_the_others() {
    let world = World::new().await;
    for place in [3, TASKS - 3] {
        let mut tasks = world.tasks();
        let known = tasks[place].clone();
        outcome(&world.submit(std::slice::from_ref(&known)).await[0]);
        tasks[place].payload = "another".into();
        let mut receipts = world.submit(&tasks).await;
        let refused = receipts.remove(place);
        assert_eq!(refused.expect_err("another task").code(), "id_taken");
        created(&receipts);
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

#[tokio::test]
async fn one_connection_is_enough() {
    let world = World::with(|config| config.writers = 1).await;
    let [one, other] = world.both();
    let (first, second) = join(world.submit(&one), world.submit(&other)).await;
    assert_eq!((created(&first), created(&second)), (2, 2));
    assert_eq!(
        world.there(&one).await + world.there(&other).await,
        2 * TASKS
    );
}

/// The server ends the connection of the second half while that waits for the first.
#[tokio::test]
async fn a_second_half_that_is_lost_is_written_again() {
    let world = World::gated("test_beside_lost").await;
    // Both connections know their statements.
    for tasks in world.both() {
        world.submit(&tasks).await;
    }
    for tasks in world.both() {
        world.hold_up(&tasks[0]).await;
        let meanwhile = async {
            let second = world.awaits(WAITS).await;
            world.kill(second).await;
            world.let_go().await;
        };
        let (receipts, ()) = join(world.submit(&tasks), meanwhile).await;
        assert_eq!(created(&receipts), 2);
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

/// The server ends the connection of the first half, which is then tried again, while the second waits for it.
#[tokio::test]
async fn a_first_half_that_is_lost_is_written_again_before_the_second() {
    let world = World::gated("test_beside_first").await;
    for tasks in world.both() {
        world.submit(&tasks).await;
    }
    for tasks in world.both() {
        world.hold_up(&tasks[0]).await;
        let meanwhile = async {
            world.awaits(WAITS).await;
            let first = world.awaits("state = 'active'").await;
            world.kill(first).await;
            world.awaits("state = 'active'").await;
            assert_eq!(world.there(&tasks).await, 0, "the second has not happened");
            world.let_go().await;
        };
        let (receipts, ()) = join(world.submit(&tasks), meanwhile).await;
        assert_eq!(created(&receipts), 2);
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

#[tokio::test]
async fn a_first_half_that_fails_for_good_is_not_followed_by_the_second() {
    let world = World::gated("test_beside_fails").await;
    for tasks in world.both() {
        let (first, second) = tasks.split_at(TASKS / 2);
        world.hold_up(&first[7]).await;
        let receipts = world.submit(&tasks).await;
        for (place, receipt) in receipts.iter().enumerate() {
            let said = receipt.as_ref().expect_err("it failed").to_string();
            let expected = match place < first.len() {
                true => "longer than call_timeout allows",
                false => "not tried",
            };
            assert!(said.contains(expected), "{place}: {said}");
        }
        world.let_go().await;
        assert_eq!(
            (world.there(first).await, world.there(second).await),
            (0, 0)
        );
        assert_eq!(created(&world.submit(&tasks).await), 2);
    }
}

/// As if the process had died when the first half had happened and the second had not.
#[tokio::test]
async fn a_call_that_ends_between_its_halves_is_safe_to_repeat() {
    let world = World::gated("test_beside_ends").await;
    for tasks in world.both() {
        let (first, second) = tasks.split_at(TASKS / 2);
        world.hold_up(&second[7]).await;
        let half = async { while world.there(first).await < first.len() {} };
        tokio::select! {
            receipts = world.submit(&tasks) => panic!("{receipts:?}"),
            () = half => {}
        }
        assert_eq!(world.there(second).await, 0);
        world.let_go().await;
        for receipt in &world.submit(&tasks).await {
            assert_eq!(outcome(receipt), SubmitOutcome::Created);
        }
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

/// Where statements are not prepared, as behind a pooler.
#[tokio::test]
async fn nothing_depends_on_prepared_statements() {
    let world = World::with(|config| (config.prepare, config.listen) = (false, false)).await;
    for tasks in world.both() {
        assert_eq!(created(&world.submit(&tasks).await), 2);
        assert_eq!(world.there(&tasks).await, TASKS);
    }
}

/// A submit that waits for a row has no place in the history yet: others are read meanwhile.
#[tokio::test]
async fn who_waits_for_a_row_holds_nobodys_history_back() {
    let world = World::new().await;
    let tasks = world.tasks();
    let (held_up, free) = (&tasks[..1], &tasks[1..2]);
    let rival = world.rival(held_up[0].id).await;
    let meanwhile = async {
        world.awaits("wait_event_type = 'Lock'").await;
        let receipt = world.submit(free).await.remove(0).expect("a receipt");
        let changes = Changes {
            start: Start::Oldest,
            interests: Vec::new(),
            limit: 10,
        };
        let page = world.store.changes(changes).await.expect("a page");
        let told: Vec<_> = page
            .entries
            .iter()
            .map(|entry| Some(entry.position))
            .collect();
        assert_eq!(told, [receipt.position]);
        rival.batch_execute("ROLLBACK").await.expect("an answer");
    };
    let (receipts, ()) = join(world.submit(held_up), meanwhile).await;
    assert_eq!(outcome(&receipts[0]), SubmitOutcome::Created);
}
