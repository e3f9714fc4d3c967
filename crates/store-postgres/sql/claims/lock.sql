-- Purpose: locks claims that are as they are assumed to be. What follows it says how.
-- Inputs: $1 the namespace, $2 requests, $3 when their leases must end, if that matters, $4 tasks that they
-- must hold.
-- Results: a row for each claim that is so; there must be as many as requests.
-- Locking: the claims, in the order of their requests.
SELECT 1
FROM plimsoll.claims c, unnest($2, $3) u(request, until)
WHERE {as_assumed}
ORDER BY c.request
