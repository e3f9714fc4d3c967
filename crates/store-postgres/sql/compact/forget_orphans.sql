-- Purpose: forgets tasks that are gone and of whose lines none is left.
-- Inputs: $1 the namespace, $2 how many are looked at.
-- Results: none.
-- Locking: the rows of `orphans`, and passes over those that others have locked. A row that was written again
-- since this statement began is another one, and stays.
DELETE FROM plimsoll.orphans o
WHERE ctid = ANY(ARRAY(
    SELECT ctid
    FROM plimsoll.orphans
    WHERE ns = $1
    ORDER BY task
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
  AND NOT EXISTS (SELECT FROM plimsoll.logs l WHERE l.ns = $1 AND l.task = o.task AND l.seq <= o.upto)
