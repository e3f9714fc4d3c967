-- Purpose: a partition of `tasks_done` for each month, version 3.
-- What ended in a month that has none is in `tasks_done_other`, where it is found like everything else.
-- Locking: all of it gives up after 200 ms and is tried again next time, because whoever comes after one that
-- waits for such a lock waits too. Months are counted in UTC, by the database's clock.

-- The first moment of the month of this one.
CREATE FUNCTION plimsoll.month_of(at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN date_trunc('month', at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';

-- Adds rows of nobody to a partition, so that it is never empty: see 0005.
CREATE FUNCTION plimsoll.weigh_partition(partition text, at timestamptz) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ALTER COLUMN ns SET (n_distinct = 1), ALTER COLUMN lane SET (n_distinct = 1)',
        partition);
    EXECUTE format(
        'INSERT INTO %s (ns, lane, id, status, priority, runnable_at, modified_at, revision, fence, attempts, failures, '
        'finished_at, removable_from) '
        'SELECT 0, -9223372036854775808, gen_random_uuid(), 3 + n %% 3, 0, $1, $1, 0, 0, 0, 0, $1, ''infinity'' '
        'FROM generate_series(1, 200) n', partition) USING at;
    EXECUTE format('ANALYZE %s', partition);
END
$$;

-- Makes the partition of a month, if it is missing. Answers whether it did.
-- Locking: `tasks_done_other` is locked against everybody while it is searched for rows of that month, which
-- are moved. If it is too large to be searched in a moment, the month stays there.
CREATE FUNCTION plimsoll.make_partition(of_month timestamptz) RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' SET timezone = 'UTC' AS $$
DECLARE
    begins constant timestamptz := plimsoll.month_of(of_month);
    ends constant timestamptz := begins + interval '1 month';
    name constant text := 'tasks_done_' || to_char(begins, 'YYYY_MM');
    home constant text := (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'plimsoll.tasks_done'::regclass);
BEGIN
    IF to_regclass(format('%s.%I', home, name)) IS NOT NULL
        OR pg_relation_size('plimsoll.tasks_done_other') > 64 * 1024 * 1024 THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %s.%I (LIKE plimsoll.tasks_done INCLUDING ALL)', home, name);
    LOCK TABLE plimsoll.tasks_done IN SHARE UPDATE EXCLUSIVE MODE;
    LOCK TABLE plimsoll.tasks_done_other IN ACCESS EXCLUSIVE MODE;
    EXECUTE format(
        'WITH moved AS (DELETE FROM plimsoll.tasks_done_other WHERE finished_at >= $1 AND finished_at < $2 RETURNING *) '
        'INSERT INTO %s.%I SELECT * FROM moved', home, name) USING begins, ends;
    EXECUTE format('ALTER TABLE plimsoll.tasks_done ATTACH PARTITION %s.%I FOR VALUES FROM (%L) TO (%L)',
        home, name, begins, ends);
    PERFORM plimsoll.weigh_partition(format('%s.%I', home, name), begins);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

-- Drops a partition, if nothing of anybody is in it. Answers whether it did.
-- Locking: `tasks_done` is locked against everybody for a moment. A partition whose rows were deleted is large
-- until it is vacuumed, and is left alone until then.
CREATE FUNCTION plimsoll.drop_partition(partition regclass) RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    used boolean;
    look constant text := format('SELECT EXISTS (SELECT 1 FROM %s WHERE ns <> 0)', partition);
BEGIN
    IF pg_relation_size(partition) > 64 * 1024 * 1024 THEN
        RETURN false;
    END IF;
    EXECUTE look INTO used;
    IF used THEN
        RETURN false;
    END IF;
    LOCK TABLE ONLY plimsoll.tasks_done IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', partition);
    -- Nobody can write to it any more, but somebody may have.
    EXECUTE look INTO used;
    IF used THEN
        RETURN false;
    END IF;
    EXECUTE format('ALTER TABLE plimsoll.tasks_done DETACH PARTITION %s', partition);
    EXECUTE format('DROP TABLE %s', partition);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

-- Makes the partitions of this month and of so many after it, and drops those of months before it that are
-- empty. Answers how many it made and dropped. When another one is at it, nothing is done.
CREATE FUNCTION plimsoll.keep_partitions(ahead integer, OUT made integer, OUT dropped integer) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    this constant timestamptz := plimsoll.month_of(clock_timestamp());
    partition regclass;
BEGIN
    made := 0;
    dropped := 0;
    -- The lock is that of this schema.
    IF NOT pg_try_advisory_xact_lock(hashtext('partitions of plimsoll.tasks_done')) THEN
        RETURN;
    END IF;
    FOR month IN 0 .. least(ahead, 120) LOOP
        made := made + plimsoll.make_partition(this + month * interval '1 month')::integer;
    END LOOP;
    FOR partition IN
        SELECT i.inhrelid::regclass FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'plimsoll.tasks_done'::regclass
            AND c.relname ~ '^tasks_done_[0-9]{4}_[0-9]{2}$'
            AND c.relname < 'tasks_done_' || to_char(this, 'YYYY_MM')
    LOOP
        dropped := dropped + plimsoll.drop_partition(partition)::integer;
    END LOOP;
END
$$;

REVOKE ALL ON FUNCTION plimsoll.make_partition(timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION plimsoll.drop_partition(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION plimsoll.keep_partitions(integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION plimsoll.weigh_partition(text, timestamptz) FROM PUBLIC;

DO $$
BEGIN
    PERFORM plimsoll.weigh_partition('plimsoll.tasks_done_other', '-infinity');
    PERFORM plimsoll.keep_partitions(2);
END
$$;
