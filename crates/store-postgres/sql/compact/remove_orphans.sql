-- Purpose: removes lines whose task is gone.
-- Inputs: $1 the namespace, $2 how many lines.
-- Results: how many lines went.
-- Locking: the rows of `orphans`, and passes over those that others have locked: each log is left to one
-- process.
WITH few AS (
    SELECT task, upto
    FROM plimsoll.orphans
    WHERE ns = $1
    ORDER BY task
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM plimsoll.logs
    WHERE ctid = ANY(ARRAY(
        SELECT l.place
        FROM few o
        CROSS JOIN LATERAL (
            SELECT ctid AS place
            FROM plimsoll.logs
            WHERE ns = $1 AND task = o.task AND seq <= o.upto
            ORDER BY seq
            LIMIT $2
        ) l
        LIMIT $2
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
