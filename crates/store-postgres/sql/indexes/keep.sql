-- Purpose: entries of records that were written and have the same value as before carry them as they are now. An
-- entry that is not there yet comes with the fill.
-- Inputs: $1 the namespace, $2 indexes, $3 values, $4 keys, $5 how many bytes are small.
-- Locking: in the transaction that writes the records, after their rows. What carried nothing, and will not, is
-- neither written nor locked.
UPDATE plimsoll.index_entries e
SET
    fields = CASE WHEN s.small THEN r.fields END,
    revision = CASE WHEN s.small THEN r.revision END,
    modified_at = CASE WHEN s.small THEN r.modified_at END,
    expires_at = CASE WHEN s.small THEN r.expires_at END
FROM unnest($2, $3, $4) u(idx, value, key)
JOIN plimsoll.records r ON r.ns = $1 AND r.key = u.key
CROSS JOIN LATERAL (SELECT pg_column_size(r.fields) <= $5 AS small) s
WHERE e.idx = u.idx AND e.value = u.value AND e.key = u.key
    AND (s.small OR e.fields IS NOT NULL)
