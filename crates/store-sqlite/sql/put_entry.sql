-- Purpose: puts a record into an index, as its row is now. A small one is there with all that it has, so
-- that a range is read from neighbouring pages; what is larger is looked up.
-- Inputs: 1 namespace, 2 key, 3 index, 4 value, 5 how many bytes are small. Results: none.
-- Locking: in the transaction that writes the record, after its row.
INSERT INTO index_entries
SELECT
    ?3, ?4, r.key,
    iif(length(r.fields) <= ?5, r.fields, NULL),
    iif(length(r.fields) <= ?5, r.revision, NULL),
    iif(length(r.fields) <= ?5, r.modified_at, NULL),
    iif(length(r.fields) <= ?5, r.expires_at, NULL)
FROM records r
WHERE r.ns = ?1 AND r.key = ?2
ON CONFLICT DO UPDATE SET
    fields = excluded.fields,
    revision = excluded.revision,
    modified_at = excluded.modified_at,
    expires_at = excluded.expires_at
WHERE excluded.revision IS NOT index_entries.revision
