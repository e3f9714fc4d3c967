-- Purpose: adds rows of tasks that have not ended.
-- Inputs: $1 the namespace, $3 ids; $2 and $4 to $20 the other columns, one value for each task. What is the
-- same for all is given once, and what nobody has not at all.
-- Results: none; it fails if one is there. Locking: none.
INSERT INTO plimsoll.tasks (
    ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures, started_at,
    claimed_at, until, deadline, incarnation, worker, stage, progress, more
)
SELECT
    $1, coalesce(lane, ($2)[1]), id, coalesce(status, ($4)[1]), coalesce(priority, ($5)[1]), runnable_at,
    modified_at, revision, fence, attempts, failures, started_at, claimed_at, until, deadline, incarnation,
    worker, stage, progress, more
FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
    u(lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures, started_at,
      claimed_at, until, deadline, incarnation, worker, stage, progress, more)
