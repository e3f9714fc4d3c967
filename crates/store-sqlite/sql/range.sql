-- Purpose: records in the order of a declared index.
-- Inputs: 1 index, 2 and 3 value and key of the place to begin after, 4 the last value.
-- Results: value, then the columns of a record; all but its key are NULL if it is not small. Locking: none.
SELECT value, key, fields, revision, modified_at, expires_at
FROM index_entries
WHERE idx = ?1 AND (value, key) > (?2, ?3) AND value <= ?4
ORDER BY value, key
