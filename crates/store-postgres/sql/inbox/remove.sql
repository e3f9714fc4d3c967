-- Purpose: removes tasks from the inbox, and keeps those that were refused apart.
-- Inputs: $1 the namespace, $2 the numbers of all, $3 now, $4 the numbers of those that were refused, $5 why
-- each was.
-- Results: none. Locking: the rows, which are locked.
WITH gone AS (
    DELETE FROM plimsoll.inbox WHERE ns = $1 AND seq = ANY($2) RETURNING *
)
INSERT INTO plimsoll.inbox_refused
SELECT gone.*, $3, refused.reason
FROM gone
JOIN unnest($4, $5) refused(seq, reason) USING (seq)
