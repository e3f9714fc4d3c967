-- Purpose: records in the order of a declared index, and whether that can be read, in one snapshot: an index that is
-- dropped, whose entries go one after another, is never read.
-- Inputs: $1 the namespace, $2 prefix and $3 field of the index, $4 and $5 value and key of the place to begin after,
-- $6 the last value, $7 how many.
-- Results: whether all records are in; value; the columns of a record. Nothing if there is no such index, and one row
-- without a value if it has nothing there. Locking: none.
SELECT
    i.filled_upto IS NULL, e.value, e.key,
    coalesce(e.fields, r.fields),
    coalesce(e.revision, r.revision),
    coalesce(e.modified_at, r.modified_at),
    CASE WHEN e.fields IS NULL THEN r.expires_at ELSE e.expires_at END
FROM plimsoll.indexes i
LEFT JOIN LATERAL (
    SELECT *
    FROM plimsoll.index_entries e
    WHERE e.idx = i.idx AND i.filled_upto IS NULL AND (e.value, e.key) > ($4, $5) AND e.value <= $6
    ORDER BY e.value, e.key
    LIMIT $7
) e ON true
-- Not even looked for if the entry carries it: OFFSET keeps the condition where it is.
LEFT JOIN LATERAL (
    SELECT * FROM plimsoll.records r WHERE e.fields IS NULL AND r.ns = $1 AND r.key = e.key OFFSET 0
) r ON true
WHERE i.ns = $1 AND i.prefix = $2 AND i.field = $3
ORDER BY e.value, e.key
