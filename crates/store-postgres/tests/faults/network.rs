//! Servers that end, and connections that break, stall or fall silent, while everybody is at work.

use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::error::Applied;
use plimsoll_core::record::Index;
use plimsoll_core::store::DropIndex;
use plimsoll_core::{Name, Prefix, Store, StoreExt};
use plimsoll_store_postgres::{Config, Postgres};

use crate::proxy::Mode;
use crate::server::Server;
use crate::traffic::Traffic;
use crate::world::{World, assert_told, is_well, one, put, submit, until, within};

async fn pause(time: Duration) {
    SystemClock::new().sleep(time).await;
}

/// Nothing is lost by a server that is ended like this and started again.
async fn comes_back(end: fn(&Server)) {
    let server = Server::start("");
    let world = World::on(&server.url).await;
    let traffic = Traffic::start(&world, &world.config).await;
    for _ in 0..2 {
        tokio::task::block_in_place(|| {
            end(&server);
            server.start_again();
        });
        traffic.goes_on().await;
    }
    let refused = traffic.end(&world).await;
    assert!(!refused.is_empty(), "the server was away for a while");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_comes_back_has_lost_nothing() {
    comes_back(Server::crash).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_and_comes_back_has_lost_nothing() {
    comes_back(Server::stop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_transaction_pooler_everybody_works_and_nothing_is_lost() {
    let url = std::env::var("PLIMSOLL_TEST_PGBOUNCER_URL");
    let pooler = Config::new(&url.expect("PLIMSOLL_TEST_PGBOUNCER_URL, which scripts/test sets"));
    let world = World::shared().await;
    let mut config = Config {
        server: pooler.expect("a URL").server,
        listen: false,
        prepare: false,
        ..world.config.clone()
    };
    let name = world.config.server.get_application_name();
    config.server.application_name(name.expect("a name"));
    let stranger = world.stranger().await;
    let traffic = Traffic::start(&world, &config).await;
    for _ in 0..10 {
        world.kill_some(&stranger).await;
        pause(Duration::from_millis(100)).await;
    }
    traffic.goes_on().await;
    // Its connections are the pooler's, which keeps them.
    traffic.finish(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_ends_again_and_again_lose_nothing() {
    let world = World::shared().await;
    let stranger = world.stranger().await;
    let traffic = Traffic::start(&world, &world.config).await;
    for _ in 0..30 {
        world.kill_some(&stranger).await;
        pause(Duration::from_millis(100)).await;
    }
    traffic.goes_on().await;
    traffic.end(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_also_in_the_middle_of_an_answer_lose_nothing() {
    let world = World::shared().await;
    let (proxy, config) = world.proxy().await;
    let traffic = Traffic::start(&world, &config).await;
    for most in 0..20 {
        proxy.cut();
        pause(Duration::from_millis(50)).await;
        proxy.set(Mode::CutAnswers(most * 3));
        pause(Duration::from_millis(50)).await;
        proxy.set(Mode::Pass);
    }
    traffic.goes_on().await;
    traffic.end(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_stalls_loses_nothing() {
    let world = World::shared().await;
    let (proxy, config) = world.proxy().await;
    let traffic = Traffic::start(&world, &config).await;
    for stalled in [200, 1_000, 3_000] {
        proxy.set(Mode::Stall);
        pause(Duration::from_millis(stalled)).await;
        proxy.set(Mode::Pass);
        traffic.goes_on().await;
    }
    traffic.end(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_fall_silent_are_given_up_and_lose_nothing() {
    let mut world = World::shared().await;
    world.config.call_timeout = Duration::from_secs(1);
    let (proxy, config) = world.proxy().await;
    let traffic = Traffic::start(&world, &config).await;
    for _ in 0..2 {
        proxy.set(Mode::HalfOpen);
        pause(Duration::from_millis(500)).await;
        proxy.set(Mode::Pass);
        traffic.goes_on().await;
    }
    let refused = traffic.end(&world).await;
    let silent = |words: &String| words.contains("did not answer within 1s");
    assert!(refused.keys().any(silent), "{refused:?}");
}

/// Nobody knows what became of what was sent.
#[tokio::test]
async fn a_write_that_is_not_answered_may_have_happened() {
    let world = World::shared().await;
    let (proxy, config) = world.proxy().await;
    let store = world.open_with(&config).await;
    let index = Index {
        prefix: Prefix::new("a.").expect("a prefix"),
        field: Name::new("n").expect("a name"),
    };
    store.ensure_index(&index).await.expect("an index");
    for mode in [Mode::LoseAnswers, Mode::HalfOpen] {
        is_well(&store).await;
        // Once beforehand: what is prepared and has its revisions is one turn, which commits.
        let before = one(&store, submit(world.task())).await;
        before.expect("a commit");
        proxy.set(mode);
        let written = one(&store, submit(world.task())).await;
        assert_told(
            written.map(drop),
            Applied::Unknown,
            "did not answer within 2s",
        );
        proxy.set(Mode::Pass);
    }
    is_well(&store).await;
    proxy.set(Mode::LoseAnswers);
    let index = index.clone();
    let dropped = store.drop_index(DropIndex { index }).await;
    assert_told(
        dropped.map(drop),
        Applied::Unknown,
        "did not answer within 2s",
    );
    proxy.set(Mode::Pass);
    is_well(&store).await;
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers_is_given_up() {
    let world = World::shared().await;
    let (proxy, config) = world.proxy().await;
    proxy.set(Mode::HalfOpen);
    let open = within(5, "giving up", Postgres::open(config.clone())).await;
    assert_told(open.map(drop), Applied::No, "did not answer within 2s");
    proxy.set(Mode::Pass);
    is_well(&world.open_with(&config).await).await;
}

#[tokio::test]
async fn a_listener_that_fell_silent_listens_again() {
    let world = World::shared().await;
    let (proxy, config) = world.proxy().await;
    let (here, there) = (world.open_with(&config).await, world.open().await);
    let mut wakeups = here.wakeups();
    proxy.set(Mode::HalfOpen);
    // It has to notice that: nothing is sent from here meanwhile.
    pause(Duration::from_millis(100)).await;
    proxy.set(Mode::Pass);
    let missed = within(10, "listening again", wakeups.next()).await;
    assert!(
        missed.any_lane && missed.history,
        "anything may have been missed"
    );
    let woken = async || {
        one(&there, put("wake")).await.expect("a commit");
        wakeups.take().history
    };
    until(5, "hearing of others", woken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_read_only_for_a_while_loses_nothing() {
    let server = Server::start("");
    let world = World::on(&server.url).await;
    let traffic = Traffic::start(&world, &world.config).await;
    let stranger = world.stranger().await;
    let switch = async |to: &str| {
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {to}");
        // The stranger's own statements must not be refused.
        stranger
            .batch_execute("SET default_transaction_read_only = off")
            .await
            .expect("set");
        stranger.batch_execute(&set).await.expect("switched");
        stranger
            .batch_execute("SELECT pg_reload_conf()")
            .await
            .expect("reloaded");
    };
    for _ in 0..5 {
        switch("on").await;
        pause(Duration::from_millis(300)).await;
        switch("off").await;
        traffic.goes_on().await;
    }
    let refused = traffic.end(&world).await;
    let read_only = |words: &String| words.contains("read-only: connect to the primary");
    assert!(refused.keys().any(read_only), "{refused:?}");
}
