-- Purpose: tasks of a lane that are claimed. They are few: the index of leases finds those that have a row,
-- and claims the others, however many others wait.
-- Inputs: $1 the namespace, $2 the lane, $3 the first id, $4 how many, $5 the status.
-- Results: the columns of a task, then its id; in id order. Those of another status come without their spec.
-- Locking: none.
WITH rows AS MATERIALIZED (
    SELECT lane, id FROM plimsoll.tasks WHERE ns = $1 AND status = 2
),
held AS MATERIALIZED (
    SELECT * FROM plimsoll.taken WHERE ns = $1 AND id >= $3
)
(
    SELECT {live_columns}, t.id
    FROM (
        SELECT lane, id
        FROM rows
        WHERE lane = $2 AND id >= $3
        ORDER BY id
        LIMIT $4
    ) h
    JOIN plimsoll.tasks t ON t.lane = h.lane AND t.id = h.id
    LEFT JOIN plimsoll.specs s ON t.status = $5 AND s.ns = $1 AND s.id = t.id
    ORDER BY t.id
    LIMIT $4
)
UNION ALL
SELECT {live_columns}, t.id
FROM (
    SELECT h.*
    FROM (SELECT * FROM held ORDER BY id) h
    CROSS JOIN LATERAL (
        SELECT
        FROM plimsoll.specs s
        WHERE s.ns = $1 AND s.id = h.id AND s.lane = $2
          AND NOT EXISTS (SELECT FROM plimsoll.tasks o WHERE o.lane = $2 AND o.id = h.id)
          AND NOT EXISTS (SELECT FROM plimsoll.tasks_done o WHERE o.lane = $2 AND o.id = h.id)
        OFFSET 0
    ) s
    ORDER BY h.id
    LIMIT $4
) t
JOIN plimsoll.specs s ON s.ns = $1 AND s.id = t.id
ORDER BY 38
LIMIT $4
