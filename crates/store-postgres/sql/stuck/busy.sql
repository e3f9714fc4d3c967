-- Purpose: which rows of a {table} somebody else has locked.
-- Inputs: $1 the namespace, $2 values of {key}.
-- Results: those of these values whose rows are locked.
-- Locking: the others, until the transaction ends.
WITH free AS MATERIALIZED (
    SELECT {key} AS free FROM plimsoll.{table} WHERE ns = $1 AND {key} = ANY($2) FOR UPDATE SKIP LOCKED
)
SELECT {key}
FROM plimsoll.{table}
WHERE ns = $1 AND {key} = ANY($2)
  AND NOT EXISTS (SELECT 1 FROM free WHERE free.free = {key})
