-- Purpose: scheduled tasks that are due.
-- Inputs: $1 the namespace, $2 now, $3 how many.
-- Results: the columns of a task without its payload, then its id; the earliest first. Locking: none.
-- {payload} = ''::bytea
SELECT {live_columns}, t.id
FROM (
    SELECT *
    FROM plimsoll.tasks
    WHERE ns = $1 AND status = 0 AND runnable_at <= $2
    ORDER BY runnable_at
    LIMIT $3
) t
LEFT JOIN plimsoll.specs s ON s.ns = t.ns AND s.id = t.id
ORDER BY t.runnable_at
