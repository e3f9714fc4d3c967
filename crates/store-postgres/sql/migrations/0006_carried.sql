-- Purpose: entries of declared indexes that carry small records, version 6.
-- Locking: `indexes` first, as whoever writes records does. Nobody is between the two then.

-- Programs that do not know of this ask for the column by its former name before they write a record. They fail
-- there, instead of leaving what entries carry as it was.
ALTER TABLE plimsoll.indexes RENAME COLUMN filled TO filled_upto;

-- A range then reads one row for each record that it finds, instead of an entry here and a record there. Entries
-- that were made before carry theirs from its next write on.
ALTER TABLE plimsoll.index_entries
    ADD COLUMN fields      jsonb, -- NULL: not carried, and so is all that follows
    ADD COLUMN revision    bigint,
    ADD COLUMN modified_at timestamptz,
    ADD COLUMN expires_at  timestamptz;
