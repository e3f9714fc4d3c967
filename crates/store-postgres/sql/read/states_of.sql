-- Purpose: tasks with their states, for what begins with `WITH` and tables of its own, if it needs some. A
-- task that moves is in one place in each snapshot. One that is nowhere comes without a state.
-- Inputs: $1 the namespace; {specs}, which has rows of `specs` and is called `s`, {which} of these are meant,
-- and {place}: columns that come last, each after a comma.
rowless AS MATERIALIZED (
    SELECT s.*
    FROM {specs} s
    WHERE {which}
      AND NOT EXISTS (SELECT FROM plimsoll.tasks t WHERE t.lane = s.lane AND t.id = s.id)
      AND NOT EXISTS (SELECT FROM plimsoll.tasks_done d WHERE d.lane = s.lane AND d.id = s.id)
)
SELECT {live_columns}{place}
FROM {specs} s
JOIN plimsoll.tasks t ON t.lane = s.lane AND t.id = s.id
WHERE {which}
UNION ALL
SELECT {done_columns}{place}
FROM {specs} s
JOIN plimsoll.tasks_done d ON d.lane = s.lane AND d.id = s.id
WHERE {which}
UNION ALL
SELECT {live_columns}{place}
FROM rowless s
LEFT JOIN plimsoll.taken_of($1, ARRAY(SELECT id FROM rowless)) t ON t.id = s.id
