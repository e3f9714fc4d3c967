//! Declared indexes whose entries somebody else has locked, or whose records are gone.

use std::time::Duration;

use plimsoll_core::record::{Index, Record, fields};
use plimsoll_core::store::{Compact, DropIndex, Put, Range, Scan, Write};
use plimsoll_core::{Error, Key, Name, Prefix, Store, StoreExt};
use plimsoll_store_postgres::PostgresStore;

use crate::server::Server;

async fn indexed(server: &Server) -> PostgresStore {
    let store = server.open().await;
    let index = Index {
        prefix: Prefix::new("a.").expect("a prefix"),
        field: Name::new("n").expect("a name"),
    };
    store.ensure_index(&index).await.expect("an index");
    store
}

async fn put(store: &dyn Store, key: &str) {
    let fields = fields([("n", "1")]).expect("fields");
    let put = Put::new(Key::new(key).expect("a key"), fields);
    store.write(Write::Put(put)).await.expect("written");
}

async fn range(store: &dyn Store) -> Result<Vec<Record>, Error> {
    let range = Range::new(Name::new("n")?);
    let scan = Scan::new(Prefix::new("a.")?, 100).range(range);
    Ok(store.scan(scan).await?.rows)
}

/// Somebody has removed it by hand.
#[tokio::test]
async fn a_record_that_is_in_an_index_and_nowhere_else_is_named() {
    let server = Server::new("missing record").await;
    let (store, stranger) = (indexed(&server).await, server.stranger().await);
    put(&store, "a.one").await;
    assert_eq!(range(&store).await.expect("a record").len(), 1);
    let schema = &server.config.schema;
    let remove = format!(
        "DELETE FROM {schema}.records WHERE key = 'a.one' \
         AND ns = (SELECT ns FROM {schema}.namespaces WHERE name = $1)"
    );
    let removed = stranger
        .execute(&remove, &[&server.namespace.as_str()])
        .await;
    assert_eq!(removed.expect("removed"), 1);
    let Err(Error::Corrupt(what)) = range(&store).await else {
        panic!("it is not there");
    };
    assert!(what.contains("a.one"), "{what}");
}

/// What cannot be cleared away at once, for somebody has it locked, goes later.
#[tokio::test]
async fn an_index_is_dropped_although_its_entries_cannot_go_yet() {
    let mut server = Server::new("dropped index").await;
    server.config.lock_timeout = Duration::from_millis(50);
    let (store, stranger) = (indexed(&server).await, server.stranger().await);
    put(&store, "a.one").await;
    let index = store.indexes().await.expect("indexes").remove(0).index;
    let entries = "SELECT e.idx FROM plimsoll.index_entries e JOIN plimsoll.indexes i USING (idx) \
        JOIN plimsoll.namespaces n USING (ns) WHERE n.name = $1";
    let entries = entries.replace("plimsoll.", &format!("{}.", server.config.schema));
    let namespace = server.namespace.as_str();
    stranger.batch_execute("BEGIN").await.expect("begun");
    let lock = format!("{entries} FOR UPDATE OF e");
    let locked = stranger.query(&lock, &[&namespace]).await;
    assert_eq!(locked.expect("locked").len(), 1);
    let dropped = store.drop_index(DropIndex { index }).await;
    assert!(dropped.expect("dropped").existed);
    assert_eq!(store.indexes().await.expect("indexes"), []);
    stranger.batch_execute("COMMIT").await.expect("let go");
    let left = stranger.query(&entries, &[&namespace]).await;
    assert_eq!(left.expect("entries").len(), 1);
    let compact = Compact {
        limit: 100,
        ..Compact::default()
    };
    store.compact(compact).await.expect("compacted");
    let left = stranger.query(&entries, &[&namespace]).await;
    assert_eq!(left.expect("entries").len(), 0);
}
