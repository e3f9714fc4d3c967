-- Purpose: the tables, version 1.
-- Nothing is shared between namespaces: every key begins with the namespace `ns`, or with a lane or an
-- index, which belongs to one. A lane is a number made of namespace, queue and kind.
-- Status: 0 scheduled, 1 pending, 2 claimed, 3 completed, 4 failed, 5 cancelled.
-- Names end in nothing that people have to know: the views `jobs`, `job_logs`, `workers` and others show them.

CREATE TABLE plimsoll.namespaces (
    ns        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text COLLATE "C" NOT NULL UNIQUE,
    compacted bigint NOT NULL DEFAULT 0 -- history up to here is gone
);

-- A call takes 1,024 revisions at once, one for each of its commits.
CREATE SEQUENCE plimsoll.revisions INCREMENT BY 1024;
CREATE SEQUENCE plimsoll.positions;

CREATE TABLE plimsoll.records (
    ns          integer NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fields      jsonb NOT NULL, -- text as it is; what is not text as {"base64": ...}
    revision    bigint NOT NULL,
    modified_at timestamptz NOT NULL,
    expires_at  timestamptz,
    PRIMARY KEY (ns, key)
);

CREATE INDEX records_expiring ON plimsoll.records (ns, expires_at) WHERE expires_at IS NOT NULL;

-- Declared indexes on integer fields of records. One that was dropped has neither prefix nor field, and
-- goes with its last entry.
CREATE TABLE plimsoll.indexes (
    idx    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ns     integer NOT NULL,
    prefix text COLLATE "C",
    field  text COLLATE "C",
    filled text COLLATE "C", -- existing records up to this key are in; NULL: all are
    UNIQUE (ns, prefix, field)
);

CREATE TABLE plimsoll.index_entries (
    idx   integer NOT NULL,
    value bigint NOT NULL,
    key   text COLLATE "C" NOT NULL,
    PRIMARY KEY (idx, value, key)
);

-- What never changes of a task. Written once. Columns are in an order that needs no space between them.
CREATE TABLE plimsoll.specs (
    lane            bigint NOT NULL,
    born            bigint NOT NULL, -- the revision that created it
    created_at      timestamptz NOT NULL,
    group_born      bigint,
    attempt_timeout_us bigint,
    id              uuid NOT NULL,
    ns              integer NOT NULL,
    max_attempts    integer, -- NULL: 4
    queue           text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    payload         bytea NOT NULL,
    key             text COLLATE "C",
    "group"         text COLLATE "C",
    owner           text COLLATE "C",
    labels          jsonb,
    trace           text,
    more            bytea, -- what few tasks have
    PRIMARY KEY (ns, id)
);

CREATE INDEX specs_by_group ON plimsoll.specs (ns, "group", id) WHERE "group" IS NOT NULL;
CREATE INDEX specs_by_owner ON plimsoll.specs (ns, owner, id) WHERE owner IS NOT NULL;

-- Tasks that have not ended: the hot table. Its rows are narrow, and few compared to what has ended. What is as
-- it is for most is NULL, here and in `tasks_done`: it takes no space.
CREATE TABLE plimsoll.tasks (
    lane        bigint NOT NULL,
    id          uuid NOT NULL,
    ns          integer NOT NULL,
    status      smallint NOT NULL CHECK (status BETWEEN 0 AND 2),
    priority    smallint NOT NULL CHECK (priority BETWEEN 0 AND 10),
    runnable_at timestamptz NOT NULL,
    modified_at timestamptz, -- NULL: runnable_at
    revision    bigint NOT NULL,
    fence       bigint, -- NULL: 0, as attempts and failures
    attempts    integer,
    failures    integer,
    started_at  timestamptz,
    claimed_at  timestamptz,
    until       timestamptz, -- when the lease ends
    deadline    timestamptz,
    incarnation uuid,
    worker      text COLLATE "C",
    stage       text COLLATE "C",
    progress    jsonb,
    more        bytea, -- what few tasks have
    PRIMARY KEY (lane, id),
    CHECK (coalesce(fence, 0) >= coalesce(attempts, 0)), -- each attempt has one of its own
    CHECK ((status = 2) = (until IS NOT NULL)),
    CHECK ((status = 2) = (worker IS NOT NULL))
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX tasks_ready ON plimsoll.tasks (lane, priority DESC, runnable_at, id) WHERE status = 1;
CREATE INDEX tasks_scheduled ON plimsoll.tasks (lane, runnable_at) WHERE status = 0;
CREATE INDEX tasks_due ON plimsoll.tasks (ns, runnable_at) WHERE status = 0;
CREATE INDEX tasks_leased ON plimsoll.tasks (ns, until) WHERE status = 2;

-- Tasks that have ended, by the month in which they did.
CREATE TABLE plimsoll.tasks_done (
    lane           bigint NOT NULL,
    id             uuid NOT NULL,
    ns             integer NOT NULL,
    status         smallint NOT NULL CHECK (status BETWEEN 3 AND 5),
    priority       smallint NOT NULL CHECK (priority BETWEEN 0 AND 10),
    runnable_at    timestamptz, -- NULL: created_at of its spec
    modified_at    timestamptz, -- NULL: finished_at
    revision       bigint NOT NULL,
    fence          bigint, -- NULL: 1
    attempts       integer, -- NULL: 1
    failures       integer, -- NULL: 0
    started_at     timestamptz,
    claimed_at     timestamptz, -- NULL: started_at
    finished_at    timestamptz NOT NULL,
    removable_from timestamptz, -- retention counts from here; NULL: finished_at
    stage          text COLLATE "C",
    progress       jsonb,
    result         bytea,
    reason         text,
    settled_by     uuid, -- the life of the worker that ended it, and its name
    settled_worker text COLLATE "C",
    more           bytea,
    CHECK (coalesce(fence, 1) >= coalesce(attempts, 1)),
    CHECK (started_at IS NULL OR started_at <= finished_at)
) PARTITION BY RANGE (finished_at);

CREATE TABLE plimsoll.tasks_done_other PARTITION OF plimsoll.tasks_done DEFAULT;

CREATE INDEX tasks_done_by_id ON plimsoll.tasks_done (lane, id);
-- Those that ended at the same moment are few, and sorted when they are read.
CREATE INDEX tasks_done_by_age ON plimsoll.tasks_done (ns, status, coalesce(removable_from, finished_at));
CREATE INDEX tasks_done_badly ON plimsoll.tasks_done (lane, status, id) WHERE status > 3;

-- How many tasks each lane has in each status: what each transaction added, summed up now and then.
CREATE TABLE plimsoll.counts (
    ns     integer NOT NULL,
    queue  text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    status smallint NOT NULL,
    tasks  bigint NOT NULL
);

CREATE INDEX counts_by_lane ON plimsoll.counts (ns, queue, kind);

-- Which task an idempotency key was last given to.
CREATE TABLE plimsoll.keys (
    ns   integer NOT NULL,
    key  text COLLATE "C" NOT NULL,
    task uuid NOT NULL,
    PRIMARY KEY (ns, key)
);

CREATE TABLE plimsoll.groups (
    ns         integer NOT NULL,
    id         text COLLATE "C" NOT NULL,
    spawned    bigint NOT NULL,
    done       bigint NOT NULL,
    failed     bigint NOT NULL,
    sealed     boolean NOT NULL,
    drained_at timestamptz,
    body       bytea NOT NULL,
    PRIMARY KEY (ns, id)
);

CREATE INDEX groups_drained ON plimsoll.groups (ns, drained_at) WHERE drained_at IS NOT NULL;

CREATE TABLE plimsoll.logs (
    ns       integer NOT NULL,
    task     uuid NOT NULL,
    seq      bigint GENERATED ALWAYS AS IDENTITY, -- grows, and is never used again
    id       uuid NOT NULL,
    level    smallint NOT NULL CHECK (level BETWEEN 0 AND 3),
    fence    bigint NOT NULL,
    at       timestamptz NOT NULL,
    stage    text COLLATE "C",
    message  text NOT NULL,
    metadata bytea,
    step     jsonb, -- the command that this line reports
    PRIMARY KEY (ns, task, seq),
    UNIQUE (ns, task, id)
);

CREATE INDEX logs_by_age ON plimsoll.logs (ns, at);

-- Logs whose task is gone, and that were too long to go with it at once. Another task may have the id:
-- its lines come after these.
CREATE TABLE plimsoll.orphans (
    ns   integer NOT NULL,
    task uuid NOT NULL,
    upto bigint NOT NULL, -- the number of the last line that goes
    PRIMARY KEY (ns, task)
);

-- One entry for each transaction that changed something of the namespace.
CREATE TABLE plimsoll.changes (
    ns       integer NOT NULL,
    position bigint NOT NULL,
    at       timestamptz NOT NULL,
    changes  bytea NOT NULL,
    PRIMARY KEY (ns, position)
);

-- Where the server knows this compression, it takes a quarter of the time of the usual one.
DO $$
BEGIN
    ALTER TABLE plimsoll.changes ALTER COLUMN changes SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END
$$;

-- Answers that are kept for a while, so that a call can be repeated.
CREATE TABLE plimsoll.commits (
    ns       integer NOT NULL,
    id       uuid NOT NULL,
    at       timestamptz NOT NULL,
    position bigint,
    receipt  bytea NOT NULL,
    PRIMARY KEY (ns, id)
);

CREATE INDEX commits_by_age ON plimsoll.commits (ns, at);

-- A claim that took something: so that it can be repeated, and as the lease of what it took. A task of which
-- there is nothing to say but that this claim took it has no row in `tasks` until somebody has more to say:
-- it is held as long as the claim is open and it is neither in `tasks` nor in `tasks_done`. It leaves for one
-- of them, and never comes back: it is claimed for the first time only once. The holder locks the claim FOR
-- SHARE and only adds the new row. Everybody else locks it FOR UPDATE and notes the task in `gone`.
CREATE TABLE plimsoll.claims (
    ns          integer NOT NULL,
    request     uuid NOT NULL,
    at          timestamptz NOT NULL,
    revision    bigint NOT NULL,
    until       timestamptz, -- when the lease of what has no row ends; NULL: there is nothing left of it
    incarnation uuid NOT NULL,
    worker      text COLLATE "C" NOT NULL,
    tasks       uuid[] NOT NULL, -- all that was taken, in order
    fences      bigint[], -- of each; NULL: all are 1
    priorities  smallint[] NOT NULL, -- of each, or one for all; NULL: it has a row of its own
    runnable    timestamptz[] NOT NULL, -- likewise
    gone        uuid[] NOT NULL DEFAULT '{}', -- what others than the holder took out
    PRIMARY KEY (ns, request)
);

-- Ids do not get smaller by compression, and what is kept apart is not written again with the row.
ALTER TABLE plimsoll.claims
    ALTER COLUMN tasks SET STORAGE EXTERNAL,
    ALTER COLUMN fences SET STORAGE EXTERNAL,
    ALTER COLUMN priorities SET STORAGE EXTERNAL,
    ALTER COLUMN runnable SET STORAGE EXTERNAL;

CREATE INDEX claims_open ON plimsoll.claims (ns, until) WHERE until IS NOT NULL;
CREATE INDEX claims_by_age ON plimsoll.claims (ns, at) WHERE until IS NULL;

-- What open claims took without leaving it a row, as such rows would be.
CREATE VIEW plimsoll.taken AS
SELECT
    c.ns, u.id, 2::smallint AS status, u.priority, u.runnable_at, c.at AS modified_at, c.revision,
    1::bigint AS fence, 1 AS attempts, 0 AS failures, c.at AS started_at, c.at AS claimed_at, c.until,
    NULL::timestamptz AS deadline, c.incarnation, c.worker, NULL::text AS stage, NULL::jsonb AS progress,
    NULL::bytea AS more, c.request
FROM plimsoll.claims c
CROSS JOIN LATERAL unnest(c.tasks, c.priorities, c.runnable) each(id, priority, runnable_at)
CROSS JOIN LATERAL (
    SELECT each.id, CASE cardinality(c.priorities) WHEN 1 THEN c.priorities[1] ELSE each.priority END AS priority,
        CASE cardinality(c.runnable) WHEN 1 THEN c.runnable[1] ELSE each.runnable_at END AS runnable_at
) u
WHERE c.until IS NOT NULL AND u.priority IS NOT NULL AND u.id <> ALL (c.gone);

-- What of it is still held. Claims are few: OFFSET and LIMIT keep the planner from beginning with another table.
CREATE VIEW plimsoll.held AS
SELECT s.lane, t.*
FROM plimsoll.taken t
CROSS JOIN LATERAL (
    SELECT s.lane FROM plimsoll.specs s WHERE s.ns = t.ns AND s.id = t.id
      AND (SELECT 1 FROM plimsoll.tasks o WHERE o.lane = s.lane AND o.id = t.id LIMIT 1) IS NULL
      AND (SELECT 1 FROM plimsoll.tasks_done o WHERE o.lane = s.lane AND o.id = t.id LIMIT 1) IS NULL
    OFFSET 0
) s;

-- Likewise, of tasks that are in neither table. Few ids are looked for in each claim as it is, many in a
-- hash, whatever the settings: `IS TRUE` keeps the planner from making a join of it.
CREATE FUNCTION plimsoll.taken_of(of_ns integer, ids uuid[]) RETURNS SETOF plimsoll.taken
LANGUAGE plpgsql STABLE AS $$
DECLARE
    requests uuid[];
BEGIN
    IF cardinality(ids) BETWEEN 1 AND 8 THEN
        requests := ARRAY(SELECT request FROM plimsoll.claims
            WHERE ns = of_ns AND until IS NOT NULL AND tasks && ids);
        RETURN QUERY SELECT * FROM plimsoll.taken t
            WHERE t.ns = of_ns AND t.request = ANY (requests) AND t.id = ANY (ids);
    ELSIF cardinality(ids) > 8 THEN
        RETURN QUERY SELECT * FROM plimsoll.taken t
            WHERE t.ns = of_ns AND (t.id IN (SELECT unnest(ids))) IS TRUE;
    END IF;
END
$$;

-- Tasks that were submitted inside other people's transactions. They are taken from here once these have
-- committed, in the order of seq.
CREATE TABLE plimsoll.inbox (
    ns                 integer NOT NULL,
    seq                bigint GENERATED ALWAYS AS IDENTITY,
    id                 uuid NOT NULL,
    queue              text COLLATE "C" NOT NULL,
    kind               text COLLATE "C" NOT NULL,
    payload            bytea NOT NULL,
    priority           smallint NOT NULL,
    run_at             timestamptz, -- NULL: at once
    key                text COLLATE "C",
    key_lifetime_us    bigint, -- NULL: until the task is deleted; 0: until it has ended
    on_conflict        text COLLATE "C" NOT NULL,
    "group"            text COLLATE "C",
    owner              text COLLATE "C",
    labels             jsonb,
    max_attempts       integer NOT NULL,
    attempt_timeout_us bigint,
    trace              text,
    more               bytea, -- what few tasks have
    PRIMARY KEY (ns, seq)
);

-- Those that could not become tasks, and why. They are kept for a month.
CREATE TABLE plimsoll.inbox_refused (
    LIKE plimsoll.inbox,
    refused_at timestamptz NOT NULL,
    reason     text NOT NULL,
    PRIMARY KEY (ns, seq)
);
CREATE INDEX inbox_refused_by_age ON plimsoll.inbox_refused (ns, refused_at);

-- Fences, revisions and attempts never fall. Updates are looked at: what an insert would have to be compared
-- with is gone, or in the other table.
CREATE FUNCTION plimsoll.refuse_to_fall() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a fence, revision or number of attempts of % must not fall', TG_TABLE_NAME
        USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER tasks_never_fall BEFORE UPDATE ON plimsoll.tasks FOR EACH ROW
    WHEN (coalesce(NEW.fence, 0) < OLD.fence OR NEW.revision < OLD.revision
        OR coalesce(NEW.attempts, 0) < OLD.attempts)
    EXECUTE FUNCTION plimsoll.refuse_to_fall();

-- Fences and revisions of what has no row are here: they stay as they are, and a claim that is closed stays so.
CREATE TRIGGER claims_never_fall BEFORE UPDATE ON plimsoll.claims FOR EACH ROW
    WHEN (NEW.revision <> OLD.revision OR NEW.fences IS DISTINCT FROM OLD.fences
        OR NEW.incarnation <> OLD.incarnation OR (OLD.until IS NULL AND NEW.until IS NOT NULL))
    EXECUTE FUNCTION plimsoll.refuse_to_fall();

CREATE TRIGGER records_never_fall BEFORE UPDATE ON plimsoll.records FOR EACH ROW
    WHEN (NEW.revision < OLD.revision)
    EXECUTE FUNCTION plimsoll.refuse_to_fall();

-- Locks the keys of records that do not exist. Who has one is about to create its record, and may wait for a
-- row that this transaction has locked: so nobody waits for long, but begins again.
CREATE FUNCTION plimsoll.lock_absent(keys bigint[]) RETURNS void LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(key) FROM unnest(keys) key;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'others create the same records' USING ERRCODE = 'PLM01';
END
$$;

-- Fails the transaction unless as many rows were found as must have been: somebody else was faster.
CREATE FUNCTION plimsoll.expect(got bigint, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF got <> wanted THEN
        RAISE EXCEPTION 'rows have changed: found % of %', got, wanted USING ERRCODE = 'PLM01';
    END IF;
    RETURN true;
END
$$;

-- The first number of the advisory locks that say which positions of a namespace are in flight. Other schemas
-- of the database count their positions by themselves, so they must not share it.
CREATE FUNCTION plimsoll.in_flight(ns integer) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT hashtext('plimsoll positions ' || 'plimsoll.positions'::regclass::oid || ' ' || ns)
$$;

-- Appends an entry to the history. Called last, after all rows are locked. Until the transaction ends, a
-- lock says that a position after this number is in flight: readers go no further.
CREATE FUNCTION plimsoll.append(of_ns integer, at timestamptz, what bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
    taken bigint;
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO before FROM plimsoll.positions;
    PERFORM pg_advisory_xact_lock_shared(plimsoll.in_flight(of_ns), (before & 2147483647)::integer);
    taken := nextval('plimsoll.positions');
    INSERT INTO plimsoll.changes VALUES (of_ns, taken, at, what);
    RETURN taken;
END
$$;

-- How far the history of a namespace can be read, and the newest position given to anybody. What is in
-- flight has announced itself before it took its position; so the newest is read first.
CREATE FUNCTION plimsoll.horizon(of_ns integer, OUT upto bigint, OUT newest bigint) LANGUAGE plpgsql AS $$
DECLARE
    announced oid := (plimsoll.in_flight(of_ns)::bigint & 4294967295)::oid;
    behind bigint;
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO newest FROM plimsoll.positions;
    SELECT max((newest - objid::bigint) & 2147483647) INTO behind FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid = announced
      -- One that announced itself after the newest was read is ahead of it.
      AND ((newest - objid::bigint) & 2147483647) < 1073741824;
    upto := newest - coalesce(behind, 0);
END
$$;
