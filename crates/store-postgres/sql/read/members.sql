-- Purpose: tasks of a group.
-- Inputs: $1 the namespace, $2 the group, $3 the first id, $4 how many.
-- Results: the columns of a task, then its id; in id order. Locking: none.
-- {specs} = s
-- {which} = true
-- {place} = , s.id
WITH s AS (
    SELECT *
    FROM plimsoll.specs
    WHERE ns = $1 AND "group" = $2 AND id >= $3
    ORDER BY id
    LIMIT $4
),
{states_of}
ORDER BY 1
