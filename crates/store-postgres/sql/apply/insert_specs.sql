-- Purpose: adds what never changes of tasks.
-- Inputs: $1 the namespace, $2 ids; $3 to $17 the columns, one value for each task. What is the same for all
-- is given once, and what nobody has not at all.
-- Results: none; it fails if one is there. Locking: none.
INSERT INTO plimsoll.specs (
    ns, id, lane, born, created_at, group_born, attempt_timeout_us, max_attempts, queue, kind, payload, key,
    "group", owner, labels, trace, more
)
SELECT
    $1, id, coalesce(lane, ($3)[1]), born, coalesce(created_at, ($5)[1]), group_born, attempt_timeout_us,
    max_attempts, coalesce(queue, ($9)[1]), coalesce(kind, ($10)[1]), payload, key, "group", owner, labels,
    trace, more
FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
    u(id, lane, born, created_at, group_born, attempt_timeout_us, max_attempts, queue, kind, payload, key,
      "group", owner, labels, trace, more)
