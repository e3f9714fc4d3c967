-- Purpose: everything that programs need at run time, and nothing else. Run by the owner of the schema.
-- Neither TRUNCATE nor CREATE is given: partitions are made and dropped by a function with its owner's rights.
GRANT USAGE ON SCHEMA :schema TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA :schema TO :role;
REVOKE INSERT, UPDATE, DELETE ON :schema.migrations FROM :role;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA :schema TO :role;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA :schema TO :role;
REVOKE EXECUTE ON FUNCTION :schema.make_partition(timestamptz), :schema.drop_partition(regclass),
    :schema.weigh_partition(text, timestamptz) FROM :role;
