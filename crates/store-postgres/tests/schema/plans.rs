//! That the views find what is asked for by an index, among many.

use crate::server::Place;

const FILL: &str = "
INSERT INTO namespaces (name) SELECT 'n' || g FROM generate_series(1, 5) g;
CREATE TEMP TABLE made AS
SELECT g, (SELECT ns FROM namespaces WHERE name = 'n' || (1 + g % 5)) AS ns, first_id(now() - g * interval '1 second') AS id, 'q' || g % 20 AS queue,
    CASE WHEN g % 100 = 0 THEN 1 WHEN g % 1000 = 1 THEN 2 WHEN g % 200 = 3 THEN 4 ELSE 3 END AS status
FROM generate_series(1, 50000) g;
INSERT INTO specs (ns, id, lane, born, created_at, max_attempts, queue, kind, payload, owner)
SELECT ns, id, lane_of(ns, queue, 'k'), g, now(), 4, queue, 'k', '{}', 'u' || g % 1000 FROM made;
INSERT INTO tasks (ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures,
    until, worker, incarnation)
SELECT ns, lane_of(ns, queue, 'k'), id, status, 5, now(), now(), g, 0, 0, 0,
    CASE status WHEN 2 THEN now() END, CASE status WHEN 2 THEN 'w' END, CASE status WHEN 2 THEN id END
FROM made WHERE status < 3;
INSERT INTO tasks_done (ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts,
    failures, finished_at, removable_from)
SELECT ns, lane_of(ns, queue, 'k'), id, status, 5, now(), now(), g, 1, 1, 0, now(), now()
FROM made WHERE status > 2;
INSERT INTO logs (ns, task, id, level, fence, at, message, step)
SELECT ns, id, id, 1, 1, now() - g * interval '1 second', 'm', jsonb_build_object('step_id', 's') FROM made;
INSERT INTO records SELECT ns, 'config.' || g, '{}', g, now(), NULL FROM made;
INSERT INTO records
SELECT ns, 'plimsoll.workers.w/' || g, '{\"status\": \"active\", \"ttl_ms\": \"1\"}', g, now(), now() + interval '1 hour'
FROM made WHERE g <= 100;
ANALYZE namespaces, specs, tasks, tasks_done, logs, records";

/// The partition that has rows, beside its ballast.
async fn month(place: &Place) -> String {
    let found = "SELECT DISTINCT tableoid::regclass FROM tasks_done WHERE ns > 0";
    let found = place.column(found).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.concat()
}

#[tokio::test]
async fn jobs_are_found_by_an_index() {
    let place = Place::new("test_plans").await;
    place.run(FILL).await;
    let id = async |g| {
        place
            .column(&format!("SELECT id FROM made WHERE g = {g}"))
            .await
            .concat()
    };
    let (id, recent) = (id(777).await, id(100).await);
    let month = month(&place).await;
    let filters = [
        (format!("job_id = '{id}'"), 1),
        (format!("namespace = 'n3' AND job_id = '{id}'"), 1),
        ("user_id = 'u7'".into(), 50),
        ("namespace = 'n3' AND user_id = 'u7'".into(), 50),
        (
            "namespace = 'n1' AND queue = 'q0' AND status = 'pending'".into(),
            500,
        ),
        (
            "namespace = 'n4' AND queue = 'q3' AND status = 'failed'".into(),
            250,
        ),
        (format!("namespace = 'n3' AND job_id >= '{recent}'"), 20),
    ];
    for (filter, expected) in filters {
        let query = format!("SELECT job_id, status FROM jobs WHERE {filter}");
        let plan = place.column(&format!("EXPLAIN {query}")).await.join("\n");
        let found = place.column(&query).await.len();
        assert_eq!(found, expected, "{filter}");
        assert!(!plan.contains("Seq Scan on specs"), "{filter}\n{plan}");
        // Of the partitions, only this month's has rows.
        let full = format!("Seq Scan on {month} ");
        assert!(!plan.contains(&full), "{filter}\n{plan}");
    }
    place.drop().await;
}

/// The indexes of the document, the queries that they are for, and which of ours answer them: the
/// table of the guide.
const OF_THE_DOCUMENT: [(&str, &str, &[&str]); 11] = [
    (
        "idx_status",
        "SELECT job_id FROM jobs WHERE namespace = 'n4' AND status = 'failed'",
        &["tasks_done_by_age"],
    ),
    (
        "idx_jobs_status_created",
        "SELECT job_id FROM jobs WHERE namespace = 'n4' AND status = 'failed' ORDER BY created_at DESC LIMIT 20",
        &["tasks_done_by_age"],
    ),
    (
        "idx_user_id",
        "SELECT job_id FROM jobs WHERE user_id = 'u7'",
        &["specs_by_owner"],
    ),
    (
        "idx_jobs_user_created",
        "SELECT job_id FROM jobs WHERE namespace = 'n3' AND user_id = 'u7' ORDER BY created_at DESC LIMIT 20",
        &["specs_by_owner"],
    ),
    (
        "idx_created_at",
        "SELECT job_id FROM jobs WHERE namespace = 'n3' AND job_id >= first_id(now() - interval '1 minute') ORDER BY job_id DESC",
        &["specs_pkey"],
    ),
    (
        "idx_worker_id",
        "SELECT job_id FROM jobs WHERE task_status = 'claimed' AND worker_id = 'w#1'",
        &["tasks_leased"],
    ),
    (
        "idx_priority_created",
        "SELECT id FROM tasks WHERE lane = lane_of(1, 'q0', 'k') AND status = 1 ORDER BY priority DESC, runnable_at, id LIMIT 20",
        &["tasks_ready"],
    ),
    (
        "idx_job_id",
        "SELECT message FROM job_logs WHERE job_id = first_id('2026-01-01')",
        &["logs_pkey", "logs_ns_task_id_key"],
    ),
    (
        "idx_timestamp",
        "SELECT message FROM job_logs WHERE namespace = 'n3' AND timestamp > now() - interval '1 minute'",
        &["logs_by_age"],
    ),
    (
        "idx_job_id",
        "SELECT step_id FROM execution_steps WHERE job_id = first_id('2026-01-01')",
        &["logs_pkey", "logs_ns_task_id_key"],
    ),
    (
        "idx_last_heartbeat",
        "SELECT worker_id FROM workers WHERE status = 'active' AND last_heartbeat < now() - interval '30 seconds'",
        &["records_pkey"],
    ),
];

#[tokio::test]
async fn what_the_document_has_an_index_for_is_found_by_one_of_ours() {
    let place = Place::new("test_indexes").await;
    place.run(FILL).await;
    // Of tasks that have not ended there are few. Of the partitions, only this month's has rows.
    let large = ["specs", "logs", "records", &month(&place).await];
    for (theirs, query, ours) in OF_THE_DOCUMENT {
        let plan = place.column(&format!("EXPLAIN {query}")).await.join("\n");
        // An index of a table with partitions has another name in each.
        let names = format!(
            "SELECT name FROM unnest('{{{0}}}'::text[]) name UNION ALL \
             SELECT inhrelid::regclass::text FROM pg_inherits \
             WHERE inhparent = ANY (('{{{0}}}'::text[])::regclass[])",
            ours.join(",")
        );
        let names = place.column(&names).await;
        let used = names
            .iter()
            .any(|name| plan.contains(&format!("{name} ")) || plan.contains(&format!("{name}\n")));
        assert!(used, "{theirs}: none of {names:?}\n{plan}");
        for table in large {
            let read = format!("Seq Scan on {table} ");
            assert!(!plan.contains(&read), "{theirs}: {query}\n{plan}");
        }
    }
    place.drop().await;
}
