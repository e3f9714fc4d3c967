-- Purpose: from version 2 to version 3. A log that is too long to go with its task goes later.
-- Locking: inside the transaction that opens the file.

CREATE TABLE orphans (
    ns   INTEGER NOT NULL,
    task BLOB    NOT NULL,
    upto INTEGER NOT NULL,
    PRIMARY KEY (ns, task)
) STRICT, WITHOUT ROWID;
