-- Purpose: closes claims that are as they are assumed to be.
-- Inputs: $1 the namespace, $2 requests, $3 when their leases must end, if that matters, $4 tasks that they
-- must hold.
-- Results: a row for each claim that is so; there must be as many as requests.
-- Locking: the claims.
UPDATE plimsoll.claims c
SET until = NULL
FROM unnest($2, $3) u(request, until)
WHERE {as_assumed}
RETURNING 1
