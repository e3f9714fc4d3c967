-- Purpose: lines of a log. Those of a task that had this id before are not its own.
-- Inputs: $1 the namespace, $2 the task, $3 the line before, $4 how many.
-- Results: number, id, level, fence, time, stage, message, metadata, step; in order. Locking: none.
SELECT seq, id, level, fence, at, stage, message, metadata, step
FROM plimsoll.logs
WHERE ns = $1 AND task = $2
  AND seq > greatest($3, (SELECT upto FROM plimsoll.orphans WHERE ns = $1 AND task = $2))
ORDER BY seq
LIMIT $4
