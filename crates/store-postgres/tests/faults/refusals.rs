//! What a server refuses, and what there is too little of.

use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::error::Applied;
use plimsoll_core::store::Commit;
use plimsoll_core::{Error, Result, Store};
use plimsoll_store_postgres::tokio_postgres::NoTls;
use plimsoll_store_postgres::{Config, Postgres, migrate};

use crate::server::Server;
use crate::world::{World, assert_told, is_well, one, put, within};

async fn open(config: &Config) -> Result<()> {
    let open = Postgres::open(config.clone());
    within(10, "open", open).await.map(drop)
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_database_are_named() {
    let server = Server::start("");
    let world = World::on(&server.url).await;
    let mut config = world.config.clone();
    config.server.password("wrong");
    let words = "refuses the user or password: check the URL";
    assert_told(open(&config).await, Applied::No, words);
    let mut config = world.config.clone();
    config.server.dbname("nowhere");
    let words = "there is no such database: check the URL of the store, or create it";
    assert_told(open(&config).await, Applied::No, words);
}

#[tokio::test]
async fn a_schema_that_is_missing_too_old_or_too_new_is_named() {
    let mut world = World::shared().await;
    let stranger = world.stranger().await;
    let run = async |sql: &str| stranger.batch_execute(sql).await.expect(sql);
    run("DROP SCHEMA IF EXISTS fault_schema CASCADE").await;
    world.config.schema = "fault_schema".into();
    assert_told(
        open(&world.config).await,
        Applied::No,
        "run `plimsoll migrate`",
    );
    migrate(&world.config).await.expect("migrated");
    let store = world.open().await;
    run("DELETE FROM fault_schema.migrations WHERE version > 1").await;
    assert_told(
        open(&world.config).await,
        Applied::No,
        "run `plimsoll migrate`",
    );
    run("INSERT INTO fault_schema.migrations (version) VALUES (99)").await;
    match open(&world.config).await {
        Err(Error::Unsupported(words)) => assert!(words.contains("use a newer program")),
        other => panic!("{other:?}"),
    }
    // Somebody drops it under a program that is at work.
    run("DROP SCHEMA fault_schema CASCADE").await;
    let answer = one(&store, put("gone")).await;
    assert_told(answer, Applied::No, "run `plimsoll migrate`");
    migrate(&world.config).await.expect("migrated");
    let again = world.open().await;
    is_well(&again).await;
}

#[tokio::test]
async fn a_server_without_a_free_connection_says_so_until_one_is_free() {
    let server = Server::start("-c max_connections=10 -c superuser_reserved_connections=1");
    let mut world = World::on(&server.url).await;
    // Nobody connects again by itself.
    world.config.listen = false;
    let store = world.open().await;
    let stranger = world.stranger().await;
    let killed = world.kill_connections(&stranger).await;
    assert!(killed > 0, "the store has connections to lose");
    // What is killed keeps its place for a moment: a refusal alone does not say that all are taken.
    let fill = async {
        let mut others = Vec::new();
        while others.len() < 9 {
            match world.config.server.connect(NoTls).await {
                Ok(one) => others.push(one),
                Err(_) => SystemClock::new().sleep(Duration::from_millis(10)).await,
            }
        }
        others
    };
    let others = within(10, "to take all connections", fill).await;
    let answer = one(&store, put("full")).await;
    assert_told(answer, Applied::No, "takes no more connections");
    drop(others);
    is_well(&store).await;
}

#[tokio::test]
async fn own_connections_that_are_all_busy_are_named_and_used_again() {
    let mut world = World::shared().await;
    world.config.guests = 1;
    let store = world.open().await;
    let (taken, is_taken) = tokio::sync::oneshot::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let slow = store.with_advisory_lock(1, async |_| {
        taken.send(()).ok();
        ended.await.ok();
        Ok::<_, Error>(())
    });
    let meanwhile = async {
        is_taken.await.expect("the lock is taken");
        let second = store.try_with_advisory_lock(2, async |_| Ok::<_, Error>(()));
        let answer = within(10, "an answer", second).await;
        assert_told(
            answer,
            Applied::No,
            "all 1 connections were busy for 2s: open with more",
        );
        // Others have connections of their own.
        one(&store, put("beside")).await.expect("a commit");
        store.ping().await.expect("an answer");
        end.send(()).ok();
    };
    let (slow, ()) = futures::future::join(slow, meanwhile).await;
    slow.expect("it has ended");
    let again = store.try_with_advisory_lock(2, async |_| Ok::<_, Error>(()));
    assert_eq!(again.await.expect("a connection"), Some(()));
}

/// Commits of so many new records each.
fn puts(commits: usize, records: usize) -> Vec<Commit> {
    let puts = |n| {
        let put = |r| put(&format!("{n} {r}")).writes.remove(0);
        (0..records).map(put).fold(Commit::new(), Commit::write)
    };
    (0..commits).map(puts).collect()
}

#[tokio::test]
async fn many_new_records_do_not_need_more_locks_than_there_are() {
    // There is room for some thousands, as there is by default.
    let server = Server::start("-c max_connections=60");
    let world = World::on(&server.url).await;
    let store = world.open().await;
    let answers = store.commit(puts(1_000, 10)).await;
    answers
        .into_iter()
        .for_each(|answer| drop(answer.expect("a receipt")));
}

#[tokio::test]
async fn a_server_without_room_for_locks_says_so_to_whom_it_concerns() {
    let server = Server::start("-c max_connections=20 -c max_locks_per_transaction=10");
    let mut world = World::on(&server.url).await;
    world.config.limits.commit_writes_max = 1_000;
    let (store, stranger) = (world.open().await, world.stranger().await);
    is_well(&store).await;
    // A stranger has all locks but about 200.
    let mut taken = 0_i64;
    let take = "SELECT pg_advisory_lock($1)";
    while stranger.execute(take, &[&taken]).await.is_ok() {
        taken += 1;
    }
    let give_back = "SELECT pg_advisory_unlock(n) FROM generate_series(1, 200) n";
    stranger.execute(give_back, &[]).await.expect("given back");
    let commits = [puts(10, 10), puts(1, 300), puts(9, 10)].concat();
    let answers = store.commit(commits).await;
    for (place, answer) in answers.into_iter().enumerate() {
        match place {
            10 => assert_told(answer, Applied::No, "raise max_locks_per_transaction"),
            _ => drop(answer.expect("a receipt")),
        }
    }
    drop(stranger);
    is_well(&store).await;
}
