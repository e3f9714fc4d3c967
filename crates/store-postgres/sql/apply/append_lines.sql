-- Purpose: appends lines to logs, in order. A line whose id a log has stays as it is, unless it is of a task
-- that had this id before: that one makes way.
-- Inputs: $1 the namespace; of each line $2 task, $3 id, $4 level, $5 fence, $6 time, $7 stage, $8 message,
-- $9 metadata, $10 step.
-- Results: none. Locking: lines that are there.
INSERT INTO plimsoll.logs (ns, task, id, level, fence, at, stage, message, metadata, step)
SELECT $1, u.task, u.id, u.level, u.fence, u.at, u.stage, u.message, u.metadata, u.step
FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10) WITH ORDINALITY
    u(task, id, level, fence, at, stage, message, metadata, step, place)
ORDER BY place
ON CONFLICT (ns, task, id) DO UPDATE SET
    seq = DEFAULT,
    level = excluded.level,
    fence = excluded.fence,
    at = excluded.at,
    stage = excluded.stage,
    message = excluded.message,
    metadata = excluded.metadata,
    step = excluded.step
WHERE logs.seq <= (
    SELECT upto FROM plimsoll.orphans o WHERE o.ns = excluded.ns AND o.task = excluded.task
)
