//! Advisory locks around work of the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_core::{Error, Namespace};
use plimsoll_store_postgres::Postgres;
use plimsoll_store_postgres::tokio_postgres::Transaction;
use tokio::sync::{Notify, oneshot};

use crate::server::{Server, until};

/// How many advisory locks the transaction holds.
async fn held(transaction: &Transaction<'_>) -> i64 {
    let sql =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
    transaction.query_one(sql, &[]).await.expect("locks").get(0)
}

#[tokio::test]
async fn one_at_a_time_works_and_what_it_writes_is_written() {
    let server = Arc::new(Server::new("advisory").await);
    let stranger = server.stranger().await;
    let table = format!("counter_{}", server.ids.task().as_u128());
    let create = format!("CREATE TABLE {table} AS SELECT 0 AS n");
    stranger.batch_execute(&create).await.expect("a table");
    let running = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (server, running, table) = (server.clone(), running.clone(), table.clone());
        #[allow(clippy::disallowed_methods)]
        tasks.push(tokio::spawn(async move {
            let store = server.open().await;
            for _ in 0..5 {
                let work = async |transaction: &Transaction<'_>| {
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    let read = format!("SELECT n FROM {table}");
                    let n: i32 = transaction.query_one(&read, &[]).await.expect("n").get(0);
                    let write = format!("UPDATE {table} SET n = {}", n + 1);
                    transaction.batch_execute(&write).await.expect("written");
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<(), Error>(())
                };
                store.with_advisory_lock(7, work).await.expect("locked");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let read = format!("SELECT n FROM {table}");
    let n: i32 = stranger.query_one(&read, &[]).await.expect("n").get(0);
    assert_eq!(n, 40);
    stranger
        .batch_execute(&format!("DROP TABLE {table}"))
        .await
        .expect("gone");
}

#[tokio::test]
async fn who_tries_is_told_and_other_keys_and_namespaces_are_free() {
    let server = Server::new("try").await;
    let store = server.open().await;
    let postgres = Postgres::open(server.config.clone()).await.expect("open");
    let other = postgres.namespace(Namespace::new(format!("{}x", server.namespace)).expect("name"));
    let other = other.await.expect("a namespace");
    let nothing = async |_: &Transaction<'_>| Ok::<_, Error>(());
    store
        .with_advisory_lock(1, async |transaction| {
            assert_eq!(held(transaction).await, 1);
            assert_eq!(store.try_with_advisory_lock(1, nothing).await?, None);
            assert_eq!(store.try_with_advisory_lock(2, nothing).await?, Some(()));
            assert_eq!(other.try_with_advisory_lock(1, nothing).await?, Some(()));
            Ok::<_, Error>(())
        })
        .await
        .expect("locked");
    assert_eq!(
        store
            .try_with_advisory_lock(1, nothing)
            .await
            .expect("tried"),
        Some(())
    );
}

#[tokio::test]
async fn work_that_fails_leaves_nothing_and_no_lock() {
    let server = Server::new("fails").await;
    let store = server.open().await;
    let table = format!("failed_{}", server.ids.task().as_u128());
    let failed = store
        .with_advisory_lock(3, async |transaction| {
            let create = format!("CREATE TABLE {table} (n int)");
            transaction.batch_execute(&create).await.expect("created");
            Err::<(), _>(Error::Closed)
        })
        .await;
    assert_eq!(failed, Err(Error::Closed));
    let found = store
        .with_advisory_lock(3, async |transaction| {
            let sql = "SELECT to_regclass($1) IS NULL";
            Ok::<bool, Error>(
                transaction
                    .query_one(sql, &[&table])
                    .await
                    .expect("asked")
                    .get(0),
            )
        })
        .await;
    assert_eq!(found, Ok(true));
}

#[tokio::test]
async fn work_that_is_dropped_frees_the_lock_and_its_connection_is_not_used_again() {
    let server = Server::new("dropped").await;
    let (store, other) = (server.open().await, server.open().await);
    let (entered, inside) = oneshot::channel();
    let never = Notify::new();
    let work = store.with_advisory_lock(4, async |_| {
        entered.send(()).expect("somebody waits");
        never.notified().await;
        Ok::<(), Error>(())
    });
    {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            _ = &mut work => panic!("it waits for ever"),
            told = inside => told.expect("inside"),
        }
    }
    let nothing = async |_: &Transaction<'_>| Ok::<_, Error>(());
    other.with_advisory_lock(4, nothing).await.expect("free");
    let clean = store.with_advisory_lock(4, async |transaction| {
        Ok::<_, Error>(held(transaction).await)
    });
    assert_eq!(clean.await, Ok(1));
}

#[tokio::test]
async fn who_no_longer_waits_is_not_given_the_lock() {
    let server = Server::new("waiter").await;
    let (holder, waiter) = (server.open().await, server.open().await);
    let stranger = server.stranger().await;
    let name = server
        .config
        .server
        .get_application_name()
        .expect("a name")
        .to_owned();
    let waiting = async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 \
                   AND wait_event = 'advisory'";
        stranger
            .query_one(sql, &[&name])
            .await
            .expect("asked")
            .get::<_, i64>(0)
    };
    let nothing = async |_: &Transaction<'_>| Ok::<_, Error>(());
    holder
        .with_advisory_lock(5, async |_| {
            {
                let mut wait = std::pin::pin!(waiter.with_advisory_lock(5, nothing));
                tokio::select! {
                    _ = &mut wait => panic!("the lock is held"),
                    () = until("nobody waits", async || waiting().await == 1) => {}
                }
            }
            until("still waiting", async || waiting().await == 0).await;
            Ok::<_, Error>(())
        })
        .await
        .expect("held");
}

#[tokio::test]
async fn work_that_keeps_an_error_to_itself_is_not_told_that_all_is_well() {
    let server = Server::new("swallowed").await;
    let (store, stranger) = (server.open().await, server.stranger().await);
    let table = format!("swallowed_{}", server.ids.task().as_u128());
    let create = format!("CREATE TABLE {table} (n integer)");
    stranger.batch_execute(&create).await.expect("a table");
    let insert = format!("INSERT INTO {table} VALUES (1)");
    let work = async |transaction: &Transaction<'_>| {
        transaction.batch_execute(&insert).await.expect("written");
        let failed = transaction.batch_execute("SELECT 1 / 0").await;
        assert!(failed.is_err());
        Ok::<(), Error>(())
    };
    match store.with_advisory_lock(1, work).await {
        Err(Error::Unavailable(told)) => {
            assert!(
                told.cause.contains("a statement before has failed"),
                "{told}"
            );
        }
        other => panic!("{other:?}"),
    }
    let count = format!("SELECT count(*) FROM {table}");
    let count: i64 = (stranger.query_one(&count, &[]).await)
        .expect("a count")
        .get(0);
    assert_eq!(count, 0);
    let drop = format!("DROP TABLE {table}");
    stranger.batch_execute(&drop).await.expect("gone");
}
