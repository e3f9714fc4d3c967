-- Purpose: sums up what transactions have added to the counts. Readers see the rows or their sum.
-- Inputs: $1 the namespace, $2 how many rows.
-- Results: of how many rows it was.
-- Locking: these rows; one that another process is summing up is not counted here.
WITH many AS (
    SELECT queue, kind, status
    FROM plimsoll.counts
    WHERE ns = $1
    GROUP BY queue, kind, status
    HAVING count(*) > 1 OR sum(tasks) = 0
),
taken AS (
    DELETE FROM plimsoll.counts
    WHERE ctid = ANY(ARRAY(
        SELECT c.ctid
        FROM many m
        JOIN plimsoll.counts c ON c.ns = $1 AND c.queue = m.queue AND c.kind = m.kind AND c.status = m.status
        LIMIT $2
        FOR UPDATE OF c SKIP LOCKED
    ))
    RETURNING queue, kind, status, tasks
),
folded AS (
    INSERT INTO plimsoll.counts
    SELECT $1, queue, kind, status, sum(tasks)
    FROM taken
    GROUP BY queue, kind, status
    HAVING sum(tasks) <> 0
)
SELECT count(*) FROM taken
