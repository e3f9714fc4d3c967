//! Tasks submitted inside transactions of others, from Rust and from SQL.

use std::time::Duration;

use plimsoll_core::store::{Changes, Commit, Due, Start, Tasks, Write};
use plimsoll_core::task::{KeyLifetime, NewTask, OnConflict, Priority, Task};
use plimsoll_core::{IdempotencyKey, Name, Store, TaskId};
use plimsoll_store_postgres::tokio_postgres::Client;
use plimsoll_store_postgres::tokio_postgres::error::SqlState;

use crate::server::{Server, lane, soon, until};

/// Calls `plimsoll.submit` in the namespace of the test, with these further arguments.
fn call(server: &Server, further: &str) -> String {
    format!(
        "SELECT plimsoll.submit('queue', 'x', '{{}}', namespace => '{}'{further})",
        server.namespace
    )
}

async fn payloads(server: &Server, store: &dyn Store, limit: usize) -> Vec<String> {
    let claimed = server.claim(store, &lane("x"), limit).await;
    let text = |task: &Task| String::from_utf8(task.spec.payload.to_vec()).expect("text");
    claimed.tasks.iter().map(text).collect()
}

async fn task(store: &dyn Store, id: TaskId) -> Option<Task> {
    let found = store.tasks(Tasks { ids: vec![id] }).await;
    found.expect("tasks").remove(0)
}

fn keyed(server: &Server, payload: &'static str) -> NewTask {
    let key = IdempotencyKey::new("key").expect("a key");
    NewTask::new(server.ids.task(), lane("x"), payload).key(key)
}

/// The task once somebody has taken it from the inbox.
async fn taken(store: &dyn Store, id: TaskId) -> Task {
    let mut found = None;
    until("it is taken", async || {
        store.due(Due { limit: 1 }).await.expect("due");
        found = task(store, id).await;
        found.is_some()
    })
    .await;
    found.expect("the task")
}

pub(crate) async fn in_inbox(server: &Server, client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM plimsoll.inbox JOIN plimsoll.namespaces USING (ns) \
               WHERE name = $1";
    let found = client.query_one(sql, &[&server.namespace.as_str()]).await;
    found.expect("asked").get(0)
}

pub(crate) async fn refused(server: &Server, client: &Client) -> Vec<String> {
    let sql = "SELECT reason FROM plimsoll.inbox_refused JOIN plimsoll.namespaces USING (ns) \
               WHERE name = $1 ORDER BY seq";
    let found = client.query(sql, &[&server.namespace.as_str()]).await;
    found
        .expect("refused")
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[tokio::test]
async fn a_rollback_leaves_nothing_and_a_commit_wakes_workers() {
    let server = Server::new("caller").await;
    let (store, worker) = (server.open().await, server.open().await);
    let mut wakeups = worker.wakeups();
    let mut client = server.stranger().await;
    for commits in [false, true] {
        let id = server.ids.task();
        let transaction = client.transaction().await.expect("begun");
        let new = NewTask::new(id, lane("x"), "payload");
        assert_eq!(store.submit_in(&transaction, new).await, Ok(id));
        assert!(
            payloads(&server, &worker, 10).await.is_empty(),
            "not yet committed"
        );
        match commits {
            false => transaction.rollback().await.expect("rolled back"),
            true => transaction.commit().await.expect("committed"),
        }
        if commits {
            while !soon(wakeups.next()).await.lanes.contains(&lane("x")) {}
            let claimed = server.claim(&worker, &lane("x"), 10).await;
            let found: Vec<_> = claimed.tasks.iter().map(Task::id).collect();
            assert_eq!(found, [id]);
        } else {
            assert!(payloads(&server, &worker, 10).await.is_empty());
            assert_eq!(task(&store, id).await, None);
        }
    }
}

/// Somebody submits in a transaction, and leaves it open. Others submit under the same key, work, and read the history
/// meanwhile, although none of them waits for a lock for longer than a moment.
#[tokio::test]
async fn a_transaction_that_is_left_open_delays_nobody() {
    let mut server = Server::new("left open").await;
    server.config.lock_timeout = Duration::from_millis(50);
    let store = server.open().await;
    let mut client = server.stranger().await;
    let transaction = client.transaction().await.expect("begun");
    let late = keyed(&server, "late");
    let id = late.id;
    store.submit_in(&transaction, late).await.expect("added");
    for _ in 0..10 {
        server.submit(&store, &lane("x")).await;
    }
    let submit = Commit::of(Write::Submit(Box::new(keyed(&server, "first"))));
    let receipt = store.commit(vec![submit]).await.remove(0);
    let receipt = receipt.expect("nobody has the key");
    let changes = Changes {
        start: Start::Oldest,
        interests: Vec::new(),
        limit: 100,
    };
    let page = store.changes(changes).await.expect("a page");
    let last = page.entries.last().expect("entries");
    assert_eq!(Some(last.position), receipt.position);
    assert_eq!(payloads(&server, &store, 100).await.len(), 11);
    store.due(Due { limit: 1 }).await.expect("a sweep");
    assert_eq!(task(&store, id).await, None);
    transaction.commit().await.expect("committed");
    until("the key is found to stand for another task", async || {
        store.due(Due { limit: 1 }).await.expect("due");
        in_inbox(&server, &client).await == 0
    })
    .await;
    assert_eq!(task(&store, id).await, None);
    assert!(payloads(&server, &store, 100).await.is_empty());
}

#[tokio::test]
async fn everything_about_a_task_gets_through() {
    let server = Server::new("whole").await;
    let store = server.open().await;
    let mut client = server.stranger().await;
    let name = |text| Name::new(text).expect("a name");
    let mut new = NewTask::new(server.ids.task(), lane("x"), vec![0, 255, 10])
        .priority(Priority::HIGHEST)
        .owner(name("owner"))
        .label(name("a"), name("b"))
        .max_attempts(u32::MAX)
        .attempt_timeout(Duration::from_secs(9))
        .key_with(
            IdempotencyKey::new("key").expect("a key"),
            KeyLifetime::For(Duration::from_secs(99)),
            OnConflict::Reject,
        );
    new.first_stage = Some(name("first"));
    new.trace = Some("trace".into());
    new.on_failure = Some(Box::new(NewTask::new(
        server.ids.task(),
        lane("y"),
        "sorry",
    )));
    let direct = NewTask {
        id: server.ids.task(),
        key: None,
        ..new.clone()
    };
    let transaction = client.transaction().await.expect("begun");
    store
        .submit_in(&transaction, new.clone())
        .await
        .expect("added");
    transaction.commit().await.expect("committed");
    let found = taken(&store, new.id).await;
    let spec = &found.spec;
    assert_eq!((&spec.lane, &spec.payload), (&new.lane, &new.payload));
    assert_eq!((spec.owner.clone(), &spec.labels), (new.owner, &new.labels));
    assert_eq!(
        (&spec.retry, spec.attempt_timeout),
        (&new.retry, new.attempt_timeout)
    );
    assert_eq!(
        (&spec.first_stage, &spec.trace),
        (&new.first_stage, &new.trace)
    );
    assert_eq!(
        (&spec.on_failure, found.priority),
        (&new.on_failure, new.priority)
    );
    let key = new.key.expect("a key");
    assert_eq!(spec.key, Some((key.key, key.lifetime)));
    // What is too large is refused at once, and leaves the transaction as it was.
    let large = NewTask {
        payload: vec![0; 256 * 1024 + 1].into(),
        ..direct
    };
    let transaction = client.transaction().await.expect("begun");
    let error = store
        .submit_in(&transaction, large)
        .await
        .expect_err("too large");
    assert!(
        error.to_string().contains("payload: 262145 bytes"),
        "{error}"
    );
    transaction.commit().await.expect("committed");
}

#[tokio::test]
async fn a_thousand_from_sql_come_in_their_order() {
    let server = Server::new("thousand").await;
    let store = server.open().await;
    let client = server.stranger().await;
    let all = format!(
        "SELECT plimsoll.submit('queue', 'x', to_jsonb(n), namespace => '{}') \
         FROM generate_series(1, 1000) n",
        server.namespace
    );
    client.batch_execute(&all).await.expect("submitted");
    // One notification, and nobody asks: all are taken.
    until("all are taken", async || {
        in_inbox(&server, &client).await == 0
    })
    .await;
    let found = payloads(&server, &store, 1000).await;
    let wanted: Vec<String> = (1..=1000).map(|n| n.to_string()).collect();
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn a_later_one_that_is_more_urgent_is_not_kept_waiting_by_a_backlog() {
    let server = Server::new("urgent").await;
    let store = server.open().await;
    let mut wakeups = store.wakeups();
    for _ in 0..3 {
        server.submit(&store, &lane("x")).await;
    }
    wakeups.take();
    let client = server.stranger().await;
    client
        .batch_execute(&call(&server, ", priority => 9"))
        .await
        .expect("submitted");
    // The claim finds as much as it asks for, so it does not look by itself.
    while !soon(wakeups.next()).await.lanes.contains(&lane("x")) {}
    assert_eq!(payloads(&server, &store, 1).await, ["{}"]);
}

#[tokio::test]
async fn keys_attach_and_what_is_refused_is_kept_with_the_reason_and_blocks_nobody() {
    let server = Server::new("keys").await;
    let store = server.open().await;
    let client = server.stranger().await;
    let taken = server.submit(&store, &lane("x")).await;
    let calls = [
        call(&server, ", key => 'k'"),
        call(&server, ", key => 'k'"),
        call(&server, ", key => 'k', on_conflict => 'reject'"),
        call(&server, &format!(", id => '{taken}'")),
        call(&server, ", key => 'l'"),
    ];
    client
        .batch_execute(&calls.join(";"))
        .await
        .expect("submitted");
    let further = "INSERT INTO plimsoll.inbox (ns, id, queue, kind, payload, priority, on_conflict, \
                   max_attempts) SELECT ns, gen_random_uuid(), 'queue', 'x', '', 77, 'attach', 1 \
                   FROM plimsoll.namespaces WHERE name = $1";
    client
        .execute(further, &[&server.namespace.as_str()])
        .await
        .expect("inserted");
    client
        .batch_execute(&call(&server, ", key => 'm'"))
        .await
        .expect("submitted");
    let mut found = Vec::new();
    until("three with keys and the first", async || {
        found.extend(payloads(&server, &store, 10).await);
        found.len() >= 4
    })
    .await;
    assert_eq!(found.len(), 4);
    let reasons = refused(&server, &client).await;
    let wanted = ["key", &format!("{taken}"), "priority"];
    assert_eq!(reasons.len(), wanted.len(), "{reasons:?}");
    for (reason, part) in reasons.iter().zip(wanted) {
        assert!(reason.contains(part), "{reason}");
    }
}

#[tokio::test]
async fn arguments_are_checked_and_the_error_names_them() {
    let server = Server::new("arguments").await;
    let _store = server.open().await;
    let client = server.stranger().await;
    let long = "x".repeat(129);
    let cases = [
        ("submit('', 'k', '{}')".into(), "queue: must not be empty"),
        (
            format!("submit('q', '{long}', '{{}}')"),
            "kind: 129 bytes, at most 128 are allowed",
        ),
        ("submit('q', 'k', NULL)".into(), "payload: must not be NULL"),
        (
            "submit_bytes('q', 'k', convert_to(repeat('x', 262145), 'UTF8'))".into(),
            "payload: 262145 bytes, at most 262144 are allowed",
        ),
        (
            "submit('q', 'k', '{}', priority => 11)".into(),
            "priority: 11 is not between 0 and 10",
        ),
        (
            "submit('q', 'k', '{}', priority => -1)".into(),
            "priority: -1 is not between 0 and 10",
        ),
        (
            "submit('q', 'k', '{}', max_attempts => -1)".into(),
            "max_attempts: -1 is not between 0 and 2147483647",
        ),
        (
            "submit('q', 'k', '{}', key => '')".into(),
            "key: must not be empty",
        ),
        (
            "submit('q', 'k', '{}', key => 'k', on_conflict => 'shout')".into(),
            "on_conflict: expected attach, reject, replace_pending or cancel_and_replace",
        ),
        (
            "submit('q', 'k', '{}', key_lifetime => '1 day')".into(),
            "key: is missing: key_lifetime and on_conflict are about it",
        ),
        (
            "submit('q', 'k', '{}', run_at => now(), delay => '1 day')".into(),
            "delay: not together with run_at",
        ),
        (
            "submit('q', 'k', '{}', delay => '-1 day')".into(),
            "delay: -1 days is not between 0 and 100 years",
        ),
        (
            "submit('q', 'k', '{}', run_at => 'infinity')".into(),
            "run_at: infinity is not between 1970 and 9999",
        ),
        (
            "submit('q', 'k', '{}', labels => '[]')".into(),
            "labels: expected an object",
        ),
        (
            "submit('q', 'k', '{}', labels => '{\"a\": 1}')".into(),
            "labels.a: expected text",
        ),
        (
            "submit('q', 'k', '{}', namespace => 'nobody opened this')".into(),
            "namespace: nobody opened this is not there: open it once",
        ),
    ];
    for (call, message) in cases {
        let refused = client
            .batch_execute(&format!("SELECT plimsoll.{call}"))
            .await;
        let refused = refused.expect_err(message);
        let error = refused.as_db_error().expect("an answer");
        assert_eq!(error.message(), message);
        assert_eq!(*error.code(), SqlState::INVALID_PARAMETER_VALUE);
    }
}

#[tokio::test]
async fn a_trigger_submits() {
    let server = Server::new("trigger").await;
    let store = server.open().await;
    let client = server.stranger().await;
    let table = format!("orders_{}", server.ids.task().as_u128());
    let create = format!(
        "CREATE TABLE {table} (n int); \
         CREATE FUNCTION {table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM plimsoll.submit('queue', 'x', to_jsonb(NEW.n), namespace => '{}'); \
         RETURN NULL; END $$; \
         CREATE TRIGGER t AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}();",
        server.namespace
    );
    client.batch_execute(&create).await.expect("created");
    client
        .batch_execute(&format!("INSERT INTO {table} VALUES (1), (2)"))
        .await
        .expect("inserted");
    let mut found = Vec::new();
    until("two tasks", async || {
        found.extend(payloads(&server, &store, 10).await);
        found.len() >= 2
    })
    .await;
    assert_eq!(found, ["1", "2"]);
    let gone = format!("DROP TABLE {table}; DROP FUNCTION {table}()");
    client.batch_execute(&gone).await.expect("dropped");
}

#[tokio::test]
async fn delayed_ones_wait_and_the_sweep_finds_them_without_anybody_listening() {
    let mut server = Server::new("delayed").await;
    server.config.listen = false;
    let store = server.open().await;
    let client = server.stranger().await;
    let sql = call(&server, ", delay => '1 hour'");
    let row = client
        .query_one(&format!("{sql}::text"), &[])
        .await
        .expect("submitted");
    let id = TaskId::parse(row.get(0)).expect("an id");
    assert_eq!(task(&store, id).await, None);
    store.due(Due { limit: 1 }).await.expect("due");
    let found = task(&store, id).await.expect("taken");
    let waits = found.runnable_at.since(found.spec.created_at);
    assert!(waits > Duration::from_secs(3_500), "{waits:?}");
    assert!(payloads(&server, &store, 1).await.is_empty());
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_while_backends_are_killed() {
    let server = Server::new("killed").await;
    let stores = [server.open().await, server.open().await];
    let client = server.stranger().await;
    let name = server.config.server.get_application_name().expect("a name");
    let kill = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
    );
    let mut found = Vec::new();
    for round in 0..20 {
        let some = format!(
            "SELECT plimsoll.submit('queue', 'x', to_jsonb(n), namespace => '{}') \
             FROM generate_series({}, {}) n",
            server.namespace,
            round * 100 + 1,
            round * 100 + 100
        );
        client.batch_execute(&some).await.expect("submitted");
        // Whoever is taking them right now is cut off somewhere.
        let killed = client.batch_execute(&kill);
        let taken = stores[round % 2].due(Due { limit: 1 });
        let (killed, _) = futures::join!(killed, taken);
        killed.expect("killed");
    }
    until("all are claimed", async || {
        found.extend(payloads(&server, &stores[0], 1000).await);
        found.len() >= 2000
    })
    .await;
    found.sort_by_key(|n| n.parse::<u32>().expect("a number"));
    let wanted: Vec<String> = (1..=2000).map(|n| n.to_string()).collect();
    assert_eq!(found, wanted);
    assert!(refused(&server, &client).await.is_empty());
}

#[tokio::test]
async fn whoever_dies_while_taking_leaves_them_to_the_next() {
    let server = Server::new("dies").await;
    let store = server.open().await;
    let (mut holder, client) = (server.stranger().await, server.stranger().await);
    let keyed = call(&server, ", key => 'k'");
    client.batch_execute(&keyed).await.expect("submitted");
    until("the first one", async || {
        payloads(&server, &store, 1).await.len() == 1
    })
    .await;
    // Whoever takes the next ones has to wait for the row of the key.
    let hold = holder.transaction().await.expect("begun");
    let lock = "SELECT 1 FROM plimsoll.keys JOIN plimsoll.namespaces USING (ns) WHERE name = $1 \
                FOR UPDATE OF keys";
    hold.execute(lock, &[&server.namespace.as_str()])
        .await
        .expect("held");
    let three = [call(&server, ""), keyed, call(&server, "")].join(";");
    client.batch_execute(&three).await.expect("submitted");
    let name = server.config.server.get_application_name().expect("a name");
    let kill = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name = '{name}' AND wait_event_type = 'Lock'"
    );
    until("somebody waits", async || {
        client.execute(&kill, &[]).await.expect("asked") > 0
    })
    .await;
    hold.rollback().await.expect("released");
    let mut found = Vec::new();
    until("the two without a key", async || {
        found.extend(payloads(&server, &store, 10).await);
        found.len() >= 2
    })
    .await;
    assert_eq!((found.len(), in_inbox(&server, &client).await), (2, 0));
}

#[tokio::test]
async fn who_finds_somebody_else_at_it_comes_back() {
    let server = Server::new("turn").await;
    let (mut holder, client) = (server.stranger().await, server.stranger().await);
    let store = server.open().await;
    let mut wakeups = store.wakeups();
    let hold = holder.transaction().await.expect("begun");
    let turn = "SELECT pg_advisory_xact_lock(hashtextextended('\"plimsoll\".inbox ' || ns, 0)) \
                FROM plimsoll.namespaces WHERE name = $1";
    let held = hold.execute(turn, &[&server.namespace.as_str()]).await;
    assert_eq!(held.expect("held"), 1);
    client
        .batch_execute(&call(&server, ""))
        .await
        .expect("submitted");
    let name = server.config.server.get_application_name().expect("a name");
    let tried = "SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND query = 'ROLLBACK'";
    until("it was tried", async || {
        client.execute(tried, &[&name]).await.expect("asked") > 0
    })
    .await;
    assert!(wakeups.take().lanes.is_empty());
    hold.rollback().await.expect("released");
    until("it is taken", async || {
        wakeups.take().lanes.contains(&lane("x"))
    })
    .await;
}

#[tokio::test]
async fn who_only_polls_finds_them_with_the_next_claim() {
    let mut server = Server::new("claims").await;
    server.config.listen = false;
    let store = server.open().await;
    let client = server.stranger().await;
    client
        .batch_execute(&call(&server, ""))
        .await
        .expect("submitted");
    assert_eq!(payloads(&server, &store, 2).await, ["{}"]);
}
