-- Purpose: how many tasks each lane has in each status.
-- Inputs: 1 namespace, 2 queue or NULL, 3 kind or NULL. Results: queue, kind, status, tasks.
SELECT l.queue, l.kind, c.status, c.tasks
FROM lanes l
JOIN counts c ON c.lane = l.lane
WHERE l.ns = ?1
  AND c.tasks > 0
  AND (?2 IS NULL OR l.queue = ?2)
  AND (?3 IS NULL OR l.kind = ?3)
