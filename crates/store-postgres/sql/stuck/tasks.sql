-- Purpose: which tasks somebody else has locked. A task has a row in one of two tables, or a claim holds it.
-- Inputs: $1 the namespace, $2 ids.
-- Results: the ids of those that are locked.
-- Locking: the others, until the transaction ends. A claim is tried as its holder locks it: several can at
-- once. `LIMIT` keeps the planner from reading whole tables first.
WITH named AS MATERIALIZED (
    SELECT lane, id FROM plimsoll.specs WHERE ns = $1 AND id = ANY($2)
),
live AS MATERIALIZED (
    SELECT t.id
    FROM named n
    JOIN plimsoll.tasks t ON t.lane = n.lane AND t.id = n.id
    FOR UPDATE OF t SKIP LOCKED
),
done AS MATERIALIZED (
    SELECT d.id
    FROM named n
    JOIN plimsoll.tasks_done d ON d.lane = n.lane AND d.id = n.id
    FOR UPDATE OF d SKIP LOCKED
),
holders AS MATERIALIZED (
    SELECT c.request
    FROM plimsoll.claims c
    WHERE c.ns = $1 AND c.until IS NOT NULL AND c.tasks && $2
    FOR SHARE OF c SKIP LOCKED
)
SELECT n.id
FROM named n
WHERE CASE
    WHEN (SELECT 1 FROM plimsoll.tasks t WHERE t.lane = n.lane AND t.id = n.id LIMIT 1) = 1
        THEN NOT EXISTS (SELECT 1 FROM live WHERE live.id = n.id)
    WHEN (SELECT 1 FROM plimsoll.tasks_done d WHERE d.lane = n.lane AND d.id = n.id LIMIT 1) = 1
        THEN NOT EXISTS (SELECT 1 FROM done WHERE done.id = n.id)
    ELSE EXISTS (
        SELECT 1
        FROM plimsoll.claims c
        WHERE c.ns = $1 AND c.until IS NOT NULL
          AND n.id = ANY(c.tasks) AND n.id <> ALL(c.gone)
          AND NOT EXISTS (SELECT 1 FROM holders h WHERE h.request = c.request)
    )
END
