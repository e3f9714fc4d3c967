//! A namespace on a real server, and strangers who are connected to it, too.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::ids::Ids;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Claim, Commit, Pick, Put, Receipt, Write};
use plimsoll_core::task::{Lane, NewTask, Task, WorkerId};
use plimsoll_core::{Error, Key, Name, Namespace, Result, Store};
use plimsoll_store_postgres::tokio_postgres::{self, Client, NoTls};
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};

use crate::proxy::Proxy;

/// How soon all is well after the cause of a fault has ended, in seconds.
pub(crate) const WELL_WITHIN: u64 = 5;
/// Work that is done right after a fault may take so many times longer than the same work takes
/// without one, beside what it takes to be well: others are busy on this machine, now more and now less.
const SPREAD: u32 = 4;
/// By then all is well at the latest, on a machine that others begin to use meanwhile: before a store tries again by itself
/// what it has remembered as stuck.
const WELL_AT_LAST: Duration = Duration::from_secs(9);
/// How long a server may say nothing, so that tests do not take long.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(2);
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) namespace: Namespace,
    pub(crate) ids: Ids,
}

impl World {
    /// On the server that all tests share.
    pub(crate) async fn shared() -> Self {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
        Self::on(&url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets")).await
    }

    pub(crate) async fn on(url: &str) -> Self {
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let name = ids.task().to_string();
        let mut config = Config {
            call_timeout: CALL_TIMEOUT,
            lock_timeout: LOCK_TIMEOUT,
            unsafe_durability: true,
            ..Config::new(url).expect("a URL")
        };
        config.server.application_name(&name);
        migrate(&config).await.expect("migrated");
        let namespace = Namespace::new(name).expect("a namespace");
        Self {
            config,
            namespace,
            ids,
        }
    }

    /// Another process.
    pub(crate) async fn open(&self) -> PostgresStore {
        self.open_with(&self.config).await
    }

    pub(crate) async fn open_with(&self, config: &Config) -> PostgresStore {
        let open = Postgres::open(config.clone());
        let postgres = within(10, "open", open).await.expect("open");
        let store = postgres.namespace(self.namespace.clone()).await;
        store.expect("a namespace")
    }

    /// A way to the server that can be troubled, and how to take it.
    pub(crate) async fn proxy(&self) -> (Proxy, Config) {
        let port = self.config.server.get_ports().first();
        let port = *port.expect("the URL names a port");
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let proxy = Proxy::start(server).await.expect("a proxy");
        let config = self.config_at(proxy.port);
        (proxy, config)
    }

    /// The same, at another port of this machine.
    fn config_at(&self, port: u16) -> Config {
        let from = &self.config.server;
        let mut server = tokio_postgres::Config::new();
        server.host("127.0.0.1").port(port);
        server.user(from.get_user().unwrap_or("postgres"));
        server.password(from.get_password().unwrap_or_default());
        server.dbname(from.get_dbname().unwrap_or("postgres"));
        server.application_name(from.get_application_name().unwrap_or_default());
        server.connect_timeout(CALL_TIMEOUT);
        Config {
            server,
            ..self.config.clone()
        }
    }

    /// A connection that has nothing to do with the store.
    pub(crate) async fn stranger(&self) -> Client {
        let mut server = self.config.server.clone();
        server.application_name("stranger");
        let (client, connection) = server.connect(NoTls).await.expect("connected");
        #[allow(clippy::disallowed_methods, reason = "it ends with the client")]
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// The connections of this test, and what each is doing.
    pub(crate) async fn connections(&self, stranger: &Client) -> Vec<String> {
        let sql = "SELECT concat_ws(' ', pid, application_name, state, now() - state_change, query) \
                   FROM pg_stat_activity WHERE application_name LIKE $1 || '%'";
        let rows = stranger.query(sql, &[&self.namespace.as_str()]).await;
        let rows = rows.expect("connections");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Ends all connections of this test, from the side of the server. Answers how many it ended.
    pub(crate) async fn kill_connections(&self, stranger: &Client) -> usize {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name LIKE $1 || '%'";
        let killed = stranger.query(sql, &[&self.namespace.as_str()]).await;
        // One that was gone already is answered with `false`.
        let killed = killed.expect("killed");
        killed.iter().filter(|row| row.get(0)).count()
    }

    /// Ends all connections of this test as soon as it has one again.
    pub(crate) async fn kill_some(&self, stranger: &Client) {
        let killed = async || self.kill_connections(stranger).await > 0;
        until(WELL_WITHIN, "a connection that can be ended", killed).await;
    }

    pub(crate) fn task(&self) -> NewTask {
        NewTask::new(self.ids.task(), lane(), "payload")
    }

    pub(crate) fn claim(&self, limit: usize) -> Claim {
        Claim {
            pick: Pick::Next {
                lanes: vec![lane()],
                limit,
            },
            worker: WorkerId {
                name: Name::new("worker").expect("a name"),
                incarnation: self.ids.incarnation(),
            },
            lease: Duration::from_secs(60),
            request: self.ids.request(),
        }
    }
}

pub(crate) fn lane() -> Lane {
    Lane::new("queue", "kind").expect("a lane")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("a key")
}

pub(crate) fn put(name: &str) -> Commit {
    let fields = fields([("f", "v")]).expect("fields");
    Commit::of(Write::Put(Put::new(key(name), fields)))
}

pub(crate) fn submit(task: NewTask) -> Commit {
    Commit::of(Write::Submit(Box::new(task)))
}

pub(crate) async fn one(store: &dyn Store, commit: Commit) -> Result<Receipt> {
    let done = store.commit(vec![commit]);
    within(20, "a commit", done).await.remove(0)
}

/// Submits and claims so many tasks.
pub(crate) async fn claimed(world: &World, store: &dyn Store, count: usize) -> Vec<Task> {
    let tasks = (0..count).map(|_| world.task()).collect();
    claimed_of(world, store, tasks).await
}

/// Submits these tasks and claims them.
pub(crate) async fn claimed_of(world: &World, store: &dyn Store, tasks: Vec<NewTask>) -> Vec<Task> {
    let count = tasks.len();
    let commits = tasks.into_iter().map(submit).collect();
    for receipt in store.commit(commits).await {
        receipt.expect("submitted");
    }
    let claimed = store.claim(world.claim(count)).await;
    let tasks = claimed.expect("a claim").tasks;
    assert_eq!(tasks.len(), count);
    tasks
}

/// What is told to who meets a fault: whether it may have happened, and in words what to do.
#[track_caller]
pub(crate) fn assert_told<T: std::fmt::Debug>(answer: Result<T>, applied: Applied, words: &str) {
    match answer {
        Err(Error::Unavailable(told)) => {
            let Unavailable { applied: is, cause } = &told;
            assert!(*is == applied && cause.contains(words), "{told:?}");
        }
        other => panic!("{words} was expected: {other:?}"),
    }
}

/// How many times longer a step may take than it should: others may be busy on this machine.
const PATIENCE: u32 = 12;

/// Fails the test if something takes far longer than it should. Says so if it takes longer at all:
/// see [`assert_soon`] for what must not.
pub(crate) async fn within<T>(seconds: u64, what: &str, step: impl Future<Output = T>) -> T {
    let (clock, limit) = (SystemClock::new(), Duration::from_secs(seconds));
    tokio::select! {
        biased;
        done = step => {
            if clock.monotonic() > limit {
                println!("{what} took {:?}, not {limit:?}", clock.monotonic());
            }
            done
        }
        () = SystemClock::new().sleep(limit * PATIENCE) => {
            panic!("{what} takes longer than {PATIENCE} times {limit:?}")
        }
    }
}

/// Asks again and again, for what nobody is told of.
pub(crate) async fn until(seconds: u64, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let clock = SystemClock::new();
    let asking = async {
        while !holds().await {
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    within(seconds, what, asking).await;
}

/// Fails if work that took so long after a fault shows that it was not over soon, when the same
/// work takes `usual` without one. A machine that is busy makes both slow.
pub(crate) fn assert_soon(took: Duration, usual: Duration) {
    println!("well after {took:?}, of which {usual:?} are usual");
    let limit = WELL_AT_LAST + usual * SPREAD;
    assert!(
        took <= limit,
        "{took:?} until all was well, where {usual:?} are usual"
    );
}

/// Whether work that took so long was done at full speed, when it takes `usual` at best.
pub(crate) fn is_full_speed(took: Duration, usual: Duration) -> bool {
    took <= Duration::from_millis(200) + usual * SPREAD
}

/// That calls succeed again, at once and one after another, soon after a cause has ended.
pub(crate) async fn is_well(store: &dyn Store) {
    let clock = SystemClock::new();
    let calls = async {
        for _ in 0..20 {
            while one(store, put("well")).await.is_err() {}
        }
        let took = clock.monotonic();
        for _ in 0..20 {
            one(store, put("well")).await.expect("a commit");
            store.ping().await.expect("an answer");
        }
        assert_soon(took, clock.monotonic() - took);
    };
    within(WELL_WITHIN, "being well again", calls).await;
}
