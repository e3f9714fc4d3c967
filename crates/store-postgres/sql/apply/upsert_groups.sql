-- Purpose: writes groups that are locked, or are not there.
-- Inputs: $1 the namespace; of each group $2 id, $3 to $5 how many tasks it has, are done and have failed, $6
-- whether it is sealed, $7 when it drained, $8 its body.
-- Results: none. Locking: the groups.
INSERT INTO plimsoll.groups
SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (ns, id) DO UPDATE SET
    spawned = excluded.spawned,
    done = excluded.done,
    failed = excluded.failed,
    sealed = excluded.sealed,
    drained_at = excluded.drained_at,
    body = excluded.body
