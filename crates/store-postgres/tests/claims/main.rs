//! Tasks whose claim is all there is of them, in the hands of several processes, on a real server.

#![allow(clippy::expect_used, clippy::panic)]

mod dropped;
mod late;
mod many;
mod nowhere;
mod over;
mod passed;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all, join3};
use plimsoll_core::clock::{Clock, ManualClock, SystemClock};
use plimsoll_core::error::Lost;
use plimsoll_core::ids::{Ids, Jitter};
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::store::{
    Amend, Cancel, Claim, Commit, Counts, Due, Ending, Exchange, Expire, Guard, List, Log, Pick,
    Put, Receipt, Renew, Renewal, Selector, Settle, Tasks, Write,
};
use plimsoll_core::task::{Holder, Lane, NewTask, Status, Task, WorkerId};
use plimsoll_core::{Error, Fence, Key, Name, Namespace, RequestId, Store, StoreExt, TaskId};
use plimsoll_store_postgres::tokio_postgres::{Client, NoTls};
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};

const LEASE: Duration = Duration::from_secs(30);

/// A new namespace, and processes that work on it.
struct World<const N: usize> {
    clock: Arc<ManualClock>,
    ids: Ids,
    stores: [PostgresStore; N],
    worker: WorkerId,
    sql: Client,
}

impl<const N: usize> World<N> {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
        let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
        let clock = Arc::new(ManualClock::new());
        let mut config = Config {
            clock: Some(clock.clone()),
            unsafe_durability: true,
            ..Config::new(&url).expect("a URL")
        };
        change(&mut config);
        migrate(&config).await.expect("a schema");
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let namespace = Namespace::new(ids.task().to_string()).expect("a namespace");
        config.server.application_name(namespace.as_str());
        let open = std::array::from_fn::<_, N, _>(|_| async {
            let postgres = Postgres::open(config.clone()).await.expect("a server");
            (postgres.namespace(namespace.clone()).await).expect("a handle")
        });
        let stores = join_all(open).await.try_into().expect("as many");
        config.server.application_name("stranger");
        let (sql, connection) = config.server.connect(NoTls).await.expect("a connection");
        #[allow(clippy::disallowed_methods, reason = "it ends with the client")]
        tokio::spawn(connection);
        let worker = WorkerId {
            name: Name::new("worker").expect("a name"),
            incarnation: ids.incarnation(),
        };
        Self {
            clock,
            ids,
            stores,
            worker,
            sql,
        }
    }

    /// Submits so many tasks, and has the first process claim them. They have no rows.
    async fn claimed(&self, tasks: usize) -> Vec<Task> {
        let new = (0..tasks).map(|_| NewTask::new(self.ids.task(), lane(), "x"));
        write(&self.stores[0], new.map(|new| Write::Submit(Box::new(new)))).await;
        let claimed = self.claim(&self.stores[0], self.ids.request()).await;
        assert_eq!(claimed.len(), tasks);
        assert_eq!(self.rows("tasks").await, 0);
        claimed
    }

    async fn claim(&self, store: &PostgresStore, request: RequestId) -> Vec<Task> {
        let (lanes, limit) = (vec![lane()], 1_000);
        let claim = Claim {
            pick: Pick::Next { lanes, limit },
            worker: self.worker.clone(),
            lease: LEASE,
            request,
        };
        store.claim(claim).await.expect("a claim").tasks
    }

    async fn renew(&self, store: &PostgresStore, tasks: &[Task]) -> Vec<Renewal> {
        let holders = tasks.iter().map(holder).collect();
        let lease = LEASE;
        store
            .renew(Renew { holders, lease })
            .await
            .expect("renewals")
    }

    /// How many rows of the namespace a table has.
    async fn rows(&self, table: &str) -> i64 {
        self.count(&format!(
            "SELECT count(*) FROM plimsoll.{table} WHERE ns = $1"
        ))
        .await
    }

    async fn open_claims(&self) -> i64 {
        let open = "SELECT count(*) FROM plimsoll.claims WHERE ns = $1 AND until IS NOT NULL";
        self.count(open).await
    }

    /// Changes rows by hand.
    async fn tamper(&self, statement: &str) {
        let changed = self.sql.execute(statement, &[]).await;
        assert_eq!(changed.expect("a change"), 1, "{statement}");
    }

    async fn count(&self, query: &str) -> i64 {
        let ns = "SELECT ns FROM plimsoll.namespaces WHERE name = $1";
        let name = self.stores[0].namespace().to_string();
        let ns: i32 = (self.sql.query_one(ns, &[&name]).await)
            .expect("a namespace")
            .get(0);
        let row = self.sql.query_one(query, &[&ns]).await;
        row.expect("a count").get(0)
    }
}

fn lane() -> Lane {
    Lane::new("queue", "kind").expect("a lane")
}

fn holder(task: &Task) -> Holder {
    task.holder().expect("a lease")
}

fn complete(task: &Task) -> Write {
    let how = Ending::Complete { result: None };
    let holder = holder(task);
    Write::Settle(Settle { holder, how })
}

fn expire(task: &Task) -> Write {
    Write::Expire(Expire {
        task: task.id(),
        fence: task.fence,
        jitter: Jitter::default(),
    })
}

async fn write(store: &PostgresStore, writes: impl Iterator<Item = Write>) {
    for answer in store.commit(writes.map(Commit::of).collect()).await {
        answer.expect("a receipt");
    }
}

async fn look(store: &PostgresStore, tasks: &[Task]) -> Vec<Task> {
    let ids = tasks.iter().map(Task::id).collect();
    let found = store.tasks(Tasks { ids }).await.expect("tasks");
    found
        .into_iter()
        .map(|task| task.expect("a task"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_and_an_expiry_of_the_same_attempt_do_not_both_happen() {
    const ROUNDS: usize = 20;
    const TASKS: usize = 50;
    let world = World::<2>::new().await;
    let [holding, sweeping] = &world.stores;
    let (mut settled, mut expired) = (0, 0);
    for round in 0..ROUNDS {
        let tasks = world.claimed(TASKS).await;
        world.clock.advance(LEASE);
        // From both ends, in pieces of another size each time, so that they meet in the middle.
        let settle = async {
            let mut won = 0;
            for piece in tasks.chunks(1 + round % 7) {
                let commits = piece.iter().map(|task| Commit::of(complete(task)));
                let answers = holding.commit(commits.collect()).await;
                for answer in answers {
                    match answer {
                        Ok(_) => won += 1,
                        Err(Error::LeaseLost(lost)) => {
                            assert!(matches!(lost.why, Lost::NotClaimed { .. }), "{lost:?}");
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            won
        };
        let sweep = async {
            let backwards: Vec<&Task> = tasks.iter().rev().collect();
            for piece in backwards.chunks(1 + round % 5) {
                write(sweeping, piece.iter().map(|task| expire(task))).await;
            }
        };
        let (won, ()) = join(settle, sweep).await;
        let after = look(sweeping, &tasks).await;
        let completed = after
            .iter()
            .filter(|task| task.status == Status::Completed)
            .count();
        let failed = after
            .iter()
            .filter(|task| !task.status.is_terminal() && task.failures == 1)
            .count();
        assert_eq!((completed, completed + failed), (won, TASKS));
        settled += completed;
        expired += failed;
        // What was not completed is out of the way of the next round.
        let cancels = after.iter().filter(|task| !task.status.is_terminal());
        write(
            sweeping,
            cancels.map(|task| {
                let (task, reason) = (task.id(), None);
                Write::Cancel(Cancel { task, reason })
            }),
        )
        .await;
    }
    assert!(settled > 0 && expired > 0, "{settled} and {expired}");
    assert_eq!(world.rows("tasks_done").await, (ROUNDS * TASKS) as i64);
    assert_eq!(world.rows("tasks").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_settles_of_one_process_do_not_both_happen() {
    const ROUNDS: usize = 50;
    let world = World::<1>::new().await;
    let [store] = &world.stores;
    for _ in 0..ROUNDS {
        let tasks = world.claimed(5).await;
        // Not all of them, so that neither closes the claim, and both may lock it at once.
        let settle = async || write(store, tasks[..4].iter().map(complete)).await;
        join(settle(), settle()).await;
        write(store, tasks[4..].iter().map(complete)).await;
    }
    assert_eq!(world.rows("tasks_done").await, 5 * ROUNDS as i64);
}

#[tokio::test]
async fn a_cancel_by_another_process_reaches_the_next_renewal() {
    let world = World::<2>::new().await;
    let tasks = world.claimed(3).await;
    let (task, reason) = (tasks[1].id(), Some("enough".to_owned()));
    let cancel = Write::Cancel(Cancel { task, reason });
    write(&world.stores[1], [cancel].into_iter()).await;
    let renewals = world.renew(&world.stores[0], &tasks).await;
    let told = |renewal: &Renewal| matches!(renewal, Renewal::CancelRequested { reason: Some(reason), .. } if reason == "enough");
    let told: Vec<bool> = renewals.iter().map(told).collect();
    assert_eq!(told, [false, true, false]);
    write(&world.stores[0], tasks.iter().map(complete)).await;
    assert_eq!(world.rows("tasks_done").await, 3);
    assert_eq!(world.rows("tasks").await, 0);
}

#[tokio::test]
async fn what_is_renewed_in_part_leaves_the_rest_to_expire() {
    let world = World::<2>::new().await;
    let [holding, sweeping] = &world.stores;
    let tasks = world.claimed(4).await;
    world.clock.advance(LEASE / 2);
    // All of them: the claim is prolonged, and nothing is written for a task.
    world.renew(holding, &tasks).await;
    assert_eq!(world.rows("tasks").await, 0);
    world.clock.advance(LEASE / 2);
    let due = async || sweeping.due(Due { limit: 10 }).await.expect("what is due");
    assert_eq!(due().await.expired, []);
    let renewals = world.renew(holding, &tasks[..2]).await;
    assert!(
        renewals
            .iter()
            .all(|renewal| matches!(renewal, Renewal::Held { .. }))
    );
    world.clock.advance(LEASE / 2);
    let expired: BTreeSet<(TaskId, Fence)> = due().await.expired.into_iter().collect();
    let wanted = tasks[2..].iter().map(|task| (task.id(), task.fence));
    assert_eq!(expired, wanted.collect());
    write(holding, tasks[..2].iter().map(complete)).await;
    write(sweeping, tasks[2..].iter().map(expire)).await;
    let after = look(sweeping, &tasks).await;
    let failures: Vec<u32> = after.iter().map(|task| task.failures).collect();
    assert_eq!(failures, [0, 0, 1, 1]);
    assert_eq!(due().await.expired, []);
}

#[tokio::test]
async fn a_renewal_beside_a_settle_prolongs_the_claim() {
    let world = World::<1>::new().await;
    let [store] = &world.stores;
    let tasks = world.claimed(3).await;
    world.clock.advance(LEASE / 2);
    let exchange = Exchange {
        commits: vec![Commit::of(complete(&tasks[0]))],
        renew: Some(Renew {
            holders: tasks[1..].iter().map(holder).collect(),
            lease: LEASE,
        }),
        claim: None,
    };
    let done = store.exchange(exchange).await.expect("an exchange");
    assert!(done.renewals.expect("renewals").is_ok());
    assert_eq!(world.rows("tasks").await, 0);
    let after = look(store, &tasks[1..]).await;
    let until = world.clock.now().saturating_plus(LEASE);
    assert!(after.iter().all(|task| {
        task.lease
            .as_ref()
            .is_some_and(|lease| lease.until == until)
    }));
}

#[tokio::test]
async fn another_process_renews_amends_and_settles_for_the_holder() {
    let world = World::<2>::new().await;
    let [first, other] = &world.stores;
    let tasks = world.claimed(5).await;
    assert_eq!(look(other, &tasks).await, tasks);
    world.clock.advance(LEASE / 2);
    let renewals = world.renew(other, &tasks[..2]).await;
    assert!(
        renewals
            .iter()
            .all(|renewal| matches!(renewal, Renewal::Held { .. }))
    );
    let progressed = Amend {
        checkpoint: Some("here".into()),
        ..Amend::new(holder(&tasks[2]))
    };
    let amend = Write::Amend(Box::new(progressed));
    write(other, [amend, complete(&tasks[3])].into_iter()).await;
    // The holder finds each as it is.
    let after = look(first, &tasks).await;
    assert_eq!(after[2].checkpoint.as_deref(), Some(b"here".as_slice()));
    assert_eq!(after[3].status, Status::Completed);
    write(first, tasks.iter().map(complete)).await;
    assert_eq!(world.rows("tasks_done").await, 5);
    let counts = first.counts(Counts::default()).await.expect("counts");
    assert_eq!(counts[0].by_status.get(&Status::Completed), Some(&5));
    assert_eq!(counts[0].by_status.len(), 1, "{counts:?}");
}

#[tokio::test]
async fn progress_does_not_take_a_renewal_back() {
    let world = World::<2>::new().await;
    let [holding, other] = &world.stores;
    let tasks = world.claimed(1).await;
    let progress = async |checkpoint: &'static str| {
        let amend = Amend {
            checkpoint: Some(checkpoint.into()),
            ..Amend::new(holder(&tasks[0]))
        };
        write(holding, [Write::Amend(Box::new(amend))].into_iter()).await;
    };
    progress("here").await;
    world.clock.advance(LEASE / 2);
    let renewals = world.renew(other, &tasks).await;
    let until = world.clock.now().saturating_plus(LEASE);
    assert_eq!(renewals, [Renewal::Held { until }]);
    // The holder has not heard of that.
    progress("there").await;
    let after = look(holding, &tasks).await.remove(0);
    assert_eq!(after.checkpoint.as_deref(), Some(b"there".as_slice()));
    assert_eq!(after.lease.as_ref().map(|lease| lease.until), Some(until));
}

#[tokio::test]
async fn a_claim_is_repeated_for_what_it_still_holds() {
    let world = World::<2>::new().await;
    let request = world.ids.request();
    let new = (0..3).map(|_| NewTask::new(world.ids.task(), lane(), "x"));
    write(
        &world.stores[0],
        new.map(|new| Write::Submit(Box::new(new))),
    )
    .await;
    let tasks = world.claim(&world.stores[0], request).await;
    write(&world.stores[0], tasks[..1].iter().map(complete)).await;
    for store in &world.stores {
        assert_eq!(world.claim(store, request).await, tasks[1..]);
    }
}

#[tokio::test]
async fn a_claim_is_closed_with_its_last_task() {
    let world = World::<2>::new().await;
    let [holding, other] = &world.stores;
    let tasks = world.claimed(3).await;
    write(holding, tasks[..1].iter().map(complete)).await;
    assert_eq!(world.open_claims().await, 1);
    write(holding, tasks[1..].iter().map(complete)).await;
    assert_eq!(world.open_claims().await, 0);
    // Others look what is left.
    let tasks = world.claimed(3).await;
    write(holding, tasks[..1].iter().map(complete)).await;
    write(other, tasks[1..2].iter().map(complete)).await;
    assert_eq!(world.open_claims().await, 1);
    write(other, tasks[2..].iter().map(complete)).await;
    assert_eq!(world.open_claims().await, 0);
    // What is over, but still holds something, stays open until that has expired.
    let tasks = world.claimed(1).await;
    world.clock.advance(LEASE);
    other.due(Due { limit: 10 }).await.expect("what is due");
    assert_eq!(world.open_claims().await, 1);
    write(other, tasks.iter().map(expire)).await;
    assert_eq!(world.open_claims().await, 0);
    assert_eq!(look(other, &tasks).await[0].failures, 1);
}

#[tokio::test]
async fn a_refused_settle_leaves_the_claim_open() {
    let world = World::<1>::new().await;
    let [store] = &world.stores;
    let tasks = world.claimed(1).await;
    let mut wrong = holder(&tasks[0]);
    wrong.fence = wrong.fence.next();
    let how = Ending::Complete { result: None };
    let settle = Write::Settle(Settle { holder: wrong, how });
    let answers = store.commit(vec![Commit::of(settle)]).await;
    assert!(
        matches!(&answers[0], Err(Error::LeaseLost(_))),
        "{answers:?}"
    );
    assert_eq!(look(store, &tasks).await, tasks);
    write(store, tasks.iter().map(complete)).await;
}

#[tokio::test]
async fn a_guard_that_a_task_is_held_needs_no_row() {
    let world = World::<2>::new().await;
    let [holding, other] = &world.stores;
    let tasks = world.claimed(1).await;
    let put = || {
        let key = Key::new("result").expect("a key");
        Commit::of(Write::Put(Put::new(key, Default::default())))
            .guard(Guard::Held(holder(&tasks[0])))
    };
    for store in [holding, other] {
        store
            .commit(vec![put()])
            .await
            .remove(0)
            .expect("a receipt");
    }
    assert_eq!(world.rows("tasks").await, 0);
    write(other, tasks.iter().map(complete)).await;
    let refused = holding.commit(vec![put()]).await.remove(0);
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn an_id_that_is_used_again_is_another_task() {
    let world = World::<2>::new().await;
    let [holding, other] = &world.stores;
    let tasks = world.claimed(2).await;
    write(holding, tasks[..1].iter().map(complete)).await;
    let id = tasks[0].id();
    write(other, [Write::DeleteTask(id)].into_iter()).await;
    assert_eq!(world.open_claims().await, 1);
    let again = NewTask::new(id, lane(), "y");
    write(other, [Write::Submit(Box::new(again))].into_iter()).await;
    let second = world.claim(other, world.ids.request()).await;
    assert_eq!(second.len(), 1);
    assert_eq!(look(holding, &second).await, second);
    // Listed once, and settled by its own holder.
    let claimed = List::new(Selector::Lane(lane(), Status::Claimed), 10);
    let page = holding.list(claimed).await.expect("a page");
    assert_eq!(page.rows.len(), 2, "{page:?}");
    write(other, second.iter().map(complete)).await;
    write(holding, tasks[1..].iter().map(complete)).await;
    assert_eq!(world.rows("tasks_done").await, 2);
}

/// As when an answer is lost and the call is repeated before the server is done with the first.
#[tokio::test]
async fn a_settlement_that_waits_for_the_same_one_answers_as_that_one() {
    // Whoever waits for a lock does so until it is free.
    let world = World::<2>::with(|config| config.lock_timeout = Duration::from_secs(60)).await;
    let [holding, other] = &world.stores;
    let tasks = world.claimed(2).await;
    let line = NewLine {
        id: world.ids.line(),
        level: Level::Info,
        stage: None,
        message: "done".into(),
        metadata: None,
        step: None,
    };
    let log = Write::Log(Log {
        holder: holder(&tasks[0]),
        lines: vec![line],
    });
    let commit = Commit::of(log).write(complete(&tasks[0]));
    let commit = commit.id(world.ids.commit());
    let name = holding.namespace();
    let lock = format!(
        "BEGIN; SELECT FROM plimsoll.claims \
         WHERE ns = (SELECT ns FROM plimsoll.namespaces WHERE name = '{name}') FOR UPDATE"
    );
    world.sql.batch_execute(&lock).await.expect("a lock");
    let wait = async |waiting: i64| {
        let look = "SELECT count(*) FROM pg_stat_activity, pg_stat_clear_snapshot() \
                    WHERE application_name = $1 AND wait_event_type = 'Lock' \
                    AND query_start < clock_timestamp() - interval '100 ms'";
        loop {
            let found = world.sql.query_one(look, &[&name.as_str()]).await;
            if found.expect("an answer").get::<_, i64>(0) == waiting {
                break;
            }
        }
    };
    let first = holding.commit_one(commit.clone());
    let again = async {
        wait(1).await;
        other.commit_one(commit).await
    };
    let release = async {
        wait(2).await;
        world.sql.batch_execute("ROLLBACK").await.expect("an end");
    };
    let (first, again, ()) = join3(first, again, release).await;
    let repeated = true;
    let first = first.expect("a receipt");
    assert_eq!(again.expect("the same"), Receipt { repeated, ..first });
}
