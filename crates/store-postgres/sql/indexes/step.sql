-- Purpose: the next records that an index may have to take in.
-- Inputs: $1 the namespace, $2 the first key, $3 the first one that is too far, $4 the field, $5 how long its value may
-- be, $6 how many.
-- Results: key, and value as text unless that is too long. Locking: the records, shared, until their entries are in.
SELECT key, CASE WHEN octet_length(fields ->> $4) <= $5 THEN fields ->> $4 END
FROM plimsoll.records
WHERE ns = $1 AND key >= $2 AND key < $3
ORDER BY key
LIMIT $6
FOR SHARE
