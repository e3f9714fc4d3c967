//! That the view of jobs finds what is asked for by an index, among many.

use crate::server::Place;

const FILL: &str = "
INSERT INTO namespaces (name) SELECT 'n' || g FROM generate_series(1, 5) g;
CREATE TEMP TABLE made AS
SELECT g, (SELECT ns FROM namespaces WHERE name = 'n' || (1 + g % 5)) AS ns, first_id(now() - g * interval '1 second') AS id, 'q' || g % 20 AS queue,
    CASE WHEN g % 100 = 0 THEN 1 WHEN g % 200 = 3 THEN 4 ELSE 3 END AS status
FROM generate_series(1, 50000) g;
INSERT INTO specs (ns, id, lane, born, created_at, max_attempts, queue, kind, payload, owner)
SELECT ns, id, lane_of(ns, queue, 'k'), g, now(), 4, queue, 'k', '{}', 'u' || g % 1000 FROM made;
INSERT INTO tasks (ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures)
SELECT ns, lane_of(ns, queue, 'k'), id, status, 5, now(), now(), g, 0, 0, 0 FROM made WHERE status = 1;
INSERT INTO tasks_done (ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts,
    failures, finished_at, removable_from)
SELECT ns, lane_of(ns, queue, 'k'), id, status, 5, now(), now(), g, 1, 1, 0, now(), now()
FROM made WHERE status > 1;
ANALYZE namespaces, specs, tasks, tasks_done";

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
    let month = place
        .column("SELECT DISTINCT tableoid::regclass FROM tasks_done")
        .await;
    let month = month.concat();
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
