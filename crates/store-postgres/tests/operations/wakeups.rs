//! Processes wake each other.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::store::{Commit, Write};
use plimsoll_core::task::NewTask;
use plimsoll_core::{IdempotencyKey, Store};

use crate::server::{Server, lane, soon, until};

#[tokio::test]
async fn a_commit_wakes_other_processes_and_its_own_only_once() {
    let server = Server::new("wake").await;
    let (a, b) = (server.open().await, server.open().await);
    let (mut at_a, mut at_b) = (a.wakeups(), b.wakeups());
    server.submit(&a, &lane("x")).await;
    let at_once = at_a.take();
    assert_eq!(at_once.lanes, BTreeSet::from([lane("x")]));
    assert!(at_once.history);
    assert_eq!(soon(at_b.next()).await, at_once);
    // The echo of its own notification comes before what the other one says now.
    server.submit(&b, &lane("y")).await;
    assert_eq!(soon(at_a.next()).await.lanes, BTreeSet::from([lane("y")]));
}

#[tokio::test]
async fn what_is_written_quickly_arrives_completely() {
    let server = Server::new("burst").await;
    let (a, b) = (server.open().await, server.open().await);
    let mut at_b = b.wakeups();
    let lanes: BTreeSet<_> = (0..40).map(|n| lane(&n.to_string())).collect();
    for lane in &lanes {
        server.submit(&a, lane).await;
    }
    let (mut heard, mut wakes) = (BTreeSet::new(), 0);
    while heard != lanes {
        let wake = soon(at_b.next()).await;
        assert!(!wake.any_lane);
        heard.extend(wake.lanes);
        wakes += 1;
    }
    assert!(wakes <= lanes.len());
}

#[tokio::test]
async fn who_closes_has_told_everybody() {
    let server = Server::new("close").await;
    let store = server.open().await;
    let (stranger, mut told) = server.eavesdropper().await;
    server.submit(&store, &lane("first")).await;
    // The second one comes within the pause after the first.
    server.submit(&store, &lane("the last one")).await;
    store.close().await.expect("closed");
    // What was told before this question is heard before its answer.
    stranger.batch_execute("SELECT 1").await.expect("asked");
    let mut heard = Vec::new();
    while let Ok(payload) = told.try_recv() {
        heard.push(payload);
    }
    assert!(
        heard.iter().any(|payload| payload.contains("the last one")),
        "{heard:?}"
    );
}

#[tokio::test]
async fn what_is_written_while_the_connection_breaks_is_told_later() {
    let server = Server::new("later").await;
    let store = server.open().await;
    let (stranger, mut told) = server.eavesdropper().await;
    for round in 0..10 {
        let kill = "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid";
        let listeners = server.backends(&stranger, " listener").await;
        stranger.execute(kill, &[&listeners]).await.expect("killed");
        let name = format!("round {round} of {}", server.namespace);
        server.submit(&store, &lane(&name)).await;
        while !soon(told.recv())
            .await
            .expect("a notification")
            .contains(&name)
        {}
    }
}

#[tokio::test]
async fn after_a_broken_connection_everything_may_have_changed_and_nothing_is_lost() {
    let server = Server::new("broken").await;
    let (a, b) = (server.open().await, server.open().await);
    let (mut at_a, mut at_b) = (a.wakeups(), b.wakeups());
    let stranger = server.stranger().await;
    let listeners = server.backends(&stranger, " listener").await;
    assert_eq!(listeners.len(), 2, "one for each process");
    let kill = "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid";
    stranger.execute(kill, &[&listeners]).await.expect("killed");
    for heard in [soon(at_a.next()).await, soon(at_b.next()).await] {
        assert!(heard.any_lane && heard.history && heard.leases && heard.logs);
    }
    server.submit(&a, &lane("after")).await;
    assert!(soon(at_b.next()).await.lanes.contains(&lane("after")));
}

#[tokio::test]
async fn who_only_polls_has_no_listener_and_says_so() {
    let mut server = Server::new("polls").await;
    server.config.listen = false;
    let store = server.open().await;
    server.submit(&store, &lane("x")).await;
    assert!(!store.capabilities().remote_wakeups);
    let stranger = server.stranger().await;
    assert!(server.backends(&stranger, " listener").await.is_empty());
}

#[tokio::test]
async fn with_the_last_handle_all_connections_end() {
    let server = Server::new("ends").await;
    let store = server.open().await;
    server.submit(&store, &lane("x")).await;
    let stranger = server.stranger().await;
    assert_eq!(server.backends(&stranger, " listener").await.len(), 1);
    drop(store);
    until("connections are left", async || {
        let left = server.backends(&stranger, " listener").await.len()
            + server.backends(&stranger, "").await.len();
        left == 0
    })
    .await;
}

#[tokio::test]
async fn without_prepared_statements_each_transaction_brings_its_settings() {
    let mut server = Server::new("settings").await;
    server.config.prepare = false;
    server.config.lock_timeout = Duration::from_millis(50);
    let store = server.open().await;
    let key = IdempotencyKey::new("key").expect("a key");
    let submit = async || {
        let task = NewTask::new(server.ids.task(), lane("x"), "").key(key.clone());
        let done = store
            .commit(vec![Commit::of(Write::Submit(Box::new(task)))])
            .await;
        done.into_iter().next().expect("an answer")
    };
    submit().await.expect("submitted");
    let mut stranger = server.stranger().await;
    let hold = stranger.transaction().await.expect("begun");
    let lock = "SELECT 1 FROM plimsoll.keys JOIN plimsoll.namespaces USING (ns) WHERE name = $1 \
                FOR UPDATE OF keys";
    let held = hold.execute(lock, &[&server.namespace.as_str()]).await;
    assert_eq!(held.expect("held"), 1);
    let error = submit().await.expect_err("the row is locked");
    assert!(
        error.to_string().contains("locked by another transaction"),
        "{error}"
    );
    hold.rollback().await.expect("released");
    submit().await.expect("submitted");
}
