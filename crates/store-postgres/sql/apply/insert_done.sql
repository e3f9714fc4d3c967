-- Purpose: adds rows of tasks that have ended.
-- Inputs: $1 the namespace, $3 ids; $2 and $4 to $22 the other columns, one value for each task. What is the
-- same for all is given once, and what nobody has not at all; $23 and $24 the worker that has ended them, if
-- it is one.
-- Results: none; it fails if one is there. Locking: none.
INSERT INTO plimsoll.tasks_done (
    ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures, started_at,
    claimed_at, finished_at, removable_from, stage, progress, result, reason, settled_by, settled_worker, more
)
SELECT
    $1, coalesce(lane, ($2)[1]), id, coalesce(status, ($4)[1]), coalesce(priority, ($5)[1]), runnable_at,
    modified_at, revision, fence, attempts, failures, started_at, claimed_at, coalesce(finished_at, ($14)[1]),
    removable_from, stage, progress, result, reason, coalesce(settled_by, $23), coalesce(settled_worker, $24),
    more
FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
    u(lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures, started_at,
      claimed_at, finished_at, removable_from, stage, progress, result, reason, settled_by, settled_worker,
      more)
