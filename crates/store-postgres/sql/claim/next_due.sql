-- Purpose: when the next task of some lanes is due, and whether there is something in the inbox.
-- Inputs: $1 lanes, $2 the namespace.
-- Results: the moment, or NULL; whether there is something. Locking: none.
SELECT min(due.runnable_at), EXISTS (SELECT 1 FROM plimsoll.inbox WHERE ns = $2)
FROM unnest($1) l(lane)
CROSS JOIN LATERAL (
    SELECT runnable_at
    FROM plimsoll.tasks
    WHERE lane = l.lane AND status = 0
    ORDER BY runnable_at
    LIMIT 1
) due
