//! Calls that somebody stops waiting for: each has happened as a whole, or not at all, and whoever
//! calls next is answered as if nobody had.

use futures::poll;
use plimsoll_core::store::Get;

use super::late::stops_at_commit;
use super::*;

const TASKS: usize = 4;
const DROPS: usize = 60;
/// Before the server ends a transaction in which nothing happens.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Makes a call and drops it after so many steps. Answers whether it was over before.
async fn dropped<T>(world: &World<2>, steps: usize, call: impl Future<Output = T> + Unpin) -> bool {
    let mut call = call;
    for _ in 0..steps {
        if poll!(&mut call).is_ready() {
            return true;
        }
        // Meanwhile others go on.
        tokio::task::yield_now().await;
    }
    drop(call);
    // What was sent may still be done, or be undone.
    let busy = "SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'";
    let name = world.stores[0].namespace().to_string();
    let clock = SystemClock::new();
    while !(world.sql.query(busy, &[&name]).await.expect("backends")).is_empty() {
        assert!(clock.monotonic() < AT_ONCE, "a transaction is left open");
    }
    false
}

/// Does this with ever more steps, until the call is over before it is dropped, and again from the
/// first step. Answers how often.
async fn at_every_step(mut round: impl AsyncFnMut(usize) -> bool) -> usize {
    let (mut steps, mut rounds, mut drops) = (1, 0, 0);
    while drops < DROPS {
        steps = match round(steps).await {
            true => 1,
            false => steps + 1 + steps / 16,
        };
        drops += usize::from(steps > 1);
        rounds += 1;
        assert!(rounds < 3 * DROPS, "it is hardly ever dropped");
    }
    rounds
}

#[tokio::test]
async fn a_commit_has_happened_as_a_whole_or_not_at_all() {
    let world = World::<2>::new().await;
    let [store, other] = &world.stores;
    let rounds = at_every_step(async |steps| {
        let tasks = world.claimed(TASKS).await;
        let key = Key::new(world.ids.task().to_string()).expect("a key");
        let put = Put::new(key.clone(), Default::default());
        // Not all of them, so that their claim goes on.
        let settles = tasks[1..].iter().map(complete);
        let commit = settles.fold(Commit::of(Write::Put(put)), Commit::write);
        let over = dropped(&world, steps, store.commit(vec![commit])).await;
        let keys = vec![key];
        let found = other.get(Get { keys }).await.expect("a record");
        let status = match found[0].is_some() {
            true => Status::Completed,
            false => Status::Claimed,
        };
        let after = look(other, &tasks[1..]).await;
        assert!(after.iter().all(|task| task.status == status), "{after:?}");
        // Who has completed them before does not do so again.
        write(store, tasks.iter().map(complete)).await;
        over
    });
    let done = rounds.await * TASKS;
    assert_eq!(world.rows("tasks_done").await, done as i64);
    assert_eq!(world.rows("tasks").await, 0);
}

#[tokio::test]
async fn a_commit_that_nobody_has_heard_of_does_not_happen_again() {
    const ROUNDS: usize = 20;
    let world = World::<2>::new().await;
    let store = &world.stores[0];
    let (mut unheard, mut tasks_done) = (0, 0);
    while unheard < ROUNDS {
        let tasks = world.claimed(TASKS).await;
        // Not all of them, so that their claim goes on.
        let settles = tasks[1..].iter().map(complete);
        let mut call = store.commit(vec![settles.fold(Commit::new(), Commit::write)]);
        let done = format!("id = '{}'", tasks[1].id());
        if stops_at_commit(&world, &mut call, ("tasks_done", &done)).await {
            unheard += 1;
        }
        drop(call);
        write(store, tasks.iter().map(complete)).await;
        tasks_done += TASKS as i64;
        assert_eq!(world.rows("tasks_done").await, tasks_done);
    }
    assert_eq!(world.rows("tasks").await, 0);
}

#[tokio::test]
async fn a_claim_has_happened_as_a_whole_or_not_at_all() {
    let world = World::<2>::new().await;
    let [store, other] = &world.stores;
    at_every_step(async |steps| {
        let new = (0..TASKS).map(|_| NewTask::new(world.ids.task(), lane(), "x"));
        write(other, new.map(|new| Write::Submit(Box::new(new)))).await;
        let request = world.ids.request();
        let call = Box::pin(world.claim(store, request));
        let over = dropped(&world, steps, call).await;
        let waiting = world.rows("tasks").await;
        assert!(waiting == 0 || waiting == TASKS as i64, "{waiting} wait");
        // It is the same claim, or the first one.
        let tasks = world.claim(store, request).await;
        assert_eq!((tasks.len(), world.rows("tasks").await), (TASKS, 0));
        assert_eq!(look(other, &tasks).await, tasks);
        write(store, tasks.iter().map(complete)).await;
        over
    })
    .await;
    assert_eq!(world.rows("tasks").await, 0);
}

#[tokio::test]
async fn a_renewal_has_happened_as_a_whole_or_not_at_all() {
    let world = World::<2>::new().await;
    let [store, other] = &world.stores;
    at_every_step(async |steps| {
        let tasks = world.claimed(TASKS).await;
        // Half of them have a row of their own.
        for task in &tasks[TASKS / 2..] {
            let amend = Amend {
                checkpoint: Some("here".into()),
                ..Amend::new(holder(task))
            };
            write(store, [Write::Amend(Box::new(amend))].into_iter()).await;
        }
        let first = world.clock.now().saturating_plus(LEASE);
        world.clock.advance(LEASE / 2);
        let second = world.clock.now().saturating_plus(LEASE);
        let call = Box::pin(world.renew(store, &tasks));
        let over = dropped(&world, steps, call).await;
        let untils = async || {
            let after = look(other, &tasks).await;
            let until = |task: &Task| task.lease.as_ref().expect("a lease").until;
            after.iter().map(until).collect::<BTreeSet<_>>()
        };
        let found = untils().await;
        assert!([[first], [second]].map(BTreeSet::from).contains(&found));
        world.renew(store, &tasks).await;
        assert_eq!(untils().await, BTreeSet::from([second]));
        write(store, tasks.iter().map(complete)).await;
        over
    })
    .await;
    assert_eq!(world.rows("tasks").await, 0);
}
