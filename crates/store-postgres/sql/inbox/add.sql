-- Purpose: adds a task inside somebody's transaction, and tells whoever listens once that commits.
-- Inputs: $1 to $17 the columns of the inbox, $18 the channel, $19 what is told. Results: none.
-- Locking: nothing that others wait for.
WITH new AS (
    INSERT INTO plimsoll.inbox (
        ns, id, queue, kind, payload, priority, run_at, key, key_lifetime_us, on_conflict, "group", owner,
        labels, max_attempts, attempt_timeout_us, trace, more
    )
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
    RETURNING ns
)
SELECT pg_notify($18, $19) FROM new
