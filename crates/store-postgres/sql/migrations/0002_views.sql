-- Purpose: what people look at, version 2. The names and columns are those of the design document
-- "Distributed State Management"; what its tables have and ours do not is NULL.
-- Locking: none. The views read like any query.
-- A filter on job_id, on user_id or on status finds its rows by an index. So that one on status does, each
-- status is a branch of its own, and those that cannot match are left out of the plan.
-- Our own records have keys that begin with our name and a dot. It is written in two halves here, because
-- the name with the dot stands for the schema, whatever that is called.

-- A number that somebody wrote as text; NULL if it is none.
CREATE FUNCTION plimsoll.number_of(word text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN word ~ '^-?[0-9]{1,18}$' THEN word::bigint END;

-- A moment that is written as microseconds since 1970; NULL if it is none.
CREATE FUNCTION plimsoll.moment_of(word text) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN word ~ '^[0-9]{1,18}$'
    THEN timestamptz '1970-01-01 00:00:00+00' + word::bigint * interval '1 microsecond' END;

-- A text that is JSON; NULL if it is none, or none that the database can hold.
CREATE FUNCTION plimsoll.json_of(body text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN body::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- Likewise, of bytes.
CREATE FUNCTION plimsoll.json_of(body bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN convert_from(body, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- The bytes of a field of a record: text as it is, or what is not text as {"base64": ...}; NULL if it is neither.
CREATE FUNCTION plimsoll.bytes_of(field jsonb) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE jsonb_typeof(field)
        WHEN 'string' THEN convert_to(field #>> '{}', 'UTF8')
        WHEN 'object' THEN decode(field ->> 'base64', 'base64')
    END;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- The number of a lane, as the program makes it: the first 64 bits of the SHA-256 of its parts.
CREATE FUNCTION plimsoll.lane_of(ns integer, queue text, kind text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('x' || encode(substr(sha256(
    convert_to(ns::text, 'UTF8') || '\x00' || convert_to(queue, 'UTF8') || '\x00' || convert_to(kind, 'UTF8')
), 1, 8), 'hex'))::bit(64)::bigint;

-- The lowest id that is made at this moment: ids begin with the time, so that tasks of the last hour are
-- those with `job_id >= first_id(now() - interval '1 hour')`, and are found by an index.
CREATE FUNCTION plimsoll.first_id(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid;

-- Tasks as jobs. `status` is the stage of a claimed task, or `processing` if it has none; what waits is
-- `pending`, whether it may run now or later (`run_at`). `task_status` has our own words.
CREATE VIEW plimsoll.jobs AS
WITH shared AS NOT MATERIALIZED (
    SELECT n.name AS namespace, s.*, coalesce(s.max_attempts, 4) - 1 AS retries
    FROM plimsoll.specs s JOIN plimsoll.namespaces n ON n.ns = s.ns
), live AS NOT MATERIALIZED (
    SELECT s.*, t.status, t.priority, t.runnable_at, coalesce(t.modified_at, t.runnable_at) AS modified_at,
        t.revision, coalesce(t.fence, 0) AS fence, coalesce(t.attempts, 0) AS attempts,
        coalesce(t.failures, 0) AS failures, t.started_at, t.claimed_at, t.stage, t.progress, t.until, t.worker, t.incarnation,
        NULL::timestamptz AS finished_at, NULL::bytea AS result, NULL::text AS reason
    FROM shared s JOIN plimsoll.tasks t ON t.ns = s.ns AND t.lane = s.lane AND t.id = s.id
), done AS NOT MATERIALIZED (
    SELECT s.*, d.status, d.priority, coalesce(d.runnable_at, s.created_at) AS runnable_at,
        coalesce(d.modified_at, d.finished_at) AS modified_at, d.revision, coalesce(d.fence, 1) AS fence,
        coalesce(d.attempts, 1) AS attempts, coalesce(d.failures, 0) AS failures, d.started_at,
        coalesce(d.claimed_at, d.started_at) AS claimed_at, d.stage, d.progress, NULL::timestamptz AS until,
        NULL::text AS worker, NULL::uuid AS incarnation, d.finished_at, d.result, d.reason
    FROM shared s JOIN plimsoll.tasks_done d ON d.ns = s.ns AND d.lane = s.lane AND d.id = s.id
), held AS NOT MATERIALIZED (
    SELECT s.*, h.status, h.priority, h.runnable_at, h.modified_at, h.revision, h.fence, h.attempts,
        h.failures, h.started_at, h.claimed_at, h.stage, h.progress, h.until, h.worker, h.incarnation,
        NULL::timestamptz AS finished_at, NULL::bytea AS result, NULL::text AS reason
    FROM shared s JOIN plimsoll.held h ON h.ns = s.ns AND h.id = s.id
), named AS NOT MATERIALIZED (
    SELECT 'pending' AS shown, 'scheduled' AS task_status, live.* FROM live WHERE status = 0
    UNION ALL
    SELECT 'pending', 'pending', live.* FROM live WHERE status = 1
    UNION ALL
    SELECT coalesce(stage, 'processing'), 'claimed', live.* FROM live WHERE status = 2
    UNION ALL
    SELECT 'processing', 'claimed', held.* FROM held
    UNION ALL
    SELECT 'completed', 'completed', done.* FROM done WHERE status = 3
    UNION ALL
    SELECT 'failed', 'failed', done.* FROM done WHERE status = 4
    UNION ALL
    SELECT 'cancelled', 'cancelled', done.* FROM done WHERE status = 5
)
SELECT
    id AS job_id,
    owner AS user_id,
    shown AS status,
    priority::integer AS priority,
    plimsoll.json_of(payload) AS spec,
    NULL::jsonb AS plan,
    created_at,
    modified_at AS updated_at,
    started_at,
    finished_at AS completed_at,
    progress,
    plimsoll.json_of(result) AS output_files,
    CASE WHEN reason IS NOT NULL THEN jsonb_build_object('message', reason) END AS error,
    worker || '#' || incarnation AS worker_id,
    claimed_at AS worker_claimed_at,
    CASE WHEN retries < 0 THEN failures ELSE least(failures, retries) END AS retry_count,
    CASE WHEN retries >= 0 THEN retries END AS max_retries,
    revision AS version,
    namespace,
    queue,
    kind,
    key,
    labels,
    "group",
    trace,
    task_status,
    stage,
    attempts,
    failures,
    fence,
    runnable_at AS run_at,
    until AS lease_until,
    payload,
    result,
    lane
FROM named;

-- How many tasks each lane has: the sizes of queues, and where the tasks of a queue are found.
CREATE VIEW plimsoll.lanes AS
SELECT
    n.name AS namespace,
    c.queue,
    c.kind,
    plimsoll.lane_of(n.ns, c.queue, c.kind) AS lane,
    coalesce(sum(c.tasks) FILTER (WHERE c.status = 0), 0)::bigint AS scheduled,
    coalesce(sum(c.tasks) FILTER (WHERE c.status = 1), 0)::bigint AS pending,
    coalesce(sum(c.tasks) FILTER (WHERE c.status = 2), 0)::bigint AS claimed,
    coalesce(sum(c.tasks) FILTER (WHERE c.status = 3), 0)::bigint AS completed,
    coalesce(sum(c.tasks) FILTER (WHERE c.status = 4), 0)::bigint AS failed,
    coalesce(sum(c.tasks) FILTER (WHERE c.status = 5), 0)::bigint AS cancelled
FROM plimsoll.namespaces n JOIN plimsoll.counts c ON c.ns = n.ns
GROUP BY n.ns, n.name, c.queue, c.kind;

-- Lines of tasks that are still there.
CREATE VIEW plimsoll.job_logs AS
SELECT
    l.seq AS id,
    l.task AS job_id,
    l.at AS "timestamp",
    (ARRAY['debug', 'info', 'warn', 'error'])[l.level + 1] AS level,
    l.stage,
    l.message,
    plimsoll.json_of(l.metadata) AS metadata,
    n.name AS namespace,
    l.fence,
    l.id AS line_id,
    l.step
FROM plimsoll.namespaces n JOIN plimsoll.logs l ON l.ns = n.ns
WHERE NOT EXISTS (
    SELECT 1 FROM plimsoll.orphans o WHERE o.ns = l.ns AND o.task = l.task AND l.seq <= o.upto
);

-- What the steps of each attempt reported last. An attempt is known by its fence.
CREATE VIEW plimsoll.execution_steps AS
SELECT
    id,
    job_id,
    step_id,
    step ->> 'kind' AS type,
    plimsoll.moment_of(step ->> 'started_at') AS started_at,
    plimsoll.moment_of(step ->> 'completed_at') AS completed_at,
    (step ->> 'duration_ms')::bigint AS duration_ms,
    step ->> 'command' AS command,
    (step ->> 'exit_code')::integer AS exit_code,
    step ->> 'stdout' AS stdout,
    step ->> 'stderr' AS stderr,
    (step ->> 'success')::boolean AS success,
    step ->> 'error' AS error,
    namespace,
    fence
FROM (
    SELECT DISTINCT ON (namespace, job_id, fence, step ->> 'step_id') l.*, step ->> 'step_id' AS step_id
    FROM plimsoll.job_logs l WHERE step IS NOT NULL
    ORDER BY namespace, job_id, fence, step ->> 'step_id', id DESC
) told;

-- Records that have not expired.
CREATE VIEW plimsoll.records_now AS
SELECT n.name AS namespace, r.key, r.fields, r.revision, r.modified_at, r.expires_at
FROM plimsoll.namespaces n JOIN plimsoll.records r ON r.ns = n.ns
WHERE r.expires_at IS NULL OR r.expires_at > clock_timestamp();

-- Workers, each life of its own. `status` is what a worker said last, or what was noted about it; one that
-- should have been heard of since is `stale`.
CREATE VIEW plimsoll.workers AS
SELECT *, status <> 'offline' AND clock_timestamp() - last_heartbeat >= stale_after AS stale
FROM (
    SELECT
        fields ->> 'worker_id' AS worker_id,
        fields ->> 'hostname' AS hostname,
        fields ->> 'version' AS version,
        fields ->> 'status' AS status,
        plimsoll.moment_of(fields ->> 'started_at') AS started_at,
        -- A heartbeat only moves the moment at which the record expires.
        expires_at - plimsoll.number_of(fields ->> 'ttl_ms') * interval '1 millisecond' AS last_heartbeat,
        plimsoll.number_of(fields ->> 'max_concurrent') AS max_concurrent,
        plimsoll.number_of(fields ->> 'current_load') AS current_load,
        plimsoll.number_of(fields ->> 'total_jobs') AS total_jobs,
        plimsoll.number_of(fields ->> 'failed_jobs') AS failed_jobs,
        namespace,
        plimsoll.number_of(fields ->> 'pid') AS pid,
        plimsoll.json_of(fields ->> 'queues') AS queues,
        plimsoll.json_of(fields ->> 'kinds') AS kinds,
        plimsoll.number_of(fields ->> 'stale_after_ms') * interval '1 millisecond' AS stale_after
    FROM plimsoll.records_now
    WHERE key >= 'plimsoll' || '.workers.' AND key < 'plimsoll' || '.workers/'
) told;

-- Locks that are held, or kept for the next in line (`reserved`).
CREATE VIEW plimsoll.locks AS
SELECT
    namespace,
    substr(key, length('plimsoll' || '.locks.') + 1) AS name,
    fields ->> 'owner' AS owner,
    plimsoll.moment_of(fields ->> 'since') AS since,
    expires_at AS until,
    coalesce(plimsoll.number_of(fields ->> 'token'), revision) AS token,
    fields ? 'reserved' AS reserved,
    fields ->> 'metadata' AS metadata,
    fields ->> 'holder' AS holder
FROM plimsoll.records_now
WHERE key >= 'plimsoll' || '.locks.' AND key < 'plimsoll' || '.locks/';

-- The name of a job as it is written in keys.
CREATE FUNCTION plimsoll.job_of(escaped text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN replace(replace(escaped, '%2E', '.'), '%25', '%');

-- Jobs with partitions. `phase`: open, closing (a sweeper makes sure that it has ended) or deleted.
CREATE VIEW plimsoll.partitioned_jobs AS
SELECT
    namespace,
    plimsoll.job_of(substr(key, length('plimsoll' || '.jobs.') + 1)) AS job_id,
    plimsoll.number_of(fields ->> 'partitions') AS partitions,
    CASE WHEN fields ? 'generation' THEN 'open' WHEN fields ? 'closing' THEN 'closing' ELSE 'deleted' END
        AS phase,
    plimsoll.number_of(coalesce(fields ->> 'generation', fields ->> 'closing', fields ->> 'deleted'))
        AS generation,
    plimsoll.moment_of(fields ->> 'created_at') AS created_at,
    plimsoll.moment_of(fields ->> 'deleted_at') AS deleted_at,
    plimsoll.number_of(fields ->> 'retain_ms') * interval '1 millisecond' AS retain,
    (SELECT jsonb_object_agg(substr(field, length('about.') + 1), value)
     FROM jsonb_each(fields) AS about (field, value) WHERE starts_with(field, 'about.')) AS about
FROM plimsoll.records_now
WHERE key >= 'plimsoll' || '.jobs.' AND key < 'plimsoll' || '.jobs/';

-- What each partition said last of each tag.
CREATE VIEW plimsoll.states AS
SELECT
    namespace,
    plimsoll.job_of(split_part(rest, '.', 1)) AS job_id,
    plimsoll.number_of(split_part(place, '-', 1)) AS partition,
    substr(place, strpos(place, '-') + 1) AS tag,
    plimsoll.number_of(fields ->> 'status') AS status,
    fields ->> 'message' AS message,
    modified_at AS "timestamp",
    plimsoll.number_of(fields ->> 'version') AS version,
    fields ->> 'event_id' AS event_id,
    plimsoll.json_of(fields ->> 'payload') AS payload,
    plimsoll.number_of(fields ->> 'schema_version') AS schema_version
FROM (
    SELECT *, substr(rest, strpos(rest, '.') + 1) AS place
    FROM (
        SELECT *, substr(key, length('plimsoll' || '.states.') + 1) AS rest
        FROM plimsoll.records_now
        WHERE key >= 'plimsoll' || '.states.' AND key < 'plimsoll' || '.states/'
    ) keyed
) placed;

-- Tasks that were moved into the archive, with the columns of `jobs`. A value that was too large for one
-- record lies in parts beside it, and is NULL here. `worker_id` is who ended the task, `version` that of the
-- record, which is greater than all that the task had.
CREATE VIEW plimsoll.jobs_archive AS
SELECT
    CASE WHEN fields ->> 'job_id' ~ '^[0-9a-f-]{36}$' THEN (fields ->> 'job_id')::uuid END AS job_id,
    fields ->> 'user_id' AS user_id,
    fields ->> 'status' AS status,
    plimsoll.number_of(fields ->> 'priority')::integer AS priority,
    plimsoll.json_of(plimsoll.bytes_of(fields -> 'spec')) AS spec,
    NULL::jsonb AS plan,
    plimsoll.moment_of(fields ->> 'created_at') AS created_at,
    plimsoll.moment_of(fields ->> 'updated_at') AS updated_at,
    plimsoll.moment_of(fields ->> 'started_at') AS started_at,
    plimsoll.moment_of(fields ->> 'completed_at') AS completed_at,
    plimsoll.json_of(fields ->> 'progress') AS progress,
    plimsoll.json_of(plimsoll.bytes_of(fields -> 'output')) AS output_files,
    CASE WHEN fields ? 'error' THEN jsonb_build_object('message', fields ->> 'error',
        'attempts', plimsoll.json_of(fields ->> 'errors')) END AS error,
    fields ->> 'worker_id' AS worker_id,
    plimsoll.moment_of(fields ->> 'worker_claimed_at') AS worker_claimed_at,
    least(plimsoll.number_of(fields ->> 'retry_count'), plimsoll.number_of(fields ->> 'max_retries'))::integer
        AS retry_count,
    plimsoll.number_of(fields ->> 'max_retries')::integer AS max_retries,
    revision AS version,
    namespace,
    fields ->> 'queue' AS queue,
    fields ->> 'kind' AS kind,
    fields ->> 'idempotency_key' AS key,
    plimsoll.json_of(fields ->> 'labels') AS labels,
    fields ->> 'group' AS "group",
    fields ->> 'trace' AS trace,
    fields ->> 'status' AS task_status,
    fields ->> 'stage' AS stage,
    plimsoll.number_of(fields ->> 'attempts')::integer AS attempts,
    plimsoll.number_of(fields ->> 'retry_count')::integer AS failures,
    plimsoll.number_of(fields ->> 'fence') AS fence,
    plimsoll.moment_of(fields ->> 'run_at') AS run_at,
    NULL::timestamptz AS lease_until,
    plimsoll.bytes_of(fields -> 'spec') AS payload,
    plimsoll.bytes_of(fields -> 'output') AS result,
    plimsoll.lane_of((SELECT ns FROM plimsoll.namespaces WHERE name = namespace),
        fields ->> 'queue', fields ->> 'kind') AS lane
FROM plimsoll.records_now
WHERE key >= 'plimsoll' || '.archive.tasks.' AND key < 'plimsoll' || '.archive.tasks/';

-- What has ended does not change. (It can be run again: then it has not ended any more.)
CREATE FUNCTION plimsoll.refuse_to_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a task that has ended does not change' USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER tasks_done_never_change BEFORE UPDATE ON plimsoll.tasks_done FOR EACH ROW
    EXECUTE FUNCTION plimsoll.refuse_to_change();
