-- Purpose: the tasks that keys were last given to.
-- Inputs: $1 the namespace, $2 the first key, $3 the first one that is too far, $4 how many.
-- Results: the columns of a task, then the key; in key order. Locking: none.
-- {specs} = s
-- {which} = true
-- {place} = , s.place
WITH s AS (
    SELECT k.key AS place, s.*
    FROM (
        SELECT key, task
        FROM plimsoll.keys
        WHERE ns = $1 AND key >= $2 AND key < $3
        ORDER BY key
        LIMIT $4
    ) k
    LEFT JOIN plimsoll.specs s ON s.ns = $1 AND s.id = k.task
),
{states_of}
ORDER BY 38
