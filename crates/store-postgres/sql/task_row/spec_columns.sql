-- Purpose: the columns of `s`, which is `specs`, for all that reads tasks.
-- Who only wants to know whether a task can be read has another {payload} sent.
s.id, s.queue, s.kind, s.born, s.created_at, s.group_born, {payload}, s.key, s."group", s.owner, s.labels,
s.trace, coalesce(s.max_attempts, 4), s.attempt_timeout_us, s.more
