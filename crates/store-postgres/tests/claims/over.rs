//! Many claims of processes that died.

use std::collections::BTreeSet;

use plimsoll_core::store::{Due, DueNow};
use plimsoll_core::task::Task;
use plimsoll_core::{Store, TaskId};
use plimsoll_store_postgres::PostgresStore;

use super::{LEASE, World, complete, expire, write};

/// More than are looked at together.
const CLAIMS: usize = 100;
const EACH: usize = 3;

async fn due(store: &PostgresStore) -> DueNow {
    let limit = 1_000;
    store.due(Due { limit }).await.expect("what is due")
}

fn ids<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> BTreeSet<TaskId> {
    tasks.into_iter().map(Task::id).collect()
}

/// Tasks in many claims of the first process.
async fn claimed(world: &World<2>) -> Vec<Task> {
    claimed_in(world, CLAIMS).await
}

async fn claimed_in(world: &World<2>, claims: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for _ in 0..claims {
        tasks.extend(world.claimed(EACH).await);
    }
    tasks
}

#[tokio::test]
async fn what_they_hold_is_found_and_they_are_closed_when_nothing_is_left() {
    let world = World::<2>::new().await;
    let tasks = claimed(&world).await;
    world.clock.advance(LEASE);
    let other = &world.stores[1];
    let mut found = BTreeSet::new();
    loop {
        let due = due(other).await;
        let expired = due.expired.iter().map(|(task, _)| *task);
        let expired: BTreeSet<_> = expired.collect();
        assert!(expired.is_disjoint(&found), "{expired:?}");
        // There is always something to decide about while there is more.
        assert!(!expired.is_empty() || !due.more);
        if expired.is_empty() {
            break;
        }
        let these = tasks.iter().filter(|task| expired.contains(&task.id()));
        write(other, these.map(expire)).await;
        found.extend(expired);
    }
    assert_eq!(found, ids(&tasks));
    assert_eq!(world.open_claims().await, 0);
    // Each knows which of its own were taken out, and nothing of those of others.
    let noted =
        "SELECT count(*) FROM plimsoll.claims WHERE ns = $1 AND gone <@ tasks AND gone @> tasks";
    assert_eq!(world.count(noted).await, CLAIMS as i64);
}

/// Leaves claims open as somebody does who dies before closing them.
async fn reopen(world: &World<2>) {
    let ns = namespace(world);
    let reopen = format!(
        "SET session_replication_role = replica; \
         UPDATE plimsoll.claims SET until = at + interval '{} s' WHERE {ns} AND until IS NULL",
        LEASE.as_secs()
    );
    world.sql.batch_execute(&reopen).await.expect("a change");
}

fn namespace(world: &World<2>) -> String {
    let name = world.stores[0].namespace();
    format!("ns = (SELECT ns FROM plimsoll.namespaces WHERE name = '{name}')")
}

#[tokio::test]
async fn those_that_hold_nothing_hide_no_others_also_where_they_cannot_be_closed() {
    for locked in [false, true] {
        let world = World::<2>::new().await;
        let spent = claimed(&world).await;
        world.clock.advance(LEASE / 2);
        let held = world.claimed(EACH).await;
        world.clock.advance(LEASE / 2);
        let other = &world.stores[1];
        write(other, spent.iter().map(expire)).await;
        reopen(&world).await;
        assert_eq!(world.open_claims().await, CLAIMS as i64 + 1);
        world.clock.advance(LEASE / 2);
        if locked {
            let ns = namespace(&world);
            let lock = format!("BEGIN; SELECT FROM plimsoll.claims WHERE {ns} FOR UPDATE");
            world.sql.batch_execute(&lock).await.expect("locks");
        }
        let mut found = due(other).await;
        while found.expired.is_empty() {
            assert!(found.more);
            found = due(other).await;
        }
        let expired = found.expired.iter().map(|(task, _)| *task);
        assert_eq!(expired.collect::<BTreeSet<_>>(), ids(&held));
        let closed = if locked { 0 } else { CLAIMS };
        assert_eq!(world.open_claims().await, (CLAIMS + 1 - closed) as i64);
    }
}

#[tokio::test]
async fn the_next_look_is_not_too_late_for_what_may_be_held_behind_them() {
    for (claims, is_looked) in [(10, false), (CLAIMS, true)] {
        let world = World::<2>::new().await;
        let tasks = claimed_in(&world, claims).await;
        let other = &world.stores[1];
        write(other, tasks.iter().map(complete)).await;
        assert_eq!(due(other).await, DueNow::default());
        reopen(&world).await;
        let until = tasks[0].lease.as_ref().map(|lease| lease.until);
        let next = until.filter(|_| is_looked);
        let nothing = DueNow::default();
        assert_eq!(due(other).await, DueNow { next, ..nothing });
        world.clock.advance(LEASE);
        assert_eq!(due(other).await, DueNow::default());
        assert_eq!(world.open_claims().await, 0);
    }
}
