-- Purpose: appends a line to the log of a task, unless the log has a line of this id.
-- Inputs: 1 namespace, 2 task, 3 line id, 4 level, 5 body.
INSERT INTO logs
SELECT ?1, ?2, (SELECT coalesce(max(seq), 0) + 1 FROM logs WHERE ns = ?1 AND task = ?2), ?3, ?4, ?5
WHERE true
ON CONFLICT DO NOTHING
