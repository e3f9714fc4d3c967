-- Purpose: puts records into indexes, as their rows are now. A small one is there with all that it has; what is
-- larger is looked up. An entry that is there already is as it should be: its writer made it.
-- Inputs: $1 the namespace, $2 indexes, $3 values, $4 keys, $5 how many bytes are small.
-- Locking: in the transaction that writes the records, or has locked them, after their rows.
INSERT INTO plimsoll.index_entries (idx, value, key, fields, revision, modified_at, expires_at)
SELECT
    u.idx, u.value, u.key,
    CASE WHEN s.small THEN r.fields END,
    CASE WHEN s.small THEN r.revision END,
    CASE WHEN s.small THEN r.modified_at END,
    CASE WHEN s.small THEN r.expires_at END
FROM unnest($2, $3, $4) u(idx, value, key)
JOIN plimsoll.records r ON r.ns = $1 AND r.key = u.key
CROSS JOIN LATERAL (SELECT pg_column_size(r.fields) <= $5 AS small) s
ON CONFLICT DO NOTHING
