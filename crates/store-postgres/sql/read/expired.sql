-- Purpose: claimed tasks whose leases are over: those that have a row, and those that claims hold.
-- Inputs: $1 the namespace, $2 now, $3 how many, $4 how many claims are looked at.
-- Results: the columns of a task without its payload, then its id and fence; by when the lease ended.
-- Locking: none.
-- {payload} = ''::bytea
SELECT {live_columns}, t.id, t.fence
FROM (
    SELECT *
    FROM plimsoll.tasks
    WHERE ns = $1 AND status = 2 AND until <= $2
    ORDER BY until
    LIMIT $3
) t
LEFT JOIN plimsoll.specs s ON s.ns = t.ns AND s.id = t.id
UNION ALL
SELECT {live_columns}, t.id, t.fence
FROM (
    SELECT h.*
    FROM (
        SELECT request, until
        FROM plimsoll.claims
        WHERE ns = $1 AND until <= $2
        ORDER BY until
        LIMIT $4
    ) c
    CROSS JOIN LATERAL (
        SELECT * FROM plimsoll.held WHERE ns = $1 AND request = c.request OFFSET 0
    ) h
    ORDER BY c.until
    LIMIT $3
) t
JOIN plimsoll.specs s ON s.ns = t.ns AND s.id = t.id
ORDER BY 29
LIMIT $3
