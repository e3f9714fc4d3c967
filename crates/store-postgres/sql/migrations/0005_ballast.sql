-- Purpose: tables that are never empty, version 5.
-- A server plans a statement once and keeps the plan. If a table was empty then, every plan for it looked
-- equally cheap, and a bad one would be kept when millions of rows have come. So each table has a few rows of
-- namespace 0, which nobody can have, and which no view shows. They say what is always true: that a namespace
-- or a lane may have all rows there are, and that keys and ids tell rows apart. New partitions get theirs when
-- they are made. Their lane is the lowest, so that indexes by lane end with a real one: a page at the end of an
-- index is left full when it splits, any other half empty, and half of it is written to the log once more.

DO $$
DECLARE
    of text[];
BEGIN
    FOREACH of SLICE 1 IN ARRAY ARRAY[
        ['records', 'ns'], ['index_entries', 'idx'], ['specs', 'ns'], ['tasks', 'ns'], ['tasks', 'lane'],
        ['counts', 'ns'], ['keys', 'ns'], ['groups', 'ns'], ['logs', 'ns'], ['orphans', 'ns'],
        ['changes', 'ns'], ['commits', 'ns'], ['claims', 'ns'], ['inbox', 'ns'], ['inbox_refused', 'ns']
    ] LOOP
        EXECUTE format('ALTER TABLE plimsoll.%I ALTER COLUMN %I SET (n_distinct = 1)', of[1], of[2]);
    END LOOP;
END
$$;

INSERT INTO plimsoll.records
SELECT 0, n::text, '{}', 0, now(), CASE WHEN n % 2 = 0 THEN timestamptz 'infinity' END FROM generate_series(1, 200) n;
INSERT INTO plimsoll.index_entries SELECT 0, n, n::text FROM generate_series(1, 200) n;
INSERT INTO plimsoll.specs
    (ns, id, lane, born, created_at, max_attempts, queue, kind, payload, "group", owner)
SELECT 0, gen_random_uuid(), -9223372036854775808, 0, now(), 0, '', '', '', n % 2, n % 2 FROM generate_series(1, 200) n;
INSERT INTO plimsoll.tasks
    (ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures, until, worker)
SELECT 0, -9223372036854775808, gen_random_uuid(), n % 3, 0, 'infinity', now(), 0, 0, 0, 0,
       CASE n % 3 WHEN 2 THEN timestamptz 'infinity' END, CASE n % 3 WHEN 2 THEN '' END
FROM generate_series(1, 200) n;
INSERT INTO plimsoll.counts SELECT 0, n, n, 0, 0 FROM generate_series(1, 200) n;
INSERT INTO plimsoll.keys SELECT 0, n::text, gen_random_uuid() FROM generate_series(1, 200) n;
INSERT INTO plimsoll.groups
SELECT 0, n::text, 0, 0, 0, false, CASE WHEN n % 2 = 0 THEN timestamptz 'infinity' END, '' FROM generate_series(1, 200) n;
INSERT INTO plimsoll.logs (ns, task, seq, id, level, fence, at, message)
OVERRIDING SYSTEM VALUE
SELECT 0, gen_random_uuid(), 0, gen_random_uuid(), 0, 0, now(), '' FROM generate_series(1, 200) n;
INSERT INTO plimsoll.orphans SELECT 0, gen_random_uuid(), 0 FROM generate_series(1, 200) n;
INSERT INTO plimsoll.changes SELECT 0, -n, now(), '' FROM generate_series(1, 200) n;
INSERT INTO plimsoll.commits SELECT 0, gen_random_uuid(), now(), NULL, '' FROM generate_series(1, 200) n;
INSERT INTO plimsoll.claims
SELECT 0, gen_random_uuid(), now(), 0, CASE WHEN n % 2 = 0 THEN timestamptz 'infinity' END, gen_random_uuid(),
       '', '{}', NULL, '{}', '{}'
FROM generate_series(1, 200) n;
INSERT INTO plimsoll.inbox (ns, seq, id, queue, kind, payload, priority, on_conflict, max_attempts)
OVERRIDING SYSTEM VALUE
SELECT 0, -n, gen_random_uuid(), '', '', '', 0, '', 0 FROM generate_series(1, 200) n;
INSERT INTO plimsoll.inbox_refused
    (ns, seq, id, queue, kind, payload, priority, on_conflict, max_attempts, refused_at, reason)
SELECT 0, -n, gen_random_uuid(), '', '', '', 0, '', 0, now(), '' FROM generate_series(1, 200) n;

ANALYZE plimsoll.records;
ANALYZE plimsoll.index_entries;
ANALYZE plimsoll.specs;
ANALYZE plimsoll.tasks;
ANALYZE plimsoll.counts;
ANALYZE plimsoll.keys;
ANALYZE plimsoll.groups;
ANALYZE plimsoll.logs;
ANALYZE plimsoll.orphans;
ANALYZE plimsoll.changes;
ANALYZE plimsoll.commits;
ANALYZE plimsoll.claims;
ANALYZE plimsoll.inbox;
ANALYZE plimsoll.inbox_refused;
