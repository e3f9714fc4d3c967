-- Purpose: the next tasks of several lanes that nobody else is taking.
-- Inputs: $1 the namespace, $2 lanes, $3 how many, $4 how many heads are looked at.
-- Results and locking: see free_heads.sql.
-- {heads} = {heads_of_lanes}
{free_heads}
