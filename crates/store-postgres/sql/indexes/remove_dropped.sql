-- Purpose: removes entries of dropped indexes.
-- Inputs: $1 the namespace, $2 how many at most.
-- Locking: the dropped indexes, each of which is left to one process.
WITH dropped AS (
    SELECT idx FROM plimsoll.indexes WHERE ns = $1 AND prefix IS NULL FOR UPDATE SKIP LOCKED
)
DELETE FROM plimsoll.index_entries
WHERE ctid = ANY(ARRAY(
    SELECT e.place
    FROM dropped d
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM plimsoll.index_entries WHERE idx = d.idx ORDER BY value, key LIMIT $2
    ) e
    LIMIT $2
))
