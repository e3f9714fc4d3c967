-- Purpose: the number of a namespace, which it gets now if it has none.
-- Inputs: $1 its name.
-- Results: the number; no row if another process has given it one meanwhile. Locking: none, unless it is new.
WITH found AS (
    SELECT ns FROM plimsoll.namespaces WHERE name = $1
),
new AS (
    INSERT INTO plimsoll.namespaces (name)
    SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM found)
    ON CONFLICT (name) DO NOTHING
    RETURNING ns
)
SELECT ns FROM found
UNION ALL
SELECT ns FROM new
