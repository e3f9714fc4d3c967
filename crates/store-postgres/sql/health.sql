-- Purpose: how the server is set up and how it does.
-- Results: one row. Without pg_read_all_stats, the transactions of other roles are not seen. Locking: none.
WITH open_transactions AS (
    SELECT pid, application_name AS application, xact_start AS began
    FROM pg_stat_activity
    WHERE datname = current_database()
      AND backend_type = 'client backend'
      AND xact_start IS NOT NULL
      AND pid <> pg_backend_pid()
    UNION ALL
    SELECT NULL, 'prepared transaction ' || gid, prepared
    FROM pg_prepared_xacts
    WHERE database = current_database()
), oldest AS (
    SELECT * FROM open_transactions ORDER BY began LIMIT 1
)
SELECT
    current_setting('server_version_num')::integer,
    current_setting('fsync')::boolean,
    current_setting('synchronous_commit'),
    current_setting('full_page_writes')::boolean,
    current_setting('autovacuum')::boolean,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    current_setting('max_connections')::bigint
        - current_setting('superuser_reserved_connections')::bigint,
    pg_database_size(current_database()),
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
    (SELECT extract(epoch FROM clock_timestamp() - began)::double precision FROM oldest),
    (SELECT pid FROM oldest),
    (SELECT application FROM oldest)
