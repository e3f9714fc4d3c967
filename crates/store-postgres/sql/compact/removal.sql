-- Purpose: removes the oldest rows of a {table}.
-- Inputs: $1 the namespace, $2 the youngest moment, $3 how many; {at}: what says how old a row is, and {old}:
-- this, after what else must hold of rows that go.
-- Results: how many rows went.
-- Locking: these rows, and passes over those that others have locked.
WITH gone AS (
    DELETE FROM {table}
    WHERE ctid = ANY(ARRAY(
        SELECT ctid
        FROM {table}
        WHERE ns = $1 AND {old} <= $2
        ORDER BY {at}
        LIMIT $3
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
