-- Purpose: the next tasks of one lane that nobody else is taking, from a floor on for each priority: what is
-- before it is not even looked at.
-- Inputs: $1 the namespace, $2 the lane, $3 how many, $4 priorities, the highest first, and $5 their floors.
-- Results: the columns of a task, where its row is, its lane, and when the look began and ended; in the order
-- of claims.
-- Locking: the rows of `tasks`, and passes over those that others have locked.
SELECT {live_columns}, t.place, t.lane, statement_timestamp(), clock_timestamp()
FROM (
    SELECT w.*
    FROM unnest($4, $5) f(priority, floor)
    CROSS JOIN LATERAL (
        SELECT *, ctid AS place
        FROM plimsoll.tasks
        WHERE lane = $2 AND status = 1 AND priority = f.priority AND runnable_at >= f.floor
        ORDER BY runnable_at, id
        LIMIT $3
        FOR UPDATE SKIP LOCKED
    ) w
    LIMIT $3
) t
JOIN plimsoll.specs s ON s.ns = $1 AND s.id = t.id
ORDER BY t.priority DESC, t.runnable_at, t.id
