-- Purpose: from version 1 to version 2, before the lines of logs are copied from `logs_1`.
-- Lines get a time of their own, to be removed by, and numbers that are never used again.
-- Lanes that lost their last task are gone.
-- Locking: inside the transaction that opens the file.

ALTER TABLE namespaces ADD COLUMN lines INTEGER NOT NULL DEFAULT 0;

UPDATE namespaces
SET lines = (SELECT coalesce(max(seq), 0) FROM logs WHERE logs.ns = namespaces.ns);

DELETE FROM lanes
WHERE NOT EXISTS (SELECT 1 FROM counts c WHERE c.lane = lanes.lane AND c.tasks > 0);

DELETE FROM counts
WHERE lane NOT IN (SELECT lane FROM lanes);

ALTER TABLE logs RENAME TO logs_1;

CREATE TABLE logs (
    ns    INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    seq   INTEGER NOT NULL,
    id    BLOB    NOT NULL,
    level INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    line  BLOB    NOT NULL,
    PRIMARY KEY (ns, task, seq),
    UNIQUE (ns, task, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX logs_by_age ON logs (ns, at);
