-- Purpose: from version 4 to version 5. Entries of indexes carry small records. Those that exist get them
-- with the next write: to copy a million now would stop whoever opens the file.
-- Locking: inside the transaction that opens the file.

ALTER TABLE index_entries ADD COLUMN fields BLOB;
ALTER TABLE index_entries ADD COLUMN revision INTEGER;
ALTER TABLE index_entries ADD COLUMN modified_at INTEGER;
ALTER TABLE index_entries ADD COLUMN expires_at INTEGER;
