-- Purpose: tasks that have a row because they have not ended.
-- Inputs: $1 the namespace, $2 ids.
-- Results: the columns of a task.
-- Locking: the rows of `tasks`, in id order. What follows it says whether those that others have locked are
-- passed over.
SELECT {live_columns}
FROM plimsoll.specs s
JOIN plimsoll.tasks t ON t.lane = s.lane AND t.id = s.id
WHERE s.ns = $1 AND s.id = ANY($2)
ORDER BY s.id
FOR UPDATE OF t
