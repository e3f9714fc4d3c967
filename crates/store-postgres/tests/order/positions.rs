//! What holds back whom, at which positions.

use std::time::Duration;

use futures::future::join;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::store::{Commit, Outcome, Write};
use plimsoll_core::{Key, Namespace, Position, Revision, StoreExt};
use plimsoll_store_postgres::PostgresStore;

use crate::server::{Server, entries_after, hold_up, position_of, until_waited_for};

/// What a lock carries of a position are its last 31 bits.
#[tokio::test]
async fn what_is_in_flight_holds_back_what_comes_after_it_at_every_position() {
    let server = Server::new().await;
    let (store, watcher) = (server.open().await, server.stranger().await);
    let turn = 1_i64 << 31;
    for last in [
        1,
        turn - 3,
        turn - 2,
        turn - 1,
        turn,
        2 * turn - 2,
        5 * turn - 1,
        turn * turn / 4,
    ] {
        let set = format!("SELECT setval('plimsoll.positions', {last})");
        server.run(&watcher, &set).await;
        let start = store.commit_one(server.put("start")).await;
        let start = position_of(&start.expect("committed"));
        let (one, other) = (server.stranger().await, server.stranger().await);
        let (first, second) = (server.put("first"), server.put("second"));
        hold_up(&server, &one, first.id.expect("an id")).await;
        hold_up(&server, &other, second.id.expect("an id")).await;
        let rest = async {
            until_waited_for(&watcher, &one).await;
            let passed = store.commit_one(server.put("third")).await;
            let passed = position_of(&passed.expect("committed"));
            let nothing = (Vec::new(), start);
            assert_eq!(entries_after(&store, start).await, nothing, "{last}");
            assert!(passed.get() > start.get() + 1, "{last}");
            let late = async {
                until_waited_for(&watcher, &other).await;
                assert_eq!(entries_after(&store, start).await, nothing, "{last}");
                // The first may commit: up to the second everything is there.
                one.batch_execute("ROLLBACK").await.expect("ended");
                passed
            };
            late.await
        };
        let second = async {
            until_waited_for(&watcher, &one).await;
            store.commit_one(second).await
        };
        let all = join(join(store.commit_one(first), second), async {
            let passed = rest.await;
            // Whoever waits behind the other is the only one left.
            let clock = SystemClock::new();
            while entries_after(&store, start).await.0.is_empty() {
                assert!(clock.monotonic() < Duration::from_secs(120), "{last}");
                clock.sleep(Duration::from_millis(1)).await;
            }
            other.batch_execute("ROLLBACK").await.expect("ended");
            passed
        });
        let ((first, second), third) = all.await;
        let mut wanted = [first, second]
            .map(|one| position_of(&one.expect("committed")))
            .to_vec();
        wanted.push(third);
        wanted.sort();
        let newest = wanted.last().copied().expect("three");
        assert_eq!(
            entries_after(&store, start).await,
            (wanted, newest),
            "{last}"
        );
    }
    server.drop().await;
}

/// A transaction of another one that is in flight holds back nobody here.
async fn holds_back_nobody(server: &Server, another: &Server) {
    let (store, far) = (server.open().await, another.open().await);
    let (watcher, holder) = (server.stranger().await, server.stranger().await);
    let held = another.put("held");
    hold_up(another, &holder, held.id.expect("an id")).await;
    let rest = async {
        until_waited_for(&watcher, &holder).await;
        let mut last = Position::ZERO;
        for _ in 0..3 {
            let receipt = store.commit_one(server.put("key")).await;
            last = position_of(&receipt.expect("committed"));
        }
        let (_, next) = entries_after(&store, Position::ZERO).await;
        holder.batch_execute("ROLLBACK").await.expect("ended");
        assert_eq!(next, last);
    };
    let (held, ()) = join(far.commit_one(held), rest).await;
    held.expect("committed");
}

#[tokio::test]
async fn transactions_of_another_schema_hold_back_nobody() {
    let (server, another) = (Server::new().await, Server::new().await);
    holds_back_nobody(&server, &another).await;
    server.drop().await;
    another.drop().await;
}

/// Although both take their positions from one sequence.
#[tokio::test]
async fn transactions_of_another_namespace_hold_back_nobody() {
    let server = Server::new().await;
    let another = Server {
        config: server.config.clone(),
        ids: server.ids.clone(),
        namespace: Namespace::new("another").expect("a namespace"),
    };
    holds_back_nobody(&server, &another).await;
    server.drop().await;
}

#[tokio::test]
async fn a_revision_grows_over_deletion_whoever_writes() {
    let server = Server::new().await;
    let (one, other) = (server.open().await, server.open().await);
    let revision = async |store: &PostgresStore, commit: Commit| -> Revision {
        let receipt = store.commit_one(commit).await.expect("committed");
        match &receipt.outcomes[0] {
            Outcome::Written { revision, .. } => *revision,
            outcome => panic!("{outcome:?}"),
        }
    };
    // It has connections that have written before.
    revision(&one, server.put("elsewhere")).await;
    for _ in 0..3 {
        let before = revision(&other, server.put("key")).await;
        let gone = Commit::of(Write::Delete(Key::new("key").expect("a key")));
        other.commit_one(gone.clone()).await.expect("deleted");
        let after = revision(&one, server.put("key")).await;
        assert!(after > before, "{after} after {before}");
        one.commit_one(gone).await.expect("deleted");
    }
    server.drop().await;
}
