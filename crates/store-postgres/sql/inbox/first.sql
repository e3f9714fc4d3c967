-- Purpose: the first tasks of the inbox, if it is our turn: not many, and not many bytes.
-- Inputs: $1 the namespace, $2 how many, $3 from how many bytes on no more are taken, $4 those that are
-- passed over.
-- Results: number and columns of each, in order.
-- Locking: the turn, until the transaction ends, and the rows, but for those that others have locked.
SELECT
    seq, id, queue, kind, payload, priority, run_at, key, key_lifetime_us, on_conflict, "group", owner,
    labels, max_attempts, attempt_timeout_us, trace, more
FROM plimsoll.inbox
WHERE ns = $1
  AND seq = ANY(ARRAY(
      SELECT seq
      FROM (
          SELECT seq, sum(octet_length(payload)) OVER (
              ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
          ) AS bytes_before
          FROM (
              SELECT seq, payload
              FROM plimsoll.inbox
              WHERE ns = $1 AND seq <> ALL($4)
              ORDER BY seq
              LIMIT $2
          ) first
      ) sized
      WHERE coalesce(bytes_before, 0) < $3
  ))
  AND (SELECT pg_try_advisory_xact_lock(hashtextextended('plimsoll.inbox ' || $1, 0)))
ORDER BY seq
FOR UPDATE SKIP LOCKED
