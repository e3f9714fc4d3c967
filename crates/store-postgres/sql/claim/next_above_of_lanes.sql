-- Purpose: the next tasks of several lanes that nobody else is taking, from a floor on for each lane and
-- priority.
-- Inputs: $1 the namespace, $2 lanes, $3 how many, $4 how many heads are looked at; $5 the lane, $6 the
-- priority and $7 the moment of each floor, for each lane with the highest priority first.
-- Results and locking: see free_heads.sql.
-- {heads} = {heads_above}
{free_heads}
