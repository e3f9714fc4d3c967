-- Purpose: from version 5 to version 6. Records and the history get rowids, so that their primary key is an index:
-- whoever looked for one among large ones read those it was compared with, whole. Columns and keys stay as they were,
-- for views and foreign keys that somebody has made.
-- Locking: inside the transaction that opens the file. It copies both, once, which takes about 10 seconds for each gigabyte
-- and up to twice as much disk again, half of it in the log: two kinds of tables side by side would cost every reader for ever.

DROP INDEX records_expiring;
ALTER TABLE records RENAME TO records_5;

CREATE TABLE records (
    ns          INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    fields      BLOB    NOT NULL,
    revision    INTEGER NOT NULL,
    modified_at INTEGER NOT NULL,
    expires_at  INTEGER,
    PRIMARY KEY (ns, key)
) STRICT;

INSERT INTO records (ns, key, fields, revision, modified_at, expires_at)
SELECT ns, key, fields, revision, modified_at, expires_at FROM records_5 ORDER BY ns, key;

CREATE INDEX records_expiring ON records (ns, expires_at, key) WHERE expires_at IS NOT NULL;

DROP TABLE records_5;

ALTER TABLE history RENAME TO history_5;

CREATE TABLE history (
    ns       INTEGER NOT NULL,
    position INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    changes  BLOB    NOT NULL,
    PRIMARY KEY (ns, position)
) STRICT;

INSERT INTO history (ns, position, at, changes)
SELECT ns, position, at, changes FROM history_5 ORDER BY ns, position;

DROP TABLE history_5;
