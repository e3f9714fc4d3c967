-- Purpose: tasks of a lane that have a row because they have not ended.
-- Inputs: $1 the namespace, $2 the lane, $3 the first id, $4 how many, $5 the status.
-- Results: the columns of a task, then its id; in id order. Those of another status come without their spec.
-- Locking: none.
SELECT {live_columns}, t.id
FROM (
    SELECT *
    FROM plimsoll.tasks
    WHERE lane = $2 AND id >= $3
    ORDER BY id
    LIMIT $4
) t
LEFT JOIN plimsoll.specs s ON t.status = $5 AND s.ns = $1 AND s.id = t.id
ORDER BY t.id
