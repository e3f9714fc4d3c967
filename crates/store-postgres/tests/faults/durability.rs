//! What is acknowledged is on disk, whatever servers and roles are set to.

use plimsoll_core::error::Applied;
use plimsoll_core::store::Durability;
use plimsoll_core::{Error, Result, Store};
use plimsoll_store_postgres::tokio_postgres::Client;
use plimsoll_store_postgres::{Config, Postgres, migrate};

use crate::locks::with_trigger;
use crate::server::Server;
use crate::world::{World, assert_told, is_well, one, put, within};

/// The same, for who wants to keep what was acknowledged.
fn careful(world: &World) -> Config {
    Config {
        unsafe_durability: false,
        ..world.config.clone()
    }
}

async fn durability(world: &World, config: &Config) -> Result<Durability> {
    let postgres = within(10, "open", Postgres::open(config.clone())).await?;
    let store = postgres.namespace(world.namespace.clone()).await?;
    Ok(store.capabilities().durability)
}

#[tokio::test]
async fn a_server_that_may_lose_writes_is_refused_unless_that_is_accepted() {
    for (settings, off) in [
        ("-c fsync=off", "has fsync off"),
        (
            "-c fsync=on -c full_page_writes=off",
            "full_page_writes off",
        ),
    ] {
        let server = Server::start(settings);
        let world = World::on(&server.url).await;
        let config = careful(&world);
        assert_told(migrate(&config).await, Applied::No, off);
        assert_told(durability(&world, &config).await, Applied::No, off);
        let accepted = durability(&world, &world.config).await;
        assert_eq!(accepted.expect("open"), Durability::System);
    }
}

#[tokio::test]
async fn a_server_that_comes_back_without_fsync_is_refused_until_it_has_it_again() {
    let mut server = Server::start("-c fsync=on");
    let world = World::on(&server.url).await;
    let config = careful(&world);
    let disk = durability(&world, &config).await.expect("open");
    assert_eq!(disk, Durability::Disk);
    let store = world.open_with(&config).await;
    one(&store, put("before")).await.expect("a commit");
    server.crash();
    server.settings = "-c fsync=off".into();
    server.start_again();
    let answer = one(&store, put("meanwhile")).await;
    assert_told(answer, Applied::No, "has fsync off");
    server.crash();
    server.settings = "-c fsync=on".into();
    server.start_again();
    is_well(&store).await;
}

/// With what each write of the record was committed, in order.
async fn seen(stranger: &Client) -> Vec<String> {
    let seen = "DELETE FROM fault_durability.seen RETURNING how";
    let seen = stranger.query(seen, &[]).await.expect("what was seen");
    seen.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn whoever_commits_waits_for_the_disk_whatever_the_role_says() {
    let schema = "fault_durability";
    let body = "INSERT INTO fault_durability.seen VALUES (current_setting('synchronous_commit'));";
    let (mut world, stranger) = with_trigger(schema, body).await;
    let table = "CREATE TABLE fault_durability.seen (how text)";
    stranger.batch_execute(table).await.expect("a table");
    let gone = "DELETE FROM fault_durability.records WHERE key = 'trouble'";
    for prepare in [true, false] {
        world.config.prepare = prepare;
        for (set, kept) in [
            ("off", "on"),
            ("local", "local"),
            ("remote_write", "remote_write"),
            ("on", "on"),
            ("remote_apply", "remote_apply"),
        ] {
            let options = format!("-c synchronous_commit={set}");
            world.config.server.options(&options);
            let store = world.open().await;
            one(&store, put("trouble")).await.expect("a commit");
            assert_eq!(seen(&stranger).await, [kept], "{set}, prepared: {prepare}");
            // So does who works under an advisory lock.
            let ask = "SELECT current_setting('synchronous_commit')";
            let found = store.with_advisory_lock(1, async |transaction| {
                let row = transaction.query_one(ask, &[]).await;
                Ok::<String, Error>(row.expect("a setting").get(0))
            });
            assert_eq!(found.await.expect("a lock"), kept, "{set}, under a lock");
            stranger.batch_execute(gone).await.expect("gone");
        }
    }
}
