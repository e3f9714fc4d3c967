-- Purpose: the tables of one file, version 6.
-- Nothing is shared between namespaces: every key begins with the namespace `ns`, or with a lane or an
-- index, which belongs to one.
-- Records and entries of the history may be large. Their tables have rowids, which nobody sees, so that the primary key
-- is an index: in a table without rowid, SQLite reads every row that it compares with, whole.
-- Ids are 16-byte blobs, times are microseconds since 1970, bodies are MessagePack.
-- Status: 0 scheduled, 1 pending, 2 claimed, 3 completed, 4 failed, 5 cancelled.

CREATE TABLE namespaces (
    ns        INTEGER PRIMARY KEY,
    name      TEXT    NOT NULL UNIQUE,
    revision  INTEGER NOT NULL DEFAULT 0, -- of the last commit
    position  INTEGER NOT NULL DEFAULT 0, -- of the last entry of the history
    compacted INTEGER NOT NULL DEFAULT 0, -- history up to here is gone
    lines     INTEGER NOT NULL DEFAULT 0, -- number of the last line of any log
    indexes   INTEGER NOT NULL DEFAULT 0  -- how many are declared
) STRICT;

-- A lane goes with its last task.
CREATE TABLE lanes (
    lane  INTEGER PRIMARY KEY,
    ns    INTEGER NOT NULL,
    queue TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    UNIQUE (ns, queue, kind)
) STRICT;

CREATE TABLE records (
    ns          INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    fields      BLOB    NOT NULL,
    revision    INTEGER NOT NULL,
    modified_at INTEGER NOT NULL,
    expires_at  INTEGER,
    PRIMARY KEY (ns, key)
) STRICT;

CREATE INDEX records_expiring ON records (ns, expires_at, key) WHERE expires_at IS NOT NULL;

-- Declared indexes on integer fields of records. One that was dropped has neither prefix nor field, and
-- goes with its last entry.
CREATE TABLE indexes (
    idx    INTEGER PRIMARY KEY,
    ns     INTEGER NOT NULL,
    prefix TEXT,
    field  TEXT,
    filled TEXT, -- existing records up to this key are in; NULL: all are
    UNIQUE (ns, prefix, field)
) STRICT;

-- The record is here, too, if it is small; otherwise the columns from `fields` on are NULL, as they are in
-- entries of version 4 that were not written since.
CREATE TABLE index_entries (
    idx         INTEGER NOT NULL,
    value       INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    fields      BLOB,
    revision    INTEGER,
    modified_at INTEGER,
    expires_at  INTEGER,
    PRIMARY KEY (idx, value, key)
) STRICT, WITHOUT ROWID;

-- What never changes of a task. Written once.
CREATE TABLE specs (
    ns   INTEGER NOT NULL,
    id   BLOB    NOT NULL,
    lane INTEGER NOT NULL,
    spec BLOB    NOT NULL,
    PRIMARY KEY (ns, id)
) STRICT, WITHOUT ROWID;

-- Tasks that have not ended: the hot table.
CREATE TABLE tasks (
    lane        INTEGER NOT NULL,
    id          BLOB    NOT NULL,
    ns          INTEGER NOT NULL,
    status      INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2),
    priority    INTEGER NOT NULL,
    runnable_at INTEGER NOT NULL,
    until       INTEGER, -- when the lease ends; the body's own is not kept up to date
    fence       INTEGER NOT NULL,
    state       BLOB    NOT NULL,
    PRIMARY KEY (lane, id),
    CHECK ((status = 2) = (until IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_ready ON tasks (lane, priority DESC, runnable_at, id) WHERE status = 1;
CREATE INDEX tasks_scheduled ON tasks (lane, runnable_at) WHERE status = 0;
CREATE INDEX tasks_due ON tasks (ns, runnable_at) WHERE status = 0;
CREATE INDEX tasks_leased ON tasks (ns, until) WHERE status = 2;

-- Tasks that have ended.
CREATE TABLE done (
    lane        INTEGER NOT NULL,
    id          BLOB    NOT NULL,
    ns          INTEGER NOT NULL,
    status      INTEGER NOT NULL CHECK (status BETWEEN 3 AND 5),
    removable_from INTEGER NOT NULL, -- retention counts from here
    state       BLOB    NOT NULL,
    PRIMARY KEY (lane, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX done_by_age ON done (ns, status, removable_from);
CREATE INDEX done_badly ON done (lane, status, id) WHERE status > 3;

CREATE TABLE members (
    ns INTEGER NOT NULL, "group" TEXT NOT NULL, id BLOB NOT NULL,
    PRIMARY KEY (ns, "group", id)
) STRICT, WITHOUT ROWID;

CREATE TABLE owners (
    ns INTEGER NOT NULL, owner TEXT NOT NULL, id BLOB NOT NULL,
    PRIMARY KEY (ns, owner, id)
) STRICT, WITHOUT ROWID;

-- How many tasks each lane has in each status.
CREATE TABLE counts (
    lane   INTEGER NOT NULL,
    status INTEGER NOT NULL,
    tasks  INTEGER NOT NULL,
    PRIMARY KEY (lane, status)
) STRICT, WITHOUT ROWID;

-- Which task an idempotency key was last given to.
CREATE TABLE keys (
    ns INTEGER NOT NULL, key TEXT NOT NULL, task BLOB NOT NULL,
    PRIMARY KEY (ns, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE groups (
    ns         INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    drained_at INTEGER,
    body       BLOB    NOT NULL,
    PRIMARY KEY (ns, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX groups_drained ON groups (ns, drained_at) WHERE drained_at IS NOT NULL;

CREATE TABLE logs (
    ns    INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    seq   INTEGER NOT NULL, -- grows in the whole namespace, and is never used again
    id    BLOB    NOT NULL,
    level INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    line  BLOB    NOT NULL,
    PRIMARY KEY (ns, task, seq),
    UNIQUE (ns, task, id)
) STRICT, WITHOUT ROWID;

-- Appends go to its end, so it costs them little.
CREATE INDEX logs_by_age ON logs (ns, at);

-- Logs whose task is gone, and that were too long to go with it at once. Another task may have the id:
-- its lines come after these.
CREATE TABLE orphans (
    ns   INTEGER NOT NULL,
    task BLOB    NOT NULL,
    upto INTEGER NOT NULL, -- the number of the last line that goes
    PRIMARY KEY (ns, task)
) STRICT, WITHOUT ROWID;

-- One entry for each transaction that changed something of the namespace.
CREATE TABLE history (
    ns       INTEGER NOT NULL,
    position INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    changes  BLOB    NOT NULL,
    PRIMARY KEY (ns, position)
) STRICT;

-- Answers that are kept for a while, so that a call can be repeated.
CREATE TABLE commits (
    ns INTEGER NOT NULL, id BLOB NOT NULL, at INTEGER NOT NULL, receipt BLOB NOT NULL,
    PRIMARY KEY (ns, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX commits_by_age ON commits (ns, at);

CREATE TABLE claims (
    ns INTEGER NOT NULL, request BLOB NOT NULL, at INTEGER NOT NULL, taken BLOB NOT NULL,
    PRIMARY KEY (ns, request)
) STRICT, WITHOUT ROWID;

CREATE INDEX claims_by_age ON claims (ns, at);
