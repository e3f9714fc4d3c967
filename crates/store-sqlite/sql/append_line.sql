-- Purpose: appends a line, unless the log has a line of this id.
-- Inputs: namespace, task, number, id, level, time, body. Results: none.
-- A line of the same id whose task is gone makes way for it.
INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (ns, task, id) DO UPDATE
SET seq = excluded.seq, level = excluded.level, at = excluded.at, line = excluded.line
WHERE logs.seq <= (SELECT upto FROM orphans WHERE ns = excluded.ns AND task = excluded.task)
