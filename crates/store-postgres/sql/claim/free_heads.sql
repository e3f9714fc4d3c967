-- Purpose: as many of some {heads} as are free, and how many heads there were to choose from.
-- Inputs: $1 the namespace, $3 how many; what the heads need.
-- Results: the columns of a task, where its row is, its lane, when the look began and ended, and how many
-- heads there were; in the order of claims.
-- Locking: the rows of `tasks`, and passes over those that others have locked.
SELECT {live_columns}, t.place, t.lane, statement_timestamp(), clock_timestamp(), t.heads
FROM (
    SELECT t.*, t.ctid AS place, heads.heads
    FROM (SELECT h.*, count(*) OVER () AS heads FROM {heads}) heads
    JOIN plimsoll.tasks t ON t.lane = heads.lane AND t.id = heads.id AND t.status = 1
    ORDER BY heads.priority DESC, heads.runnable_at, heads.id
    LIMIT $3
    FOR UPDATE OF t SKIP LOCKED
) t
JOIN plimsoll.specs s ON s.ns = $1 AND s.id = t.id
ORDER BY t.priority DESC, t.runnable_at, t.id
