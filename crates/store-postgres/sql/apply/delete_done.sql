-- Purpose: removes rows of tasks that have ended, which must have the revisions that they were read with.
-- Inputs: of each task $1 lane, $2 id and $3 revision.
-- Results: nothing; it fails if one is missing. Locking: the rows.
WITH gone AS (
    DELETE FROM plimsoll.tasks_done d
    USING unnest($1, $2, $3) u(lane, id, before)
    WHERE d.lane = u.lane AND d.id = u.id AND d.revision = u.before
    RETURNING 1
)
SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($1))
