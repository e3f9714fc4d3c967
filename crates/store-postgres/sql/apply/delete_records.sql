-- Purpose: removes records, which must have the revisions that they were read with.
-- Inputs: $1 the namespace; of each record $2 key and $3 revision.
-- Results: nothing; it fails if one is missing. Locking: the records.
WITH gone AS (
    DELETE FROM plimsoll.records r
    USING unnest($2, $3) u(key, before)
    WHERE r.ns = $1 AND r.key = u.key AND r.revision = u.before
    RETURNING 1
)
SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($2))
