-- Purpose: a record as it is now, whether it was there or not.
-- Inputs: 1 namespace, 2 key, 3 fields, 4 revision, 5 when it was written, 6 when it expires or NULL. Results: none.
-- Locking: in the transaction of the commit that writes it.
INSERT INTO records (ns, key, fields, revision, modified_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (ns, key) DO UPDATE SET
    fields = excluded.fields,
    revision = excluded.revision,
    modified_at = excluded.modified_at,
    expires_at = excluded.expires_at
