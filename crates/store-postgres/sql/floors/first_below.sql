-- Purpose: the moment of the first task of each priority that is before a floor and that nobody is taking.
-- Rows before the epoch cannot be read, and are left out.
-- Inputs: $1 the lane, $2 priorities, $3 their floors.
-- Results: an array of moments, by priority, and when the look began and ended.
-- Locking: these tasks, until the statement ends, and passes over those that others have locked.
SELECT
    ARRAY(
        SELECT (
            SELECT runnable_at
            FROM plimsoll.tasks
            WHERE lane = $1 AND status = 1
              AND priority = f.priority AND runnable_at < f.floor AND runnable_at >= 'epoch'
            ORDER BY runnable_at
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        )
        FROM unnest($2, $3) f(priority, floor)
        ORDER BY f.priority
    ),
    statement_timestamp(),
    clock_timestamp()
