//! Entries of declared indexes carry small records. That they are as these are, whatever is written, is a matter of
//! the conformance suite.

use std::time::Duration;

use plimsoll_core::record::{Index, Record, fields};
use plimsoll_core::store::{Compact, DropIndex, Merge, Put, Range, Scan, Write};
use plimsoll_core::{Error, Key, Name, Prefix, Store, StoreExt};
use plimsoll_store_postgres::PostgresStore;
use plimsoll_store_postgres::tokio_postgres::Client;

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

async fn put(store: &dyn Store, key: &str, bytes: usize) {
    let fields = fields([("n", "1".into()), ("padding", "x".repeat(bytes))]).expect("fields");
    let put = Put::new(Key::new(key).expect("a key"), fields);
    store.write(Write::Put(put)).await.expect("written");
}

async fn range(store: &dyn Store) -> Result<Vec<Record>, Error> {
    let range = Range::new(Name::new("n")?);
    let scan = Scan::new(Prefix::new("a.")?, 100).range(range);
    Ok(store.scan(scan).await?.rows)
}

/// Changes the row of one record, or its entry, behind the store's back.
async fn tamper(server: &Server, stranger: &Client, statement: &str, key: &str) {
    let schema = &server.config.schema;
    let statement = statement.replace("plimsoll.", &format!("{schema}."));
    let ours = format!("(SELECT ns FROM {schema}.namespaces WHERE name = $1)");
    let statement = statement.replace(":ours", &ours);
    let namespace = server.namespace.as_str();
    let changed = stranger.execute(&statement, &[&namespace, &key]).await;
    assert_eq!(changed.expect("changed"), 1, "{statement}");
}

#[tokio::test]
async fn a_range_of_small_records_reads_nothing_but_their_entries() {
    let server = Server::new("carried").await;
    let (store, stranger) = (indexed(&server).await, server.stranger().await);
    put(&store, "a.small", 100).await;
    put(&store, "a.large", 1_000).await;
    let before = range(&store).await.expect("two records");
    assert_eq!(before.len(), 2);
    let spoil = "UPDATE plimsoll.records SET fields = '[]' WHERE ns = :ours AND key = $2";
    tamper(&server, &stranger, spoil, "a.small").await;
    assert_eq!(range(&store).await.expect("as before"), before);
    tamper(&server, &stranger, spoil, "a.large").await;
    let Err(Error::Corrupt(what)) = range(&store).await else {
        panic!("it is looked up");
    };
    assert!(what.contains("a.large"), "{what}");
    let remove = "DELETE FROM plimsoll.records WHERE ns = :ours AND key = $2";
    tamper(&server, &stranger, remove, "a.large").await;
    let Err(Error::Corrupt(what)) = range(&store).await else {
        panic!("it is not there");
    };
    assert!(what.contains("a.large"), "{what}");
}

/// As all do that were made before entries carried records.
#[tokio::test]
async fn an_entry_that_carries_nothing_carries_its_record_once_that_is_written() {
    let server = Server::new("not carried").await;
    let (store, stranger) = (indexed(&server).await, server.stranger().await);
    put(&store, "a.small", 100).await;
    let before = range(&store).await.expect("a record");
    let empty = "UPDATE plimsoll.index_entries \
        SET fields = NULL, revision = NULL, modified_at = NULL, expires_at = NULL \
        WHERE key = $2 AND idx IN (SELECT idx FROM plimsoll.indexes WHERE ns = :ours)";
    tamper(&server, &stranger, empty, "a.small").await;
    assert_eq!(range(&store).await.expect("looked up"), before);
    let touched = fields([("step", "2")]).expect("fields");
    let merge = Merge::new(Key::new("a.small").expect("a key")).set(touched);
    store.write(Write::Merge(merge)).await.expect("written");
    let written = range(&store).await.expect("a record");
    assert_ne!(written, before);
    let spoil = "UPDATE plimsoll.records SET fields = '[]' WHERE ns = :ours AND key = $2";
    tamper(&server, &stranger, spoil, "a.small").await;
    assert_eq!(range(&store).await.expect("carried"), written);
}

/// What cannot be cleared away at once, for somebody has it locked, goes later.
#[tokio::test]
async fn an_index_is_dropped_although_its_entries_cannot_go_yet() {
    let mut server = Server::new("dropped index").await;
    server.config.lock_timeout = Duration::from_millis(50);
    let (store, stranger) = (indexed(&server).await, server.stranger().await);
    put(&store, "a.small", 100).await;
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
