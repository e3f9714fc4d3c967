-- Purpose: changes records, which must have the revisions that they were read with.
-- Inputs: $1 the namespace; of each record $2 key, $3 fields, $4 revision, $5 when it was modified, $6 when
-- it expires, $7 the revision before.
-- Results: nothing; it fails if one is missing. Locking: the records.
WITH changed AS (
    UPDATE plimsoll.records r
    SET fields = u.fields, revision = u.revision, modified_at = u.modified_at, expires_at = u.expires_at
    FROM unnest($2, $3, $4, $5, $6, $7) u(key, fields, revision, modified_at, expires_at, before)
    WHERE r.ns = $1 AND r.key = u.key AND r.revision = u.before
    RETURNING 1
)
SELECT plimsoll.expect((SELECT count(*) FROM changed), cardinality($2))
