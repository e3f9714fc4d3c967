//! Processes wake each other.

use std::collections::BTreeSet;

use plimsoll_core::Store;

use crate::server::{Server, lane, until};

#[tokio::test]
async fn a_commit_wakes_other_processes_and_its_own_only_once() {
    let server = Server::new("wake").await;
    let (a, b) = (server.open().await, server.open().await);
    let (mut at_a, mut at_b) = (a.wakeups(), b.wakeups());
    server.submit(&a, &lane("x")).await;
    let at_once = at_a.take();
    assert_eq!(at_once.lanes, BTreeSet::from([lane("x")]));
    assert!(at_once.history);
    assert_eq!(at_b.next().await, at_once);
    // The echo of its own notification comes before what the other one says now.
    server.submit(&b, &lane("y")).await;
    assert_eq!(at_a.next().await.lanes, BTreeSet::from([lane("y")]));
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
        let wake = at_b.next().await;
        assert!(!wake.any_lane);
        heard.extend(wake.lanes);
        wakes += 1;
    }
    assert!(wakes <= lanes.len());
}

#[tokio::test]
async fn who_closes_has_told_everybody() {
    let server = Server::new("close").await;
    let (a, b) = (server.open().await, server.open().await);
    let mut at_b = b.wakeups();
    server.submit(&a, &lane("first")).await;
    assert!(at_b.next().await.history);
    // The second one comes within the pause after the first.
    server.submit(&a, &lane("last")).await;
    a.close().await.expect("closed");
    // Whatever A has sent by now, C's later notification comes after it.
    let c = server.open().await;
    server.submit(&c, &lane("later")).await;
    let mut heard = BTreeSet::new();
    while !heard.contains(&lane("later")) {
        heard.extend(at_b.next().await.lanes);
    }
    assert!(heard.contains(&lane("last")));
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
    for heard in [at_a.next().await, at_b.next().await] {
        assert!(heard.any_lane && heard.history && heard.leases && heard.logs);
    }
    server.submit(&a, &lane("after")).await;
    assert!(at_b.next().await.lanes.contains(&lane("after")));
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
