-- Purpose: adds rows of tasks of one lane that have ended, are alike, and have nothing that few have: those
-- that the same worker has ended, or none. Each column costs time on both sides, also if it is empty.
-- Inputs: $1 the namespace, $2 the lane, $3 the status, $4 the priority, $5 when they finished, $6 and $7 the
-- worker; of each task $8 id, $9 revision and $10 when it was started.
-- Results: none; it fails if one is there. Locking: none.
INSERT INTO plimsoll.tasks_done (
    ns, lane, id, status, priority, revision, started_at, finished_at, settled_by, settled_worker
)
SELECT $1, $2, id, $3, $4, revision, started_at, $5, $6, $7
FROM unnest($8, $9, $10) u(id, revision, started_at)
