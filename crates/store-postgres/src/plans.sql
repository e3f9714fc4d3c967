-- Purpose: tables with many rows, for the test of plans.
-- Ids, keys and times grow with the number of a row. Lane 1 has everything, and is not the only one.
SELECT plimsoll.make_partition('2030-01-01'), plimsoll.make_partition('2020-01-01');

CREATE FUNCTION plimsoll.nth(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(n::text, 32, '0')::uuid
$$;
CREATE FUNCTION plimsoll.at(n bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT '2020-01-01'::timestamptz + n * interval '1 second'
$$;

-- Rows.
INSERT INTO plimsoll.namespaces (name) VALUES ('1'), ('2');
INSERT INTO plimsoll.records
SELECT ns, 'k' || lpad(n::text, 5, '0'), jsonb_build_object('n', n::text), 1, plimsoll.at(n),
       CASE n % 3 WHEN 0 THEN plimsoll.at(n) END
FROM generate_series(1, 20000) n, generate_series(1, 2) ns;
INSERT INTO plimsoll.indexes (ns, prefix, field) VALUES (1, 'k', 'n'), (1, NULL, NULL), (2, 'k', 'n');
INSERT INTO plimsoll.index_entries
SELECT idx, n, 'k' || lpad(n::text, 5, '0') FROM generate_series(1, 20000) n, generate_series(1, 3) idx;

-- Tasks that wait, are scheduled and, a few, claimed; then tasks that ended.
INSERT INTO plimsoll.specs
    (ns, id, lane, born, created_at, max_attempts, queue, kind, payload, "group", owner, key)
SELECT 1 + n % 2, plimsoll.nth(n), 1 + n % 2, n, plimsoll.at(n), 1, 'q', 'k', 'x', 'g', 'o', NULL
FROM generate_series(1, 4 * 20000) n;
INSERT INTO plimsoll.tasks
    (ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures,
     until, worker, incarnation)
SELECT 1 + n % 2, 1 + n % 2, plimsoll.nth(n), status, n % 7 % 5, plimsoll.at(n), plimsoll.at(n), n, 1, 1, 0,
       CASE status WHEN 2 THEN plimsoll.at(n) END, CASE status WHEN 2 THEN 'w' END,
       CASE status WHEN 2 THEN plimsoll.nth(1) END
FROM generate_series(1, 2 * 20000) n,
     LATERAL (SELECT CASE WHEN n % 200 < 2 THEN 2 ELSE n / 2 % 2 END AS status) s;
INSERT INTO plimsoll.tasks_done
    (ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures,
     finished_at, removable_from)
SELECT 1 + n % 2, 1 + n % 2, plimsoll.nth(n), 3 + n / 2 % 3, 1, plimsoll.at(n), plimsoll.at(n), n, 1, 1, 0,
       plimsoll.at(n) + n % 3 * interval '10 years', plimsoll.at(n)
FROM generate_series(2 * 20000 + 1, 4 * 20000) n;
INSERT INTO plimsoll.keys
SELECT ns, 'k' || lpad(n::text, 5, '0'), plimsoll.nth(n) FROM generate_series(1, 20000) n, generate_series(1, 2) ns;
INSERT INTO plimsoll.counts
SELECT ns, 'q' || n % 5, 'k', n % 6, 1 FROM generate_series(1, 200) n, generate_series(1, 2) ns;
INSERT INTO plimsoll.counts SELECT 2, 'q', 'k', 1, 1 FROM generate_series(1, 20000) n;
INSERT INTO plimsoll.groups
SELECT ns, 'g' || n, 1, 1, 0, true, plimsoll.at(n), 'x'
FROM generate_series(1, 20000) n, generate_series(1, 2) ns;

INSERT INTO plimsoll.logs (ns, task, id, level, fence, at, message)
SELECT 1, plimsoll.nth(10000 + n % 2), plimsoll.nth(n), 1, 1, plimsoll.at(n), 'x'
FROM generate_series(1, 20000) n;
INSERT INTO plimsoll.orphans SELECT 1, plimsoll.nth(10001), 10000;
INSERT INTO plimsoll.changes SELECT ns, n, plimsoll.at(n), 'x' FROM generate_series(1, 20000) n, generate_series(1, 2) ns;
INSERT INTO plimsoll.commits SELECT ns, plimsoll.nth(n), plimsoll.at(n), n, 'x' FROM generate_series(1, 20000) n, generate_series(1, 2) ns;
INSERT INTO plimsoll.claims
SELECT ns, plimsoll.nth(n), plimsoll.at(n), n, NULL, plimsoll.nth(1), 'w', '{}', NULL, '{}', '{}'
FROM generate_series(1, 20000) n, generate_series(1, 2) ns;
-- Ten open claims of each namespace, with ten tasks each that have no row.
INSERT INTO plimsoll.specs
    (ns, id, lane, born, created_at, max_attempts, queue, kind, payload, "group", owner, key)
SELECT 1 + n / 100, plimsoll.nth(80001 + n), 1 + n / 100, n, plimsoll.at(n), 1, 'q', 'k', 'x', 'g', 'o', NULL
FROM generate_series(0, 199) n;
INSERT INTO plimsoll.claims
SELECT 1 + n / 10, plimsoll.nth(20001 + n), plimsoll.at(n), 1000000, plimsoll.at(n), plimsoll.nth(1), 'w',
       ARRAY(SELECT plimsoll.nth(80001 + 10 * n + i) FROM generate_series(0, 9) i ORDER BY i), NULL,
       array_fill(1::smallint, ARRAY[10]), array_fill(plimsoll.at(n), ARRAY[10])
FROM generate_series(0, 19) n;

INSERT INTO plimsoll.inbox (ns, seq, id, queue, kind, payload, priority, on_conflict, max_attempts)
OVERRIDING SYSTEM VALUE
SELECT ns, n, plimsoll.nth(n), 'q', 'k', 'x', 5, 'attach', 4
FROM generate_series(1, 20000) n, generate_series(1, 2) ns;
INSERT INTO plimsoll.inbox_refused
    (ns, seq, id, queue, kind, payload, priority, on_conflict, max_attempts, refused_at, reason)
SELECT ns, -n, plimsoll.nth(n), 'q', 'k', 'x', 5, 'attach', 4, plimsoll.at(n), 'x'
FROM generate_series(1, 20000) n, generate_series(1, 2) ns;
