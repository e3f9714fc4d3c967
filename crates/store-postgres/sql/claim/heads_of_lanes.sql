-- Purpose: the heads of several lanes, in order, as `h`.
-- Inputs: $2 lanes, $4 how many heads.
(
    SELECT head.*
    FROM unnest($2) l(lane)
    CROSS JOIN LATERAL (
        SELECT lane, id, priority, runnable_at
        FROM plimsoll.tasks w
        WHERE w.lane = l.lane AND w.status = 1
        ORDER BY w.priority DESC, w.runnable_at, w.id
        LIMIT $4
    ) head
    ORDER BY head.priority DESC, head.runnable_at, head.id
    LIMIT $4
) h
