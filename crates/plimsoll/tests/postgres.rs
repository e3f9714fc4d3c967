//! Opening databases by URL.

#![cfg(feature = "postgres")]
// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use plimsoll::clock::SystemClock;
use plimsoll::record::fields;
use plimsoll::store::{Put, Write};
use plimsoll::{Error, Ids, Key, Namespace, Plimsoll, Result, Store, StoreExt};
use tokio_postgres::NoTls;

/// A schema that nobody else has, and the URL of it.
struct Schema {
    server: String,
    name: String,
}

impl Schema {
    fn new() -> Self {
        let server = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
        let chance = Ids::random(Arc::new(SystemClock::new())).below(u64::MAX);
        Self {
            server: server.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets"),
            name: format!("facade_{chance:016x}"),
        }
    }

    fn url(&self, more: &str) -> String {
        let joint = if self.server.contains('?') { '&' } else { '?' };
        let options = format!("schema={}&unsafe_durability=accept{more}", self.name);
        format!("{}{joint}{options}", self.server)
    }

    async fn sql(&self, sql: &str) -> Vec<String> {
        let connected = tokio_postgres::connect(&self.server, NoTls).await;
        let (client, connection) = connected.expect("a server");
        let rows = tokio::select! {
            rows = client.simple_query(sql) => rows.expect("the server does it"),
            _ = connection => panic!("the connection ended"),
        };
        let values = rows.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        values.map(String::from).collect()
    }

    async fn drop(self) {
        self.sql(&format!("DROP SCHEMA {} CASCADE", self.name))
            .await;
    }
}

async fn open(url: &str) -> Result<Arc<dyn Store>> {
    Plimsoll::open(url)?
        .namespace(Namespace::new("orders")?)
        .await
}

fn put(key: &Key) -> Result<Write> {
    Ok(Write::Put(Put::new(key.clone(), fields([("f", "v")])?)))
}

#[tokio::test]
async fn the_first_who_opens_a_database_makes_its_schema() -> Result<()> {
    let schema = Schema::new();
    let refused = open(&schema.url("&migrate=off")).await.err();
    let Some(Error::Unavailable(unavailable)) = refused else {
        panic!("a schema out of nothing: {refused:?}");
    };
    assert!(
        unavailable.cause.contains("plimsoll migrate"),
        "{unavailable}"
    );
    let key = Key::new("k")?;
    open(&schema.url("")).await?.write(put(&key)?).await?;
    let again = open(&schema.url("&migrate=off&listen=off&prepare=off&connections=2")).await?;
    assert!(again.record(&key).await?.is_some());
    assert!(!again.capabilities().remote_wakeups);
    schema.drop().await;
    Ok(())
}

#[tokio::test]
async fn namespaces_of_one_database_share_its_connections() -> Result<()> {
    let schema = Schema::new();
    let url = schema.url(&format!("&application_name={}&connections=3", schema.name));
    let plimsoll = Plimsoll::open(&url)?;
    let mut stores = Vec::new();
    for n in 0..20 {
        let store = plimsoll.namespace(Namespace::new(format!("n{n}"))?).await?;
        store.write(put(&Key::new("k")?)?).await?;
        stores.push(store);
    }
    let count = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'",
        schema.name
    );
    let connections: usize = schema.sql(&count).await[0].parse().expect("a number");
    // One more listens.
    assert!((1..=4).contains(&connections), "{connections}");
    drop((plimsoll, stores));
    schema.drop().await;
    Ok(())
}

/// Each call alone would be a transaction of its own.
#[tokio::test]
async fn concurrent_callers_share_transactions() -> Result<()> {
    let schema = Schema::new();
    let store = open(&schema.url("")).await?;
    let keys = (0..64).map(|n| Key::new(format!("k{n}")));
    let writes = keys.map(|key| put(&key?));
    let writes: Result<Vec<_>> = writes.collect();
    let written = futures::future::join_all(writes?.into_iter().map(|write| store.write(write)));
    for receipt in written.await {
        receipt?;
    }
    let count = format!(
        "SELECT count(DISTINCT xmin::text) FROM {}.records",
        schema.name
    );
    let transactions: usize = schema.sql(&count).await[0].parse().expect("a number");
    assert!(transactions <= 8, "{transactions}");
    drop(store);
    schema.drop().await;
    Ok(())
}
