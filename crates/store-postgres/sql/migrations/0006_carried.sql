-- Purpose: entries of declared indexes that carry small records, version 6.
-- A range then reads one row for each record that it finds, instead of an entry here and a record there. Entries
-- that were made before carry theirs from its next write on.
ALTER TABLE plimsoll.index_entries
    ADD COLUMN fields      jsonb, -- NULL: not carried, and so is all that follows
    ADD COLUMN revision    bigint,
    ADD COLUMN modified_at timestamptz,
    ADD COLUMN expires_at  timestamptz;
