-- Purpose: gives keys to other tasks. They must belong to those that they were read with.
-- Inputs: $1 the namespace; $2 keys, and of each $3 the task and $4 the one before.
-- Results: nothing; it fails if one is missing. Locking: the keys.
WITH changed AS (
    UPDATE plimsoll.keys k
    SET task = u.task
    FROM unnest($2, $3, $4) u(key, task, before)
    WHERE k.ns = $1 AND k.key = u.key AND k.task = u.before
    RETURNING 1
)
SELECT plimsoll.expect((SELECT count(*) FROM changed), cardinality($2))
