-- Purpose: the columns of a task that has ended, as `task_from` reads them: `s` is `specs`, `d` is
-- `tasks_done`. The same columns in the same order as in live_columns.sql. Who does not want results has
-- another {result} sent.
{spec_columns},
d.status, d.priority, coalesce(d.runnable_at, s.created_at), coalesce(d.modified_at, d.finished_at), d.revision,
coalesce(d.fence, 1), coalesce(d.attempts, 1), coalesce(d.failures, 0), d.started_at,
coalesce(d.claimed_at, d.started_at),
d.stage, d.progress, d.more,
NULL::timestamptz, NULL::timestamptz, NULL::uuid, NULL::text,
d.finished_at, {result}, d.reason, d.settled_by, d.settled_worker
