//! A schema of its own, and those who hold others up in it.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::ids::Ids;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Changes, Commit, Put, Receipt, Write};
use plimsoll_core::{CommitId, Key, Namespace, Position, Store};
use plimsoll_store_postgres::tokio_postgres::{Client, NoTls};
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};

/// A schema of its own.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) ids: Ids,
    pub(crate) namespace: Namespace,
}

impl Server {
    pub(crate) async fn new() -> Self {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
        let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let mut config = Config::new(&url).expect("a URL");
        config.schema = format!("order {}", ids.task());
        config.unsafe_durability = true;
        config.lock_timeout = Duration::from_secs(300);
        config.server.application_name(&config.schema);
        migrate(&config).await.expect("a schema");
        let namespace = Namespace::new("order").expect("a namespace");
        Self {
            config,
            ids,
            namespace,
        }
    }

    /// A handle with connections of its own, as another process would have.
    pub(crate) async fn open(&self) -> PostgresStore {
        let postgres = Postgres::open(self.config.clone()).await.expect("open");
        let store = postgres.namespace(self.namespace.clone()).await;
        store.expect("a namespace")
    }

    pub(crate) async fn stranger(&self) -> Client {
        let mut server = self.config.server.clone();
        server.application_name("stranger");
        let (client, connection) = server.connect(NoTls).await.expect("connected");
        #[allow(clippy::disallowed_methods)]
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// Runs a statement that names the schema as `plimsoll`.
    pub(crate) async fn run(&self, client: &Client, text: &str) {
        let text = text.replace("plimsoll.", &format!("\"{}\".", self.config.schema));
        client.batch_execute(&text).await.expect("done");
    }

    /// The text of a function of the schema.
    pub(crate) async fn function(&self, function: &str) -> String {
        let client = self.stranger().await;
        let name = format!("\"{}\".{function}", self.config.schema);
        let found = "SELECT pg_get_functiondef($1::text::regproc)";
        let row = client.query_one(found, &[&name]).await;
        row.expect("a function").get(0)
    }

    /// Replaces a function of the schema.
    pub(crate) async fn change(&self, function: &str, change: impl Fn(String) -> String) {
        let text = self.function(function).await;
        let changed = change(text.clone());
        assert_ne!(changed, text, "{function} is not what it was");
        self.run(&self.stranger().await, &changed).await;
    }

    pub(crate) async fn drop(self) {
        let client = self.stranger().await;
        let text = format!("DROP SCHEMA \"{}\" CASCADE", self.config.schema);
        client.batch_execute(&text).await.expect("dropped");
    }

    pub(crate) fn put(&self, key: &str) -> Commit {
        let key = Key::new(key).expect("a key");
        let fields = fields([("n", "1")]).expect("fields");
        let mut commit = Commit::of(Write::Put(Put::new(key, fields)));
        commit.id = Some(self.ids.commit());
        commit
    }
}

/// Lets every step of a function take a while, so that others come in between.
pub(crate) fn slowed(text: String) -> String {
    let (head, body) = text.split_once("BEGIN\n").expect("a body");
    let body = body.replace(";\n", ";\n PERFORM pg_sleep(random() * 0.003);\n");
    format!("{head}BEGIN\n{body}")
}

/// Whoever inserts the receipt of this commit waits, with its position taken, until this ends.
pub(crate) async fn hold_up(server: &Server, client: &Client, commit: CommitId) {
    let uuid = commit.to_string();
    let text = format!(
        "BEGIN; INSERT INTO plimsoll.commits SELECT ns, '{uuid}', now(), NULL, '' \
         FROM plimsoll.namespaces"
    );
    server.run(client, &text).await;
}

/// Waits until somebody waits for a transaction of this client.
pub(crate) async fn until_waited_for(watcher: &Client, client: &Client) {
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
    let pid: i32 = row.expect("a pid").get(0);
    let waits =
        "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)))";
    let clock = SystemClock::new();
    loop {
        let row = watcher.query_one(waits, &[&pid]).await.expect("a look");
        if row.get(0) {
            return;
        }
        assert!(clock.monotonic() < Duration::from_secs(120), "nobody waits");
        clock.sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn position_of(receipt: &Receipt) -> Position {
    receipt.position.expect("a position")
}

pub(crate) async fn entries_after(
    store: &PostgresStore,
    after: Position,
) -> (Vec<Position>, Position) {
    let page = store.changes(Changes::after(after, 100)).await;
    let page = page.expect("a page");
    let entries = page.entries.iter().map(|entry| entry.position).collect();
    (entries, page.next)
}
