-- Purpose: finished tasks by when retention began to count for them.
-- Inputs: $1 the namespace, $2 the status, $3 the youngest moment, $4 to $6 the place of the last one: its
-- moment, lane and id; $7 how many.
-- Results: the columns of a task, then its place; in this order. Locking: none.
SELECT {done_columns}, d.since, d.lane, d.id
FROM (
    SELECT *, coalesce(removable_from, finished_at) AS since
    FROM plimsoll.tasks_done
    WHERE ns = $1 AND status = $2 AND coalesce(removable_from, finished_at) <= $3
      AND (coalesce(removable_from, finished_at), lane, id) > ($4, $5, $6)
    ORDER BY coalesce(removable_from, finished_at)
    FETCH FIRST ($7) ROWS WITH TIES
) d
LEFT JOIN plimsoll.specs s ON s.ns = $1 AND s.id = d.id
ORDER BY d.since, d.lane, d.id
LIMIT $7
