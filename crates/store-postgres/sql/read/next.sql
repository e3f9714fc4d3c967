-- Purpose: when time will make something ready for a decision: the first task, lease or record. Of claims that hold
-- nothing any more, the first ones are passed over, and no others.
-- Inputs: $1 the namespace, $2 now, $3 how many claims are looked at.
-- Results: the moment, or NULL. Locking: none.
SELECT least(
    (SELECT runnable_at FROM plimsoll.tasks
     WHERE ns = $1 AND status = 0 AND runnable_at > $2
     ORDER BY runnable_at LIMIT 1),
    (SELECT until FROM plimsoll.tasks
     WHERE ns = $1 AND status = 2 AND until > $2
     ORDER BY until LIMIT 1),
    coalesce(
        (SELECT c.until
         FROM (
             SELECT request, until FROM plimsoll.claims
             WHERE ns = $1 AND until > $2
             ORDER BY until LIMIT $3
         ) c
         WHERE EXISTS (SELECT FROM plimsoll.held WHERE ns = $1 AND request = c.request)
         ORDER BY c.until LIMIT 1),
        (SELECT until FROM plimsoll.claims
         WHERE ns = $1 AND until > $2
         ORDER BY until LIMIT 1 OFFSET $3)
    ),
    (SELECT expires_at FROM plimsoll.records
     WHERE ns = $1 AND expires_at IS NOT NULL AND expires_at > $2
     ORDER BY expires_at LIMIT 1)
)
