-- Purpose: the columns of a task that has not ended, as `task_from` reads them: `s` is `specs`, `t` is
-- `tasks`. The same columns in the same order as in done_columns.sql.
{spec_columns},
t.status, t.priority, t.runnable_at, coalesce(t.modified_at, t.runnable_at), t.revision,
coalesce(t.fence, 0), coalesce(t.attempts, 0), coalesce(t.failures, 0), t.started_at, t.claimed_at,
t.stage, t.progress, t.more,
t.until, t.deadline, t.incarnation, t.worker,
NULL::timestamptz, NULL::bytea, NULL::text, NULL::uuid, NULL::text
