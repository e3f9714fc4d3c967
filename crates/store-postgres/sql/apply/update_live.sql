-- Purpose: changes rows of tasks that have not ended, which must have the revisions that they were read with.
-- A lease that goes on ends when its last renewal said, of which the writer may not have heard: a renewal
-- moves no revision, and nobody else changes when a lease ends.
-- Inputs: as in insert_live.sql, and $21 the revisions before.
-- Results: nothing; it fails if one is missing. Locking: the rows.
WITH changed AS (
    UPDATE plimsoll.tasks t
    SET
        status = coalesce(u.status, ($4)[1]),
        priority = coalesce(u.priority, ($5)[1]),
        runnable_at = u.runnable_at,
        modified_at = u.modified_at,
        revision = u.revision,
        fence = u.fence,
        attempts = u.attempts,
        failures = u.failures,
        started_at = u.started_at,
        claimed_at = u.claimed_at,
        deadline = u.deadline,
        until = CASE
            WHEN t.status = 2 AND coalesce(u.status, ($4)[1]) = 2 AND t.fence = u.fence THEN t.until
            ELSE u.until
        END,
        incarnation = u.incarnation,
        worker = u.worker,
        stage = u.stage,
        progress = u.progress,
        more = u.more
    FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
        u(lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures, started_at,
          claimed_at, until, deadline, incarnation, worker, stage, progress, more, before)
    WHERE t.lane = coalesce(u.lane, ($2)[1]) AND t.id = u.id AND t.revision = u.before AND t.ns = $1
    RETURNING 1
)
SELECT plimsoll.expect((SELECT count(*) FROM changed), cardinality($3))
