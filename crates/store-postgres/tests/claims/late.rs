//! Calls that hear late of what they did, when others have gone on with it already.

use std::pin::Pin;

use futures::poll;
use plimsoll_core::Result;
use plimsoll_core::task::Priority;

use super::*;

const ROUNDS: u8 = 20;

type Call<'a> = Pin<Box<dyn Future<Output = Vec<Result<Receipt>>> + Send + 'a>>;

/// Goes on with a call until the server has committed it, and not further. That is seen when this
/// table has such a row. Answers whether the call is not over.
pub(super) async fn stops_at_commit<const N: usize>(
    world: &World<N>,
    call: &mut (impl Future + Unpin),
    (table, condition): (&str, &str),
) -> bool {
    let seen = format!("SELECT 1 FROM plimsoll.{table} WHERE {condition}");
    while poll!(&mut *call).is_pending() {
        for _ in 0..50 {
            if !(world.sql.query(&seen, &[]).await.expect("rows")).is_empty() {
                return true;
            }
        }
    }
    false
}

/// Writes, until the server has committed that. What is written anew each time comes with the
/// condition of a task by which that is seen.
async fn committed<'a>(
    world: &World<1>,
    store: &'a PostgresStore,
    mut write: impl FnMut() -> (Write, String),
) -> Call<'a> {
    // The first ones may have to connect and to prepare.
    loop {
        let (write, seen) = write();
        let mut call = store.commit(vec![Commit::of(write)]);
        if stops_at_commit(world, &mut call, ("tasks", &seen)).await {
            return call;
        }
    }
}

/// A claim takes what a late call has written, and has it until it is settled.
async fn is_held(world: &World<1>, late: Call<'_>) {
    let [store] = &world.stores;
    let tasks = world.claim(store, world.ids.request()).await;
    assert!(!tasks.is_empty());
    late.await.remove(0).expect("a receipt");
    // Claims of which nothing is left are closed by whoever comes next.
    let put = Put::new(Key::new("next").expect("a key"), Default::default());
    write(store, [Write::Put(put)].into_iter()).await;
    assert_eq!(look(store, &tasks).await, tasks);
    write(store, tasks.iter().map(complete)).await;
    assert_eq!(world.rows("tasks").await, 0);
}

#[tokio::test]
async fn a_submit_that_hears_late_does_not_close_the_claim() {
    let world = World::<1>::new().await;
    for _ in 0..ROUNDS {
        let late = committed(&world, &world.stores[0], || {
            let new = NewTask::new(world.ids.task(), lane(), "x");
            let seen = format!("id = '{}'", new.id);
            (Write::Submit(Box::new(new)), seen)
        });
        let late = late.await;
        is_held(&world, late).await;
    }
}

#[tokio::test]
async fn a_new_priority_that_is_heard_of_late_does_not_close_the_claim() {
    let world = World::<1>::new().await;
    let [store] = &world.stores;
    for _ in 0..ROUNDS {
        let new = NewTask::new(world.ids.task(), lane(), "x");
        let id = new.id;
        write(store, [Write::Submit(Box::new(new))].into_iter()).await;
        let mut priorities = (1..=9).cycle();
        let late = committed(&world, store, || {
            let priority = priorities.next().expect("one more");
            let seen = format!("id = '{id}' AND priority = {priority}");
            let priority = Priority::new(priority).expect("a priority");
            (Write::Prioritise(id, priority), seen)
        });
        let late = late.await;
        is_held(&world, late).await;
    }
}
