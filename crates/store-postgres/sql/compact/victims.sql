-- Purpose: finished tasks that were kept long enough.
-- Inputs: $1 the namespace, $2 the status, $3 the youngest moment, $4 how many.
-- Results: the columns of a task without payload and result; the oldest first.
-- Locking: the rows of `tasks_done`, and passes over those that others have locked.
-- {payload} = ''::bytea
-- {result} = NULL::bytea
SELECT {done_columns}
FROM (
    SELECT *
    FROM plimsoll.tasks_done
    WHERE ns = $1 AND status = $2 AND coalesce(removable_from, finished_at) <= $3
    ORDER BY coalesce(removable_from, finished_at)
    LIMIT $4
    FOR UPDATE SKIP LOCKED
) d
LEFT JOIN plimsoll.specs s ON s.ns = $1 AND s.id = d.id
ORDER BY coalesce(d.removable_from, d.finished_at), d.lane, d.id
