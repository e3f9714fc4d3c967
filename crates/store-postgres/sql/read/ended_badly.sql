-- Purpose: tasks of a lane that have not ended well, which have an index of their own.
-- Inputs: $1 the namespace, $2 the lane, $3 the first id, $4 how many, $5 the status.
-- Results: the columns of a task, then its id; in id order. Locking: none.
SELECT {done_columns}, d.id
FROM (
    SELECT *
    FROM plimsoll.tasks_done
    WHERE lane = $2 AND status = $5 AND status > 3 AND id >= $3
    ORDER BY id
    LIMIT $4
) d
LEFT JOIN plimsoll.specs s ON s.ns = $1 AND s.id = d.id
ORDER BY d.id
