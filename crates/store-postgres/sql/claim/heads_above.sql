-- Purpose: the heads of several lanes, in order, as `h`, from a floor on for each lane and priority.
-- Inputs: $2 lanes, $4 how many heads; $5 the lane, $6 the priority and $7 the moment of each floor. Those of
-- a lane come with the highest priority first, and are read in this order.
(
    SELECT head.*
    FROM unnest($2) l(lane)
    CROSS JOIN LATERAL (
        SELECT w.*
        FROM unnest($5, $6, $7) f(of, priority, floor)
        CROSS JOIN LATERAL (
            SELECT lane, id, priority, runnable_at
            FROM plimsoll.tasks w
            WHERE w.lane = l.lane AND w.status = 1 AND w.priority = f.priority AND w.runnable_at >= f.floor
            ORDER BY w.runnable_at, w.id
            LIMIT $4
        ) w
        WHERE f.of = l.lane
        LIMIT $4
    ) head
    ORDER BY head.priority DESC, head.runnable_at, head.id
    LIMIT $4
) h
