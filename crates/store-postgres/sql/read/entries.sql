-- Purpose: entries of the history after a position, and up to where it is gone, in one snapshot.
-- Inputs: $1 the namespace, $2 the position, $3 how many.
-- Results: up to where it is gone, position, time, changes; in order. One row without an entry if there is
-- none.
-- Locking: none.
SELECT n.compacted, c.position, c.at, c.changes
FROM plimsoll.namespaces n
LEFT JOIN LATERAL (
    SELECT position, at, changes
    FROM plimsoll.changes
    WHERE ns = $1 AND position > $2
    ORDER BY position
    LIMIT $3
) c ON true
WHERE n.ns = $1
ORDER BY c.position
