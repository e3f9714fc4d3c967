-- Purpose: the tasks of some lanes that are next in line.
-- Inputs: $1 the namespace, $2 lanes, $3 how many.
-- Results: the columns of a task, in the order of claims; all are NULL if its spec is gone. Locking: none.
WITH ready AS (
    SELECT t.lane, t.id
    FROM unnest($2) l(lane)
    CROSS JOIN LATERAL (
        SELECT t.lane, t.id, t.priority, t.runnable_at
        FROM plimsoll.tasks t
        WHERE t.lane = l.lane AND t.status = 1
        ORDER BY t.priority DESC, t.runnable_at, t.id
        LIMIT $3
    ) t
    ORDER BY t.priority DESC, t.runnable_at, t.id
    LIMIT $3
)
SELECT {live_columns}
FROM ready
JOIN plimsoll.tasks t ON t.lane = ready.lane AND t.id = ready.id
LEFT JOIN plimsoll.specs s ON s.ns = $1 AND s.id = t.id
ORDER BY t.priority DESC, t.runnable_at, t.id
