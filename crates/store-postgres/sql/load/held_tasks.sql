-- Purpose: what claims hold of tasks.
-- Inputs: $1 the namespace, $2 tasks, $3 the requests of claims that are locked.
-- Results: the columns of a task, then the request of its claim. Locking: none.
WITH held AS MATERIALIZED (
    SELECT * FROM plimsoll.held WHERE ns = $1 AND request = ANY($3)
)
SELECT {live_columns}, t.request
FROM held t
JOIN plimsoll.specs s ON s.ns = $1 AND s.id = t.id
WHERE t.id = ANY($2)
