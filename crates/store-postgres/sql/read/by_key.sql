-- Purpose: the task that a key was last given to.
-- Inputs: $1 the namespace, $2 the key.
-- Results: the columns of a task; no row if there is no such key. Locking: none.
-- {specs} = plimsoll.specs
-- {which} = s.ns = $1 AND s.id = (SELECT task FROM plimsoll.keys WHERE ns = $1 AND key = $2)
-- {place} =
WITH {states_of}
