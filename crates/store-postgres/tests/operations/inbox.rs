//! Tasks in the inbox that cannot be submitted, beside others that can.

use std::time::Duration;

use futures::poll;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::store::{Commit, Due, Write};
use plimsoll_core::task::{KeyLifetime, NewTask, OnConflict, Task};
use plimsoll_core::{IdempotencyKey, Store, TaskId};
use plimsoll_store_postgres::PostgresStore;
use plimsoll_store_postgres::tokio_postgres::Client;

use crate::server::{Server, lane, until};
use crate::submit::{in_inbox, refused};

fn keyed(server: &Server) -> NewTask {
    let key = IdempotencyKey::new("key").expect("a key");
    let new = NewTask::new(server.ids.task(), lane("x"), "keyed");
    new.key_with(key, KeyLifetime::Forever, OnConflict::Reject)
}

/// Submits a task under the key, so that others with this key need its row.
async fn holder(server: &Server, store: &dyn Store) -> TaskId {
    let new = keyed(server);
    let id = new.id;
    let submit = Commit::of(Write::Submit(Box::new(new)));
    store
        .commit(vec![submit])
        .await
        .remove(0)
        .expect("submitted");
    id
}

/// Adds tasks to the inbox, all at once.
async fn add(store: &PostgresStore, client: &mut Client, tasks: impl Iterator<Item = NewTask>) {
    let transaction = client.transaction().await.expect("begun");
    for task in tasks {
        store.submit_in(&transaction, task).await.expect("added");
    }
    transaction.commit().await.expect("committed");
}

#[tokio::test]
async fn what_needs_a_locked_row_is_passed_over() {
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut server = Server::new("passed over").await;
    server.config.lock_timeout = PATIENCE;
    server.config.listen = false;
    let store = server.open().await;
    let (mut client, stranger) = (server.stranger().await, server.stranger().await);
    holder(&server, &store).await;
    server.claim(&store, &lane("x"), 10).await;
    let lock = "SELECT 1 FROM plimsoll.keys JOIN plimsoll.namespaces USING (ns) \
                WHERE name = $1 FOR UPDATE OF keys";
    stranger.batch_execute("BEGIN").await.expect("begun");
    let locked = stranger.query(lock, &[&server.namespace.as_str()]).await;
    assert_eq!(locked.expect("locked").len(), 1);
    let free = NewTask::new(server.ids.task(), lane("x"), "free");
    let id = free.id;
    add(&store, &mut client, [keyed(&server), free].into_iter()).await;
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let mut found = Vec::new();
    until("the second one is taken", async || {
        found = server.claim(&store, &lane("x"), 10).await.tasks;
        !found.is_empty()
    })
    .await;
    let took = clock.monotonic() - began;
    assert!(took < PATIENCE, "claims waited for {took:?}");
    assert_eq!(found.iter().map(Task::id).collect::<Vec<_>>(), [id]);
    assert_eq!(in_inbox(&server, &client).await, 1);
    stranger.batch_execute("ROLLBACK").await.expect("free");
    until("the first one, too", async || {
        in_inbox(&server, &client).await == 0
    })
    .await;
    assert_eq!(refused(&server, &client).await.len(), 1, "the key is taken");
}

#[tokio::test]
async fn of_two_who_take_nobody_refuses_the_wrong_one() {
    const TASKS: usize = 60;
    let mut server = Server::new("takers").await;
    server.config.listen = false;
    let (one, other) = (server.open().await, server.open().await);
    let mut client = server.stranger().await;
    let holder = holder(&server, &one).await;
    // Whoever needs it cannot read it.
    let gone = format!("DELETE FROM plimsoll.tasks WHERE id = '{holder}'");
    assert_eq!(client.execute(&gone, &[]).await.expect("gone"), 1);
    let tasks = (0..TASKS).map(|n| match n % 3 {
        0 | 1 => keyed(&server),
        _ => NewTask::new(server.ids.task(), lane("x"), "good"),
    });
    add(&one, &mut client, tasks).await;
    let due = Due { limit: 1 };
    while in_inbox(&server, &client).await > 0 {
        // One has a turn at each step of the other.
        let mut slow = one.due(due);
        while poll!(&mut slow).is_pending() {
            other.due(due).await.expect("due");
        }
    }
    let claimed = server.claim(&one, &lane("x"), TASKS).await;
    assert_eq!(claimed.tasks.len(), TASKS / 3);
    let nowhere = format!("task {holder} has no state");
    assert_eq!(
        refused(&server, &client).await,
        vec![nowhere; TASKS / 3 * 2]
    );
}
