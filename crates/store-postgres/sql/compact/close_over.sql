-- Purpose: closes claims whose leases are over and of which nothing is left: those whose process did not see
-- that.
-- Inputs: $1 the namespace, $2 now, $3 how many.
-- Results: none. Locking: the claims, and passes over those that others have locked.
UPDATE plimsoll.claims
SET until = NULL
WHERE ctid = ANY(ARRAY(
    SELECT c.ctid
    FROM plimsoll.claims c
    WHERE c.ns = $1 AND c.until <= $2
      AND NOT EXISTS (SELECT FROM plimsoll.held h WHERE h.ns = $1 AND h.request = c.request)
    ORDER BY c.until
    LIMIT $3
    FOR UPDATE OF c SKIP LOCKED
))
