use std::time::Duration;

use plimsoll_core::error::Error;
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::store::{
    Cancel, Claim, Claimed, Commit, Compact, Ending, Log, Pick, Settle, Write,
};
use plimsoll_core::task::{Holder, Lane, NewTask, Priority, Status, WorkerId};
use plimsoll_core::{
    Fence, Incarnation, Limits, LineId, Name, Namespace, RequestId, TaskId, Timestamp,
};
use rusqlite::Connection;

use crate::cache::Cache;
use crate::error::Fault;
use crate::lanes::Lanes;
use crate::rows;
use crate::transaction::Transaction;

/// A file, and what its writer keeps between transactions.
struct World {
    connection: Connection,
    limits: Limits,
    cache: Cache,
    lanes: Lanes,
    ns: i64,
}

impl World {
    fn new() -> Self {
        let connection = Connection::open_in_memory().expect("a database");
        let schema = include_str!("../../sql/schema.sql");
        connection.execute_batch(schema).expect("the tables");
        let mut world = Self {
            connection,
            limits: Limits::default(),
            cache: Cache::default(),
            lanes: Lanes::new(),
            ns: 0,
        };
        let name = Namespace::new("test").expect("a name");
        world.ns = world.transact(|transaction, _| transaction.namespace(&name).expect("a number"));
        world
    }

    /// Does this in a transaction, which must succeed.
    fn transact<T>(&mut self, act: impl FnOnce(&mut Transaction<'_>, i64) -> T) -> T {
        self.try_transact(act).expect("it is written")
    }

    fn try_transact<T>(
        &mut self,
        act: impl FnOnce(&mut Transaction<'_>, i64) -> T,
    ) -> Result<T, Fault> {
        let connection = &self.connection;
        connection.execute_batch("BEGIN IMMEDIATE").expect("a lock");
        let mut transaction =
            Transaction::new(connection, &self.limits, &mut self.cache, &mut self.lanes);
        let done = act(&mut transaction, self.ns);
        match transaction.finish() {
            Ok(_) => {
                connection.execute_batch("COMMIT").expect("a commit");
                Ok(done)
            }
            Err(fault) => {
                transaction.forget();
                connection.execute_batch("ROLLBACK").expect("a rollback");
                Err(fault)
            }
        }
    }

    fn count(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        (self.connection)
            .query_row(&count, [], |row| row.get(0))
            .expect("a count")
    }

    fn status(&self, task: u128) -> Option<Status> {
        let task = rows::task(&self.connection, self.ns, id(task)).expect("it can be read");
        task.map(|task| task.status)
    }
}

fn id(number: u128) -> TaskId {
    TaskId::from_u128(number)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000).expect("a time")
}

fn lane() -> Lane {
    Lane::new("q", "k").expect("a lane")
}

fn worker(number: u128) -> WorkerId {
    WorkerId {
        name: Name::new("w").expect("a name"),
        incarnation: Incarnation::from_u128(number),
    }
}

fn holder(task: u128, fence: u64) -> Holder {
    Holder {
        task: id(task),
        worker: worker(1),
        fence: Fence::new(fence),
    }
}

fn settle(task: u128, how: Ending) -> Write {
    Write::Settle(Settle {
        holder: holder(task, 1),
        how,
    })
}

fn complete(task: u128) -> Write {
    settle(task, Ending::Complete { result: None })
}

fn new(task: u128, priority: u8) -> NewTask {
    let priority = Priority::new(priority).expect("a priority");
    NewTask::new(id(task), lane(), "payload").priority(priority)
}

impl Transaction<'_> {
    #[track_caller]
    fn write(&mut self, ns: i64, write: Write, now: i64) {
        let answer = self.commit(ns, &Commit::of(write), at(now));
        answer.expect("an answer").expect("it is applied");
    }

    fn submit(&mut self, ns: i64, task: NewTask, now: i64) {
        self.write(ns, Write::Submit(Box::new(task)), now);
    }

    fn claim_as(&mut self, ns: i64, by: u128, limit: usize, request: u128, now: i64) -> Claimed {
        let claim = Claim {
            pick: Pick::Next {
                lanes: vec![lane()],
                limit,
            },
            worker: worker(by),
            lease: Duration::from_secs(60),
            request: RequestId::from_u128(request),
        };
        let answer = self.claim(ns, &claim, at(now));
        answer.expect("an answer").expect("a claim")
    }

    fn claim_next(&mut self, ns: i64, limit: usize, request: u128, now: i64) -> Vec<u128> {
        let claimed = self.claim_as(ns, 1, limit, request, now);
        (claimed.tasks.iter())
            .map(|task| task.id().as_u128())
            .collect()
    }
}

#[test]
fn claims_take_tasks_of_the_file_and_new_ones_in_one_order() {
    let mut world = World::new();
    world.transact(|transaction, ns| {
        for (task, priority, now) in [(11, 5, 1), (14, 5, 3), (12, 9, 4), (19, 1, 1)] {
            transaction.submit(ns, new(task, priority), now);
        }
    });
    world.transact(|transaction, ns| {
        for (task, priority, now) in [(10, 5, 3), (18, 5, 3), (13, 9, 3), (17, 0, 1), (16, 5, 1)] {
            transaction.submit(ns, new(task, priority), now);
        }
        // By priority, then by when they became runnable, then by id.
        let in_order = [13, 12, 11, 16, 10, 14, 18, 19, 17];
        let claimed = [(2, 1), (1, 2), (5, 3), (256, 4)]
            .map(|(limit, request)| transaction.claim_next(ns, limit, request, 5));
        assert_eq!(claimed.concat(), in_order);
        assert_eq!(claimed.map(|some| some.len()), [2, 1, 5, 1]);
    });
    assert_eq!(world.count("tasks WHERE status = 2"), 9);
    assert_eq!(world.count("tasks"), 9);
}

#[test]
fn a_repeated_claim_finds_what_it_took_in_the_same_transaction() {
    let mut world = World::new();
    world.transact(|transaction, ns| {
        transaction.submit(ns, new(1, 5), 1);
        assert_eq!(transaction.claim_next(ns, 1, 7, 1), [1]);
        transaction.submit(ns, new(2, 5), 1);
        assert_eq!(transaction.claim_next(ns, 1, 7, 2), [1]);
    });
    assert_eq!(
        [world.status(1), world.status(2)],
        [Some(Status::Claimed), Some(Status::Pending)]
    );
}

#[test]
fn a_task_that_comes_and_goes_in_one_transaction_leaves_nothing() {
    let mut world = World::new();
    world.transact(|transaction, ns| {
        transaction.submit(ns, new(1, 5), 1);
        assert_eq!(transaction.claim_next(ns, 1, 1, 1), [1]);
        let lines = vec![NewLine::new(LineId::from_u128(1), Level::Info, "at work")];
        let log = Log {
            holder: holder(1, 1),
            lines,
        };
        transaction.write(ns, Write::Log(log), 2);
        transaction.write(ns, complete(1), 2);
        transaction.write(ns, Write::DeleteTask(id(1)), 2);
    });
    for table in ["specs", "tasks", "done", "logs", "counts", "lanes"] {
        assert_eq!(world.count(table), 0, "{table}");
    }
    // Its id is free again, in the same transaction too.
    world.transact(|transaction, ns| {
        transaction.submit(ns, new(1, 5), 3);
        assert_eq!(transaction.claim_next(ns, 1, 2, 3), [1]);
        transaction.write(ns, complete(1), 3);
        transaction.write(ns, Write::DeleteTask(id(1)), 3);
        transaction.submit(ns, new(1, 5), 3);
    });
    assert_eq!(world.status(1), Some(Status::Pending));
    assert_eq!(world.count("specs"), 1);
}

#[test]
fn a_task_is_written_as_the_transaction_leaves_it() {
    let mut world = World::new();
    world.transact(|transaction, ns| {
        for task in 1..=40 {
            transaction.submit(ns, new(task, 5), 1);
        }
        assert_eq!(transaction.claim_next(ns, 30, 1, 1).len(), 30);
        for task in 1..=20 {
            transaction.write(ns, complete(task), 2);
        }
    });
    let statuses = [1, 20, 21, 30, 31, 40].map(|task| world.status(task));
    let (done, held, waits) = (Status::Completed, Status::Claimed, Status::Pending);
    assert_eq!(statuses, [done, done, held, held, waits, waits].map(Some));
    assert_eq!([world.count("tasks"), world.count("done")], [20, 20]);
    for (status, tasks) in [(1, 10), (2, 10), (3, 20)] {
        let counted = format!("counts WHERE status = {status} AND tasks = {tasks}");
        assert_eq!(world.count(&counted), 1, "{counted}");
    }
}

#[test]
fn a_task_that_is_given_back_is_claimed_again_in_the_same_transaction() {
    let mut world = World::new();
    world.transact(|transaction, ns| {
        transaction.submit(ns, new(1, 5), 1);
        transaction.submit(ns, new(2, 5), 2);
        assert_eq!(transaction.claim_next(ns, 1, 1, 2), [1]);
    });
    world.transact(|transaction, ns| {
        transaction.write(ns, settle(1, Ending::Release { reason: None }), 3);
        let claimed = transaction.claim_as(ns, 2, 2, 2, 3).tasks;
        let fences: Vec<_> = (claimed.iter())
            .map(|task| (task.id().as_u128(), task.fence.get()))
            .collect();
        // What is given back keeps its place.
        assert_eq!(fences, [(1, 2), (2, 1)]);
    });
    assert_eq!(world.count("tasks WHERE status = 2"), 2);
    assert_eq!(world.count("specs"), 2);
}

#[test]
fn a_claim_hears_when_a_new_task_is_due() {
    let mut world = World::new();
    world.transact(|transaction, ns| {
        transaction.submit(ns, new(1, 5).after(Duration::from_secs(90)), 10);
    });
    world.transact(|transaction, ns| {
        transaction.submit(ns, new(2, 5).after(Duration::from_secs(60)), 10);
        transaction.submit(ns, new(3, 5).after(Duration::from_secs(70)), 10);
        let claimed = transaction.claim_as(ns, 1, 1, 1, 11);
        assert_eq!((claimed.tasks.len(), claimed.next_due), (0, Some(at(70))));
        transaction.write(ns, Write::Cancel(cancel(2)), 11);
        let claimed = transaction.claim_as(ns, 1, 1, 2, 11);
        assert_eq!(claimed.next_due, Some(at(80)));
    });
}

fn cancel(task: u128) -> Cancel {
    Cancel {
        task: id(task),
        reason: None,
    }
}

#[test]
fn compaction_finds_what_ended_in_the_same_transaction() {
    let mut world = World::new();
    world.transact(|transaction, ns| {
        transaction.submit(ns, new(1, 5), 1);
        transaction.write(ns, Write::Cancel(cancel(1)), 1);
        let compact = Compact {
            tasks: [(Status::Cancelled, Duration::ZERO)].into(),
            groups: None,
            history: None,
            logs: None,
            limit: 10,
        };
        let compacted = transaction.compact(ns, &compact, at(2));
        assert_eq!(compacted.expect("an answer").tasks, 1);
    });
    assert_eq!([world.count("specs"), world.count("done")], [0, 0]);
}

#[test]
fn a_transaction_that_fails_at_its_end_leaves_nothing_in_memory() {
    let mut world = World::new();
    world.transact(|transaction, ns| {
        transaction.submit(ns, new(1, 5), 1);
        assert_eq!(transaction.claim_next(ns, 1, 1, 1), [1]);
    });
    world
        .connection
        .execute_batch(
            "CREATE TRIGGER mean BEFORE INSERT ON done \
             BEGIN SELECT RAISE(ABORT, 'not now'); END",
        )
        .expect("a trigger");
    let refused = world.try_transact(|transaction, ns| {
        transaction.submit(ns, new(2, 5), 2);
        transaction.write(ns, complete(1), 2);
    });
    assert!(matches!(refused, Err(Fault::Sqlite(_))), "{refused:?}");
    (world.connection)
        .execute_batch("DROP TRIGGER mean")
        .expect("no trigger");
    world.transact(|transaction, ns| {
        let status = |task| {
            let task = transaction.task(ns, id(task)).expect("it can be read");
            task.map(|task| task.status)
        };
        assert_eq!([status(1), status(2)], [Some(Status::Claimed), None]);
        let late = Commit::of(complete(2));
        let answer = transaction.commit(ns, &late, at(3)).expect("an answer");
        assert!(matches!(answer, Err(Error::LeaseLost(_))), "{answer:?}");
        transaction.write(ns, complete(1), 3);
    });
    assert_eq!(world.status(1), Some(Status::Completed));
}
