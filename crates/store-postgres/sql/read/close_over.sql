-- Purpose: closes claims whose leases are over and of which nothing is left: those whose process did not see
-- that. Whoever looks for what is over would look at them, and at each of their tasks, every time.
-- Inputs: $1 the namespace, $2 now, $3 how many claims are looked at.
-- Results: how many were closed. Locking: the claims, and passes over those that others have locked.
WITH closed AS (
    UPDATE plimsoll.claims
    SET until = NULL
    WHERE ctid = ANY(ARRAY(
        SELECT c.ctid
        FROM (
            SELECT request
            FROM plimsoll.claims
            WHERE ns = $1 AND until <= $2
            ORDER BY until
            LIMIT $3
        ) o
        JOIN plimsoll.claims c ON c.ns = $1 AND c.request = o.request
        WHERE c.until <= $2
          AND NOT EXISTS (SELECT FROM plimsoll.held h WHERE h.ns = $1 AND h.request = c.request)
        FOR UPDATE OF c SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM closed
