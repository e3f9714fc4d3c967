-- Purpose: removes keys, which must belong to the tasks that they were read with.
-- Inputs: $1 the namespace; $2 keys, and of each $3 the task.
-- Results: nothing; it fails if one is missing. Locking: the keys.
WITH gone AS (
    DELETE FROM plimsoll.keys k
    USING unnest($2, $3) u(key, before)
    WHERE k.ns = $1 AND k.key = u.key AND k.task = u.before
    RETURNING 1
)
SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($2))
