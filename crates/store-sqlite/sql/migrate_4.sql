-- Purpose: from version 3 to version 4. Indexes on integer fields of records can be declared.
-- Locking: inside the transaction that opens the file.

ALTER TABLE namespaces ADD COLUMN indexes INTEGER NOT NULL DEFAULT 0;

CREATE TABLE indexes (
    idx    INTEGER PRIMARY KEY,
    ns     INTEGER NOT NULL,
    prefix TEXT,
    field  TEXT,
    filled TEXT,
    UNIQUE (ns, prefix, field)
) STRICT;

CREATE TABLE index_entries (
    idx   INTEGER NOT NULL,
    value INTEGER NOT NULL,
    key   TEXT    NOT NULL,
    PRIMARY KEY (idx, value, key)
) STRICT, WITHOUT ROWID;
