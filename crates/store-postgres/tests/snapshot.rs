//! Claims while somebody keeps an old snapshot open: what was claimed cannot be cleared away.

#![allow(clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::ids::Ids;
use plimsoll_core::store::{Claim, Commit, Ending, Exchange, Pick, Settle, Write};
use plimsoll_core::task::{Lane, NewTask, Task, WorkerId};
use plimsoll_core::wake::Listener;
use plimsoll_core::{Name, Namespace, Store, TaskId};
use plimsoll_store_postgres::tokio_postgres::{Client, NoTls};
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};

const TASKS: usize = 100_000;
const BATCH: usize = 20;
/// How many entries of the index are read for each task, at most. Without floors it is TASKS / BATCH
/// / 2 on average.
const READS_EACH_MAX: i64 = 1_500;

struct World {
    schema: &'static str,
    store: PostgresStore,
    /// Of another process.
    other: PostgresStore,
    /// Of one that tells nobody what it does.
    silent: PostgresStore,
    stranger: Client,
    ids: Ids,
    clock: SystemClock,
    lanes: Vec<Lane>,
    worker: WorkerId,
}

impl World {
    async fn new(schema: &'static str, lanes: usize) -> Self {
        let url = url();
        let stranger = connect(&url).await;
        let clean = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
        stranger.batch_execute(&clean).await.expect("a clean start");
        let config = Config {
            schema: schema.into(),
            unsafe_durability: true,
            ..Config::new(&url).expect("a URL")
        };
        migrate(&config).await.expect("a schema");
        let name = Namespace::new("snapshot").expect("a namespace");
        let open = async |listen| {
            let config = Config {
                listen,
                ..config.clone()
            };
            let postgres = Postgres::open(config).await.expect("a server");
            postgres.namespace(name.clone()).await.expect("a handle")
        };
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let lane = |number| Lane::new("queue", format!("kind{number}")).expect("a lane");
        Self {
            schema,
            store: open(true).await,
            other: open(true).await,
            silent: open(false).await,
            stranger,
            clock: SystemClock::new(),
            lanes: (0..lanes).map(lane).collect(),
            worker: WorkerId {
                name: Name::new("worker").expect("a name"),
                incarnation: ids.incarnation(),
            },
            ids,
        }
    }

    async fn submit(&self, tasks: usize) {
        for _ in 0..tasks / 1_000 {
            let submits = (0..1_000).map(|_| Commit::of(Write::Submit(Box::new(self.new_task()))));
            for answer in self.store.commit(submits.collect()).await {
                answer.expect("a receipt");
            }
        }
    }

    fn new_task(&self) -> NewTask {
        let id = self.ids.task();
        let lane = &self.lanes[(id.as_u128() % self.lanes.len() as u128) as usize];
        NewTask::new(id, lane.clone(), "x")
    }

    /// Submits a task whose transaction takes so long that another one, submitted and taken meanwhile,
    /// lets claims begin behind it.
    async fn submit_late(&self, heard: &mut Listener) -> TaskId {
        let (blocker, schema) = (connect(&url()).await, self.schema);
        let (task, id) = (self.new_task(), self.ids.commit());
        let hold = format!(
            "BEGIN; INSERT INTO {schema}.commits SELECT ns, '{id}', now(), NULL, '' \
             FROM {schema}.namespaces WHERE name = 'snapshot'"
        );
        blocker.batch_execute(&hold).await.expect("held up");
        let late = task.id;
        let mut commit = Commit::of(Write::Submit(Box::new(task)));
        commit.id = Some(id);
        let meanwhile = async {
            self.clock.sleep(Duration::from_millis(300)).await;
            let quick = Commit::of(Write::Submit(Box::new(self.new_task())));
            assert!(self.store.commit(vec![quick]).await[0].is_ok());
            assert_eq!(self.exchange(std::iter::empty()).await.len(), 1);
            blocker.batch_execute("ROLLBACK").await.expect("let go");
        };
        let (answers, ()) = futures::future::join(self.other.commit(vec![commit]), meanwhile).await;
        answers[0].as_ref().expect("a receipt");
        // All that it says of it is heard before what is said after it.
        self.other.close().await.expect("last words");
        let tell = format!(
            "SELECT pg_notify('{schema}', '[' || ns || ',\"l\"]') \
             FROM {schema}.namespaces WHERE name = 'snapshot'"
        );
        blocker.batch_execute(&tell).await.expect("told");
        while !heard.next().await.leases {}
        late
    }

    /// Settles tasks and takes others.
    async fn exchange(&self, settle: impl Iterator<Item = Settle>) -> Vec<Task> {
        let pick = Pick::Next {
            lanes: self.lanes.clone(),
            limit: BATCH,
        };
        let exchange = Exchange {
            commits: settle
                .map(|settle| Commit::of(Write::Settle(settle)))
                .collect(),
            claim: Some(Claim {
                pick,
                worker: self.worker.clone(),
                lease: Duration::from_secs(600),
                request: self.ids.request(),
            }),
            renew: None,
        };
        let exchanged = self.store.exchange(exchange).await.expect("an exchange");
        for answer in exchanged.commits {
            answer.expect("a receipt");
        }
        exchanged.claimed.expect("asked").expect("a claim").tasks
    }

    /// Waits until somebody looks for what was skipped. Nothing is left meanwhile.
    async fn looks_below(&self) {
        let watcher = connect(&url()).await;
        let sql = "SELECT 1 FROM pg_stat_activity WHERE query_start > $2 \
                   AND query LIKE '%\"' || $1 || '\".%runnable_at < f.floor%'";
        let now = watcher.query_one("SELECT clock_timestamp()", &[]).await;
        let now: std::time::SystemTime = now.expect("a moment").get(0);
        for _ in 0..5_000 {
            assert!(self.exchange(std::iter::empty()).await.is_empty());
            let looks = watcher.query(sql, &[&self.schema, &now]).await;
            if !looks.expect("an answer").is_empty() {
                return;
            }
            self.clock.sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody looks for what was skipped");
    }

    /// Gives a task back without telling anybody, and waits until it is taken again.
    async fn is_found(&self, task: &Task, heard: &mut Listener) {
        self.looks_below().await;
        while heard.next().now_or_never().is_some() {}
        let release = settle(task, Ending::Release { reason: None });
        let release = vec![Commit::of(Write::Settle(release))];
        let answers = self.silent.commit(release).await;
        answers[0].as_ref().expect("a receipt");
        for _ in 0..5_000 {
            if let [found] = &self.exchange(std::iter::empty()).await[..] {
                assert_eq!(found.id(), task.id());
                self.was_woken(heard).await;
                return;
            }
            self.clock.sleep(Duration::from_millis(20)).await;
        }
        panic!("{} is not found", task.id());
    }

    /// Whoever waits is woken at about the same time.
    async fn was_woken(&self, heard: &mut Listener) {
        for _ in 0..500 {
            if (heard.next().now_or_never()).is_some_and(|wake| wake.any_lane) {
                return;
            }
            self.clock.sleep(Duration::from_millis(20)).await;
        }
        panic!("nobody was woken");
    }

    /// How many entries of the index of what waits have been read.
    async fn reads(&self) -> i64 {
        let sql = "SELECT idx_tup_read FROM pg_stat_all_indexes \
                   WHERE schemaname = $1 AND indexrelname = 'tasks_ready'";
        let row = self.stranger.query_one(sql, &[&self.schema]).await;
        row.expect("an index").get(0)
    }
}

fn url() -> String {
    let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
    url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets")
}

#[allow(clippy::disallowed_methods)]
async fn connect(url: &str) -> Client {
    let (client, connection) = (url.parse::<plimsoll_store_postgres::tokio_postgres::Config>())
        .expect("a URL")
        .connect(NoTls)
        .await
        .expect("a server");
    tokio::spawn(async move { drop(connection.await) });
    client
}

fn settle(task: &Task, how: Ending) -> Settle {
    let holder = task.holder().expect("it is held");
    Settle { holder, how }
}

#[tokio::test]
async fn claims_do_not_read_what_was_claimed_before_again_and_again() {
    beside_a_snapshot(World::new("plimsoll_snapshot", 1).await).await;
}

#[tokio::test]
async fn nor_do_claims_of_several_lanes() {
    beside_a_snapshot(World::new("plimsoll_snapshots", 3).await).await;
}

async fn beside_a_snapshot(world: World) {
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    world.stranger.batch_execute(snapshot).await.expect("one");
    world.submit(TASKS).await;
    let mut held = world.exchange(std::iter::empty()).await;
    let mut untold = vec![held.remove(0)];
    let mut early = held.split_off(BATCH - 3);
    let (mut done, mut heard) = (BTreeSet::<TaskId>::new(), world.store.wakeups());
    while done.len() < TASKS - 2 {
        if untold.len() < 2 && done.len() > TASKS / 2 {
            untold.extend(held.pop());
        }
        // Late, two of the first are given back, by this process and by another one: they are before all
        // that is left, and come next.
        let is_late = done.len() > TASKS * (5 - early.len()) / 5;
        let late = early.pop_if(|_| is_late);
        if let Some(task) = &late {
            let release = Ending::Release { reason: None };
            let release = vec![Commit::of(Write::Settle(settle(task, release)))];
            let stores = [&world.store, &world.other];
            let answers = stores[early.len()].commit(release).await;
            answers[0].as_ref().expect("a receipt");
            while heard.next().await.lanes.is_empty() {}
        }
        let completed = held
            .iter()
            .map(|task| settle(task, Ending::Complete { result: None }));
        let taken = world.exchange(completed).await;
        for task in held.drain(..) {
            assert!(done.insert(task.id()), "{} was done twice", task.id());
        }
        if let Some(late) = late {
            assert_eq!(taken.first().map(Task::id), Some(late.id()));
        }
        if taken.is_empty() {
            world.clock.sleep(Duration::from_millis(20)).await;
        }
        held = taken;
    }
    assert!(early.is_empty());
    // What nobody was told of is found all the same, from the middle of what is gone and from its begin.
    assert_eq!(untold.len(), 2);
    for task in untold.iter().rev() {
        world.is_found(task, &mut heard).await;
    }
    // What comes late comes before what was submitted after it.
    let late = world.submit_late(&mut heard).await;
    let last = Commit::of(Write::Submit(Box::new(world.new_task())));
    assert!(world.store.commit(vec![last]).await[0].is_ok());
    let taken = world.exchange(std::iter::empty()).await;
    assert_eq!((taken.len(), taken[0].id()), (2, late));
    world
        .stranger
        .batch_execute("COMMIT")
        .await
        .expect("an end");
    let reads = world.reads().await;
    assert!(
        reads < READS_EACH_MAX * TASKS as i64,
        "{reads} entries were read"
    );
}
