-- Purpose: tasks by their ids.
-- Inputs: $1 the namespace, $2 ids.
-- Results: the columns of a task, in any order. Locking: none.
-- {specs} = plimsoll.specs
-- {which} = s.ns = $1 AND s.id = ANY($2)
-- {place} =
WITH {states_of}
