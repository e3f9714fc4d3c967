-- Purpose: records in the order of a declared index, and whether that can be read, in one snapshot: an index that is
-- dropped, whose entries go one after another, is never read.
-- Inputs: $1 the namespace, $2 prefix and $3 field of the index, $4 and $5 value and key of the place to begin after,
-- $6 the last value, $7 how many.
-- Results: whether all records are in; value; the columns of a record. Nothing if there is no such index, and one row
-- without a value if it has nothing there. Locking: none.
SELECT i.filled IS NULL, e.value, e.key, r.fields, r.revision, r.modified_at, r.expires_at
FROM plimsoll.indexes i
LEFT JOIN LATERAL (
    SELECT e.value, e.key
    FROM plimsoll.index_entries e
    WHERE e.idx = i.idx AND i.filled IS NULL AND (e.value, e.key) > ($4, $5) AND e.value <= $6
    ORDER BY e.value, e.key
    LIMIT $7
) e ON true
LEFT JOIN plimsoll.records r ON r.ns = $1 AND r.key = e.key
WHERE i.ns = $1 AND i.prefix = $2 AND i.field = $3
ORDER BY e.value, e.key
