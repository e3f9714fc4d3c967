-- Purpose: tasks that have ended.
-- Inputs: $1 the namespace, $2 ids.
-- Results: the columns of a task. Locking: the rows of `tasks_done`, in id order.
SELECT {done_columns}
FROM plimsoll.specs s
JOIN plimsoll.tasks_done d ON d.lane = s.lane AND d.id = s.id
WHERE s.ns = $1 AND s.id = ANY($2)
ORDER BY s.id
FOR UPDATE OF d
