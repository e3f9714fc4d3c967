-- Purpose: submitting tasks from SQL: by any driver, in any language, in triggers.
-- A task goes into the inbox, in the transaction of the caller, and is taken from there after its commit.
-- No rows but the new one are locked. Arguments are checked as they are elsewhere: an error names the
-- argument and the limit (SQLSTATE 22023).

-- Refuses text that is empty or too long.
CREATE FUNCTION plimsoll.check_text(argument text, given text, most integer) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF given IS NULL OR given = '' THEN
        RAISE EXCEPTION '%: must not be empty', argument USING ERRCODE = 'invalid_parameter_value';
    ELSIF octet_length(given) > most THEN
        RAISE EXCEPTION '%: % bytes, at most % are allowed', argument, octet_length(given), most
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- An interval in microseconds: up to a hundred years.
CREATE FUNCTION plimsoll.micros(argument text, given interval) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF given < '0' OR given > interval '36500 days' THEN
        RAISE EXCEPTION '%: % is not between 0 and 100 years', argument, given
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN (extract(epoch FROM given) * 1000000)::bigint;
END
$$;

-- An id that is greater than those made before: version 7. Of tasks that are as urgent, the lower id is first.
CREATE FUNCTION plimsoll.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT (lpad(to_hex(micros / 1000), 12, '0') || '7' || lpad(to_hex(micros % 1000 * 4096 / 1000), 3, '0')
            || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros) now
$$;

-- Submits a task with a payload of any bytes. Answers its id.
-- key_lifetime: how long the key stands for the task: NULL until that is deleted, 0 until it has ended.
-- max_attempts: how often it may fail; 0: without limit.
CREATE FUNCTION plimsoll.submit_bytes(
    queue           text,
    kind            text,
    payload         bytea,
    namespace       text DEFAULT 'default',
    id              uuid DEFAULT NULL,
    priority        integer DEFAULT 5,
    key             text DEFAULT NULL,
    key_lifetime    interval DEFAULT NULL,
    on_conflict     text DEFAULT 'attach',
    run_at          timestamptz DEFAULT NULL,
    delay           interval DEFAULT NULL,
    owner           text DEFAULT NULL,
    labels          jsonb DEFAULT NULL,
    "group"         text DEFAULT NULL,
    max_attempts    integer DEFAULT 4,
    attempt_timeout interval DEFAULT NULL,
    trace           text DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    of_ns   integer;
    new_id  uuid := coalesce(id, plimsoll.new_id());
    refusal text;
    label   record;
BEGIN
    PERFORM plimsoll.check_text('queue', queue, 128);
    PERFORM plimsoll.check_text('kind', kind, 128);
    PERFORM plimsoll.check_text('namespace', namespace, 64);
    refusal := CASE
        WHEN payload IS NULL THEN 'payload: must not be NULL'
        WHEN octet_length(payload) > 262144
            THEN format('payload: %s bytes, at most 262144 are allowed', octet_length(payload))
        WHEN priority IS NULL OR priority NOT BETWEEN 0 AND 10
            THEN format('priority: %s is not between 0 and 10', coalesce(priority::text, 'NULL'))
        WHEN max_attempts IS NULL OR max_attempts < 0
            THEN format('max_attempts: %s is not between 0 and 2147483647', coalesce(max_attempts::text, 'NULL'))
        WHEN on_conflict IS NULL OR on_conflict NOT IN ('attach', 'reject', 'replace_pending', 'cancel_and_replace')
            THEN 'on_conflict: expected attach, reject, replace_pending or cancel_and_replace'
        WHEN key IS NULL AND (key_lifetime IS NOT NULL OR on_conflict <> 'attach')
            THEN 'key: is missing: key_lifetime and on_conflict are about it'
        WHEN run_at IS NOT NULL AND delay IS NOT NULL THEN 'delay: not together with run_at'
        WHEN run_at NOT BETWEEN '1970-01-01 00:00:00Z' AND '9999-12-30 22:00:00Z'
            THEN format('run_at: %s is not between 1970 and 9999', run_at)
        WHEN attempt_timeout < interval '1 millisecond'
            THEN format('attempt_timeout: %s is shorter than 1 ms', attempt_timeout)
        WHEN octet_length(trace) > 65536
            THEN format('trace: %s bytes, at most 65536 are allowed', octet_length(trace))
        WHEN jsonb_typeof(labels) <> 'object' THEN 'labels: expected an object'
    END;
    IF refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', refusal USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF key IS NOT NULL THEN PERFORM plimsoll.check_text('key', key, 512); END IF;
    IF owner IS NOT NULL THEN PERFORM plimsoll.check_text('owner', owner, 128); END IF;
    IF "group" IS NOT NULL THEN PERFORM plimsoll.check_text('group', "group", 512); END IF;
    IF labels IS NOT NULL THEN
        IF (SELECT count(*) FROM jsonb_object_keys(labels)) > 256 THEN
            RAISE EXCEPTION 'labels: at most 256 are allowed' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        FOR label IN SELECT l.key AS name, l.value FROM jsonb_each(labels) l LOOP
            PERFORM plimsoll.check_text('labels', label.name, 128);
            IF jsonb_typeof(label.value) <> 'string' THEN
                RAISE EXCEPTION 'labels.%: expected text', label.name USING ERRCODE = 'invalid_parameter_value';
            END IF;
            PERFORM plimsoll.check_text('labels.' || label.name, label.value #>> '{}', 128);
        END LOOP;
    END IF;
    SELECT n.ns INTO of_ns FROM plimsoll.namespaces n WHERE n.name = namespace;
    IF of_ns IS NULL THEN
        -- Making it here would keep whoever opens it waiting for the end of the caller's transaction.
        RAISE EXCEPTION 'namespace: % is not there: open it once', namespace
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO plimsoll.inbox (ns, id, queue, kind, payload, priority, run_at, key, key_lifetime_us, on_conflict,
                                "group", owner, labels, max_attempts, attempt_timeout_us, trace)
    VALUES (of_ns, new_id, queue, kind, payload, priority,
            coalesce(run_at, clock_timestamp() + plimsoll.micros('delay', delay) * interval '1 microsecond'),
            key, plimsoll.micros('key_lifetime', key_lifetime), on_conflict,
            "group", owner, labels, max_attempts, plimsoll.micros('attempt_timeout', attempt_timeout), trace);
    -- The channel is called like the schema.
    PERFORM pg_notify((parse_ident('plimsoll.inbox'))[1], format('[%s,"i"]', of_ns));
    RETURN new_id;
END
$$;

-- Likewise with a payload of JSON, which workers get as text.
CREATE FUNCTION plimsoll.submit(
    queue           text,
    kind            text,
    payload         jsonb,
    namespace       text DEFAULT 'default',
    id              uuid DEFAULT NULL,
    priority        integer DEFAULT 5,
    key             text DEFAULT NULL,
    key_lifetime    interval DEFAULT NULL,
    on_conflict     text DEFAULT 'attach',
    run_at          timestamptz DEFAULT NULL,
    delay           interval DEFAULT NULL,
    owner           text DEFAULT NULL,
    labels          jsonb DEFAULT NULL,
    "group"         text DEFAULT NULL,
    max_attempts    integer DEFAULT 4,
    attempt_timeout interval DEFAULT NULL,
    trace           text DEFAULT NULL
) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT plimsoll.submit_bytes(queue, kind, convert_to(payload::text, 'UTF8'), namespace, id, priority, key,
                                 key_lifetime, on_conflict, run_at, delay, owner, labels, "group", max_attempts,
                                 attempt_timeout, trace)
$$;

-- The namespace that is meant when none is named.
INSERT INTO plimsoll.namespaces (name) VALUES ('default') ON CONFLICT DO NOTHING;
