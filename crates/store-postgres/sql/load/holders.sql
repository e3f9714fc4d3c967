-- Purpose: claims that may hold tasks.
-- Inputs: $1 the namespace, $2 tasks.
-- Results: the requests of claims.
-- Locking: the claims, in the order of their requests; not by the index that has this order, for it has those
-- that are closed, too. What follows it says whether those that others have locked are passed over.
SELECT c.request
FROM plimsoll.claims c
WHERE c.ns = $1 AND c.until IS NOT NULL
  AND EXISTS (SELECT FROM unnest(c.tasks) u(id) WHERE (u.id IN (SELECT unnest($2))) IS TRUE)
ORDER BY c.request::text
FOR UPDATE OF c
