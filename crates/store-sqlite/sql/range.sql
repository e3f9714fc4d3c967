-- Purpose: records in the order of a declared index.
-- Inputs: 1 namespace, 2 index, 3 and 4 value and key of the place to begin after, 5 the last value.
-- Results: value, then the columns of a record. Locking: none.
SELECT e.value, r.key, r.fields, r.revision, r.modified_at, r.expires_at
FROM index_entries e
CROSS JOIN records r ON r.ns = ?1 AND r.key = e.key
WHERE e.idx = ?2 AND (e.value, e.key) > (?3, ?4) AND e.value <= ?5
ORDER BY e.value, e.key
