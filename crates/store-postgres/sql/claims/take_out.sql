-- Purpose: notes which tasks were taken out of claims, and closes those of which nothing is left.
-- Inputs: $1 the namespace, $2 requests of claims that are locked, $3 tasks, of any of these claims.
-- Results: none. Locking: the claims.
UPDATE plimsoll.claims c
SET gone = c.gone || ARRAY(SELECT unnest(c.tasks) INTERSECT SELECT unnest($3)),
    until = CASE WHEN EXISTS (
        SELECT FROM plimsoll.held h
        WHERE h.ns = $1 AND h.request = c.request AND h.id <> ALL($3)
    ) THEN c.until END
WHERE c.ns = $1 AND c.request = ANY($2)
