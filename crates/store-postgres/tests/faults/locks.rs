//! Rows that somebody else has locked, and statements that get into each other's way.

use std::time::Duration;

use futures::future::{join, join_all};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::error::Applied;
use plimsoll_core::group::NewGroup;
use plimsoll_core::store::{
    Commit, Ending, Exchange, Outcome, Settle, SubmitOutcome, Submitted, Write,
};
use plimsoll_core::task::{KeyLifetime, OnConflict, Task};
use plimsoll_core::{GroupId, IdempotencyKey, Result, Store};
use plimsoll_store_postgres::PostgresStore;
use plimsoll_store_postgres::tokio_postgres::Client;

use crate::world::{World, assert_told, claimed_of, is_well, one, put, submit, until, within};

const COMMITS: usize = 200;
/// Which of them needs the row.
const STUCK: usize = 17;
/// Longer than a commit that needs no locked row takes, however busy the machine is.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCKED: &str = "a row is locked by another transaction: look for one that is left open";

async fn patient() -> (World, PostgresStore, Client) {
    let mut world = World::shared().await;
    world.config.lock_timeout = LOCK_TIMEOUT;
    world.config.call_timeout = Duration::from_secs(10);
    let (store, stranger) = (world.open().await, world.stranger().await);
    (world, store, stranger)
}

/// Locks rows until it rolls back.
pub(crate) async fn lock(stranger: &Client, table: &str, condition: &str, world: &World) {
    let ns = world.namespace.as_str();
    let sql = format!(
        "BEGIN; SELECT 1 FROM plimsoll.{table} WHERE {condition} \
         AND ns = (SELECT ns FROM plimsoll.namespaces WHERE name = '{ns}') FOR UPDATE"
    );
    let locked = stranger.simple_query(&sql).await.expect("locked");
    assert!(locked.len() >= 4, "a row was locked: {locked:?}");
}

pub(crate) async fn free(stranger: &Client) {
    stranger.batch_execute("ROLLBACK").await.expect("free");
}

fn complete(task: &Task) -> Commit {
    let how = Ending::Complete { result: None };
    let holder = task.holder().expect("it is held");
    Commit::of(Write::Settle(Settle { holder, how }))
}

/// Of many commits one needs a row that is locked. The others are answered after one wait, the next
/// time at once; and others do not wait at all. That one succeeds when the row is free.
async fn one_is_stuck(
    (world, store, stranger): &(World, PostgresStore, Client),
    commits: [Vec<Commit>; 2],
) {
    let other = world.open().await;
    let clock = SystemClock::new();
    let stuck = commits[0][STUCK].clone();
    let mut first = None;
    for commits in commits {
        let (began, count) = (clock.monotonic(), commits.len());
        let beside = async {
            one(&other, put("beside")).await.expect("a commit");
            let took = clock.monotonic() - began;
            assert!(took < LOCK_TIMEOUT, "somebody else waited for {took:?}");
        };
        let call = within(20, "a call", store.commit(commits));
        let (answers, ()) = join(call, beside).await;
        let took = clock.monotonic() - began;
        println!("answered after {took:?}");
        // The first contains a whole wait. What the commits take beside that is up to the machine.
        let limit = first.map_or(LOCK_TIMEOUT * 4, |first: Duration| {
            first.saturating_sub(LOCK_TIMEOUT / 2)
        });
        assert!(
            took < limit,
            "{count} commits took {took:?}, not {limit:?} at most"
        );
        first.get_or_insert(took);
        for (place, answer) in answers.into_iter().enumerate() {
            match place {
                STUCK => assert_told(answer, Applied::No, LOCKED),
                _ => drop(answer.expect("a commit that needs no locked row")),
            }
        }
    }
    free(stranger).await;
    one(store, stuck).await.expect("the row is free");
    is_well(store).await;
}

#[tokio::test]
async fn a_locked_record_holds_up_only_who_needs_it() {
    let here = patient().await;
    let puts = || (0..COMMITS).map(|n| put(&format!("r{n}"))).collect();
    here.1.commit(puts()).await;
    lock(&here.2, "records", &format!("key = 'r{STUCK}'"), &here.0).await;
    one_is_stuck(&here, [puts(), puts()]).await;
}

#[tokio::test]
async fn a_locked_task_holds_up_only_who_settles_it() {
    let here = patient().await;
    // A task whose attempt has a limit has a row of its own while it is held.
    let limited = || {
        let limited = |_| here.0.task().attempt_timeout(Duration::from_secs(60));
        (0..COMMITS).map(limited).collect()
    };
    let tasks = claimed_of(&here.0, &here.1, limited()).await;
    let more = claimed_of(&here.0, &here.1, limited()).await;
    let stuck = &tasks[STUCK];
    lock(&here.2, "tasks", &format!("id = '{}'", stuck.id()), &here.0).await;
    let first: Vec<Commit> = tasks.iter().map(complete).collect();
    let mut second: Vec<Commit> = more.iter().map(complete).collect();
    second[STUCK] = first[STUCK].clone();
    one_is_stuck(&here, [first, second]).await;
}

#[tokio::test]
async fn a_locked_key_holds_up_only_who_submits_under_it() {
    let here = patient().await;
    let submits = || {
        let keyed = |n| {
            let key = IdempotencyKey::new(format!("key {n}")).expect("a key");
            submit(
                here.0
                    .task()
                    .key_with(key, KeyLifetime::Forever, OnConflict::default()),
            )
        };
        (0..COMMITS).map(keyed).collect::<Vec<_>>()
    };
    here.1.commit(submits()).await;
    lock(&here.2, "keys", &format!("key = 'key {STUCK}'"), &here.0).await;
    one_is_stuck(&here, [submits(), submits()]).await;
}

#[tokio::test]
async fn a_locked_group_holds_up_only_who_ends_its_tasks() {
    // No commit names its group, so that each becomes a transaction of its own.
    const COMMITS: usize = 40;
    let here = patient().await;
    let grouped = async |round: usize| -> Vec<Task> {
        let group = |n| match n {
            STUCK => "stuck".to_owned(),
            _ => format!("group {round} {n}"),
        };
        for n in 0..COMMITS {
            let group = GroupId::new(group(n)).expect("a group");
            let open = Write::OpenGroup(Box::new(NewGroup::new(group.clone())));
            let task = submit(here.0.task().group(group)).writes.remove(0);
            let commit = Commit::new().write(open).write(task);
            one(&here.1, commit).await.expect("a task in a group");
        }
        let claimed = here.1.claim(here.0.claim(COMMITS)).await;
        let mut tasks = claimed.expect("a claim").tasks;
        let is_stuck = |task: &Task| {
            task.spec
                .group
                .as_ref()
                .is_some_and(|group| group.as_str() == "stuck")
        };
        let at = tasks.iter().position(is_stuck).expect("one is stuck");
        tasks.swap(at, STUCK);
        tasks
    };
    let (tasks, more) = (grouped(1).await, grouped(2).await);
    lock(&here.2, "groups", "id = 'stuck'", &here.0).await;
    let completes = |tasks: &[Task]| tasks.iter().map(complete).collect();
    one_is_stuck(&here, [completes(&tasks), completes(&more)]).await;
}

#[tokio::test]
async fn a_deadlock_with_somebody_else_is_none_for_the_caller() {
    let (world, store, stranger) = patient().await;
    for name in ["a", "b"] {
        one(&store, put(name)).await.expect("a record");
    }
    lock(&stranger, "records", "key = 'b'", &world).await;
    let both = Commit::new()
        .write(put("a").writes.remove(0))
        .write(put("b").writes.remove(0));
    let other_order = async {
        let waits = "SELECT count(*) FROM pg_stat_activity \
                     WHERE wait_event_type = 'Lock' AND application_name = $1";
        let name = world.namespace.as_str();
        until(5, "waiting for b", async || {
            let watcher = stranger.query_one(waits, &[&name]).await;
            watcher.expect("a count").get::<_, i64>(0) > 0
        })
        .await;
        // One of the two is told to give way.
        let sql = "SELECT 1 FROM plimsoll.records WHERE key = 'a' FOR UPDATE";
        stranger.batch_execute(sql).await.ok();
        free(&stranger).await;
    };
    let (answer, ()) = join(one(&store, both), other_order).await;
    answer.expect("both are written");
    is_well(&store).await;
}

/// A schema whose records run this before they are written.
pub(crate) async fn with_trigger(schema: &str, body: &str) -> (World, Client) {
    let mut world = World::shared().await;
    let stranger = world.stranger().await;
    let drop = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
    stranger.batch_execute(&drop).await.expect("dropped");
    world.config.schema = schema.into();
    let migrated = plimsoll_store_postgres::migrate(&world.config).await;
    migrated.expect("migrated");
    let trigger = format!(
        "CREATE SEQUENCE {schema}.tries; \
         CREATE FUNCTION {schema}.trouble() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN {body} RETURN NEW; END $$; \
         CREATE TRIGGER trouble BEFORE INSERT ON {schema}.records \
         FOR EACH ROW WHEN (NEW.key = 'trouble') EXECUTE FUNCTION {schema}.trouble()"
    );
    stranger.batch_execute(&trigger).await.expect("a trigger");
    (world, stranger)
}

#[tokio::test]
async fn a_serialization_failure_is_tried_again_and_reported_if_it_stays() {
    let (world, stranger) = with_trigger(
        "fault_serialization",
        "IF nextval('fault_serialization.tries') <= 5 THEN \
         RAISE EXCEPTION 'no' USING ERRCODE = 'serialization_failure'; END IF;",
    )
    .await;
    let store = world.open().await;
    one(&store, put("trouble")).await.expect("the sixth time");
    let more = "DELETE FROM fault_serialization.records; \
                SELECT setval('fault_serialization.tries', 1, false); \
                ALTER SEQUENCE fault_serialization.tries MAXVALUE 3 CYCLE";
    stranger.batch_execute(more).await.expect("for ever");
    let answer = one(&store, put("trouble")).await;
    assert_told(answer, Applied::No, "again and again: try again");
    is_well(&store).await;
}

/// Records that are said to be locked when they are first written, as often as this.
async fn said_to_be_locked(schema: &str, times: usize) -> (World, PostgresStore, Client) {
    let body = format!(
        "IF nextval('{schema}.tries') <= {times} THEN \
         RAISE EXCEPTION 'no' USING ERRCODE = 'lock_not_available'; END IF;"
    );
    let (mut world, stranger) = with_trigger(schema, &body).await;
    (world.config.lock_timeout, world.config.call_timeout) = (LOCK_TIMEOUT, LOCK_TIMEOUT * 10);
    let store = world.open().await;
    (world, store, stranger)
}

#[tokio::test]
async fn a_row_that_was_locked_and_is_free_is_waited_for_the_next_time() {
    let (_world, store, stranger) = said_to_be_locked("fault_hiccup", 1).await;
    let answers = store.commit(vec![put("beside"), put("trouble")]).await;
    for answer in answers {
        answer.expect("it is free by now");
    }
    // Longer than anybody waits for what is known to stay locked.
    let lock = "BEGIN; SELECT 1 FROM fault_hiccup.records WHERE key = 'beside' FOR UPDATE";
    let locked = stranger.simple_query(lock).await.expect("locked");
    assert!(locked.len() >= 4, "a row was locked: {locked:?}");
    let clock = SystemClock::new();
    let freed = async {
        clock.sleep(LOCK_TIMEOUT / 2).await;
        free(&stranger).await;
    };
    let (answer, ()) = join(one(&store, put("beside")), freed).await;
    answer.expect("it was waited for");
}

#[tokio::test]
async fn a_row_that_everybody_wants_is_waited_for_three_times_if_it_was_locked_for_long() {
    // Once for both, three times for one of them, twice for the next.
    let (_world, store, _stranger) = said_to_be_locked("fault_wanted", 6).await;
    let answers = store.commit(vec![put("beside"), put("trouble")]).await;
    let mut answers = answers.into_iter();
    answers.next().expect("two").expect("not locked");
    assert_told(answers.next().expect("two"), Applied::No, LOCKED);
    one(&store, put("trouble")).await.expect("the seventh time");
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_reported_and_has_not_happened() {
    let (mut world, stranger) = with_trigger(
        "fault_slow",
        "IF nextval('fault_slow.tries') = 1 THEN PERFORM pg_sleep(60); END IF;",
    )
    .await;
    // The limit that the server is told is a tenth below that: it has to be heard within the difference.
    world.config.call_timeout = Duration::from_secs(10);
    let store = world.open().await;
    let answer = one(&store, put("trouble")).await;
    assert_told(answer, Applied::No, "longer than call_timeout allows");
    let found = stranger
        .query("SELECT 1 FROM fault_slow.records WHERE ns > 0", &[])
        .await;
    assert!(found.expect("records").is_empty());
    one(&store, put("trouble")).await.expect("the second time");
    is_well(&store).await;
}

#[tokio::test]
async fn a_second_look_for_tasks_that_fails_takes_nothing_back() {
    let (mut world, mut stranger) = with_trigger("fault_claims", "RAISE EXCEPTION 'no';").await;
    // Nobody but claims looks into the inbox.
    world.config.listen = false;
    let store = world.open().await;
    let trigger = "CREATE TRIGGER trouble BEFORE INSERT ON fault_claims.claims \
                   FOR EACH ROW EXECUTE FUNCTION fault_claims.trouble()";
    stranger.batch_execute(trigger).await.expect("a trigger");
    let transaction = stranger.transaction().await.expect("begun");
    let added = store.submit_in(&transaction, world.task()).await;
    added.expect("added");
    transaction.commit().await.expect("committed");
    let exchange = Exchange {
        commits: vec![put("first")],
        claim: Some(world.claim(1)),
        ..Exchange::default()
    };
    let done = store.exchange(exchange).await.expect("an exchange");
    assert!(done.commits[0].is_ok(), "{done:?}");
    assert!(matches!(&done.claimed, Some(Ok(claimed)) if claimed.tasks.is_empty()));
    let drop = "DROP TRIGGER trouble ON fault_claims.claims";
    stranger.batch_execute(drop).await.expect("no trigger");
    let claimed = store.claim(world.claim(1)).await.expect("a claim");
    assert_eq!(claimed.tasks.len(), 1);
}

#[tokio::test]
async fn of_many_who_submit_the_same_at_once_one_is_first() {
    let world = World::shared().await;
    let stores = join_all((0..6).map(|_| world.open())).await;
    for _ in 0..10 {
        let task = world.task();
        let key = IdempotencyKey::new(task.id.to_string()).expect("a key");
        let submits = stores.iter().enumerate().map(|(n, store)| {
            let same = match n % 2 {
                0 => task.clone(),
                _ => world.task(),
            };
            let same = same.key_with(key.clone(), KeyLifetime::Forever, OnConflict::default());
            one(store, submit(same))
        });
        let answers: Result<Vec<_>> = join_all(submits).await.into_iter().collect();
        answers.expect("everybody is answered");
    }
    let counts = stores[0]
        .counts(plimsoll_core::store::Counts::default())
        .await;
    let counts = counts.expect("counts");
    assert_eq!(counts.len(), 1);
    let claimed = stores[0].claim(world.claim(100)).await.expect("a claim");
    assert_eq!(claimed.tasks.len(), 10);
}

/// Many tasks are written by two transactions, one of which waits for the other. Nobody else may have to wait for both:
/// if they did the same, the server would not see that they wait for each other.
#[tokio::test]
async fn who_waits_for_the_transaction_beside_it_holds_no_keys() {
    let mut world = World::shared().await;
    world.config.lock_timeout = Duration::from_secs(60);
    world.config.call_timeout = Duration::from_secs(120);
    let store = world.open().await;
    world.config.lock_timeout = Duration::from_millis(200);
    let other = world.open().await;
    let (stranger, watcher) = (world.stranger().await, world.stranger().await);
    let keyed = |place: usize| {
        let key = IdempotencyKey::new(format!("key {place:03}")).expect("a key");
        submit(world.task().key(key))
    };
    let takes_first = format!(
        "BEGIN; INSERT INTO plimsoll.keys SELECT ns, 'key 000', gen_random_uuid() \
         FROM plimsoll.namespaces WHERE name = '{}'",
        world.namespace.as_str()
    );
    stranger.batch_execute(&takes_first).await.expect("taken");
    let last = keyed(399);
    let beside = async {
        let waits = "SELECT count(*) FROM pg_stat_activity \
                     WHERE wait_event_type = 'Lock' AND application_name = $1";
        let name = world.namespace.as_str();
        until(5, "waiting for the first key", async || {
            let count = watcher.query_one(waits, &[&name]).await;
            count.expect("a count").get::<_, i64>(0) == 1
        })
        .await;
        // Time enough for the other one to write whatever it does.
        SystemClock::new().sleep(Duration::from_millis(500)).await;
        one(&other, last.clone()).await.expect("nobody has its key");
        free(&stranger).await;
    };
    let (answers, ()) = join(store.commit((0..400).map(keyed).collect()), beside).await;
    let answers: Result<Vec<_>> = answers.into_iter().collect();
    let mut answers = answers.expect("everybody is answered");
    let Some(Write::Submit(first)) = last.writes.first() else {
        panic!("{last:?}");
    };
    let existing = Outcome::Submitted(Submitted {
        id: first.id,
        outcome: SubmitOutcome::Existing,
    });
    let answered = answers.pop().expect("the last one").outcomes;
    assert_eq!(answered, [existing]);
    for answer in answers {
        let created = |outcome: &Outcome| matches!(outcome, Outcome::Submitted(submitted) if submitted.outcome == SubmitOutcome::Created);
        assert!(answer.outcomes.iter().all(created), "{answer:?}");
    }
}
