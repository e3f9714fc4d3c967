//! What the database itself refuses, whoever asks.

use std::time::Duration;

use plimsoll_core::record::fields;
use plimsoll_core::store::{Commit, Put, Write};
use plimsoll_core::task::{Lane, NewTask};
use plimsoll_core::{StoreExt, TaskId};
use tokio_postgres::error::SqlState;

use crate::server::Place;

/// One claimed, one pending and one completed task, and a record.
async fn filled(schema: &str) -> Place {
    let place = Place::new(schema).await;
    let engine = place.engine().await;
    let tasks = engine.tasks();
    for n in 1..=3 {
        let lane = Lane::new("media", "clip").unwrap();
        let task = NewTask::new(TaskId::from_u128(n), lane, "{}");
        tasks.submit(task).await.unwrap();
    }
    let worker = tasks.worker("w1").unwrap();
    let lease = Duration::from_secs(60);
    tasks
        .claim(TaskId::from_u128(1), &worker, lease)
        .await
        .unwrap();
    let held = tasks
        .claim(TaskId::from_u128(3), &worker, lease)
        .await
        .unwrap();
    held.complete("[]").await.unwrap();
    let put = Put::new(
        "config.a".try_into().unwrap(),
        fields([("x", "1")]).unwrap(),
    );
    engine
        .store()
        .commit_one(Commit::of(Write::Put(put)))
        .await
        .unwrap();
    place
}

/// Another task, as a task that waits but for this.
const COPY: &str = "INSERT INTO tasks SELECT (jsonb_populate_record(t, jsonb_build_object(%))).* \
                    FROM tasks t WHERE id = '00000000-0000-0000-0000-000000000002'";

const PENDING: &str = "id = '00000000-0000-0000-0000-000000000002'";
const CLAIMED: &str = "id = '00000000-0000-0000-0000-000000000001'";

#[tokio::test]
async fn what_breaks_an_invariant_is_refused() {
    let place = filled("test_guards").await;
    let refused = [
        format!("UPDATE tasks SET status = 7 WHERE {PENDING}"),
        format!("UPDATE tasks SET status = 3 WHERE {PENDING}"),
        format!("UPDATE tasks SET priority = 11 WHERE {PENDING}"),
        // Only what is claimed has a worker, and what is claimed has one.
        format!("UPDATE tasks SET worker = 'w' WHERE {PENDING}"),
        format!("UPDATE tasks SET worker = NULL WHERE {CLAIMED}"),
        format!("UPDATE tasks SET until = NULL WHERE {CLAIMED}"),
        format!("UPDATE tasks SET status = 1 WHERE {CLAIMED}"),
        // What grows never falls.
        format!("UPDATE tasks SET fence = fence - 1 WHERE {CLAIMED}"),
        format!("UPDATE tasks SET revision = revision - 1 WHERE {CLAIMED}"),
        format!("UPDATE tasks SET attempts = attempts - 1 WHERE {CLAIMED}"),
        "UPDATE records SET revision = revision - 1 WHERE key = 'config.a'".into(),
        // Nor does a task come back without the fences of its attempts.
        format!("UPDATE tasks SET attempts = fence + 1 WHERE {CLAIMED}"),
        COPY.replace('%', "'id', gen_random_uuid(), 'attempts', 2, 'fence', 1"),
        // What has ended stays as it ended.
        "UPDATE tasks_done SET status = 4".into(),
        "UPDATE tasks_done SET finished_at = finished_at + interval '1 hour'".into(),
    ];
    for sql in refused {
        assert_eq!(
            place.refusal(&sql).await,
            SqlState::CHECK_VIOLATION,
            "{sql}"
        );
    }
    let copy = "INSERT INTO tasks_done SELECT (jsonb_populate_record(d, jsonb_build_object(%))).* FROM tasks_done d";
    for change in [
        "'started_at', finished_at + interval '1 second'",
        "'status', 2",
        "'status', 6",
        "'priority', 11",
        "'attempts', 2",
    ] {
        let sql = copy.replace('%', change);
        assert_eq!(
            place.refusal(&sql).await,
            SqlState::CHECK_VIOLATION,
            "{sql}"
        );
    }
    // The same statements without what breaks something are not refused.
    place
        .run(&format!("UPDATE tasks SET priority = 10 WHERE {PENDING}"))
        .await;
    place
        .run(&format!(
            "UPDATE tasks SET fence = fence + 1, revision = revision + 1 WHERE {CLAIMED}"
        ))
        .await;
    place.run(&copy.replace('%', "'status', 4")).await;
    let again = "'id', gen_random_uuid(), 'attempts', 2, 'fence', 2";
    place.run(&COPY.replace('%', again)).await;
    place.drop().await;
}

/// What was claimed for the first time has no row of its own: its fence, revision and holder are those of the claim.
#[tokio::test]
async fn a_claim_stays_what_it_is() {
    let place = filled("test_claims").await;
    let engine = place.engine().await;
    let tasks = engine.tasks();
    let worker = tasks.worker("w2").unwrap();
    let (lane, lease) = (Lane::new("media", "clip").unwrap(), Duration::from_secs(60));
    let held = tasks.claim_next([lane], 1, &worker, lease).await.unwrap();
    assert_eq!(held.len(), 1);
    for change in [
        "revision = revision - 1",
        "revision = revision + 1",
        "fences = '{0}'",
        "incarnation = gen_random_uuid()",
    ] {
        let sql = format!("UPDATE claims SET {change} WHERE until IS NOT NULL");
        assert_eq!(
            place.refusal(&sql).await,
            SqlState::CHECK_VIOLATION,
            "{sql}"
        );
    }
    place
        .run("UPDATE claims SET until = until + interval '1 minute' WHERE until IS NOT NULL")
        .await;
    place.run("UPDATE claims SET until = NULL").await;
    let open = "UPDATE claims SET until = now()";
    assert_eq!(place.refusal(open).await, SqlState::CHECK_VIOLATION);
    place.drop().await;
}

#[tokio::test]
async fn a_line_of_a_log_has_a_known_level() {
    let place = filled("test_levels").await;
    let line = |level: i16| {
        format!(
            "INSERT INTO logs (ns, task, id, level, fence, at, message) \
             VALUES (1, gen_random_uuid(), gen_random_uuid(), {level}, 1, now(), 'x')"
        )
    };
    for level in [-1, 4] {
        let refusal = place.refusal(&line(level)).await;
        assert_eq!(refusal, SqlState::CHECK_VIOLATION, "{level}");
    }
    for level in 0..4 {
        place.run(&line(level)).await;
    }
    place.drop().await;
}
