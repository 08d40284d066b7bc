-- What a surface's own tables need of the store.

-- name: make_tables
CREATE TABLE IF NOT EXISTS milepost_tables ( -- authoritative
    owner    text NOT NULL,
    number   integer NOT NULL,
    name     text NOT NULL,
    checksum text NOT NULL,
    PRIMARY KEY (owner, number)
);

-- name: has_tables
SELECT to_regclass('milepost_tables') IS NOT NULL;

-- name: tables_applied
SELECT number, name, checksum FROM milepost_tables WHERE owner = $1 ORDER BY number;

-- name: note_tables
INSERT INTO milepost_tables (owner, number, name, checksum) VALUES ($1, $2, $3, $4);

-- name: encrypted
SELECT value FROM mp_meta WHERE name = 'encryption';

-- Where there are roles, both may write what surfaces keep. Done by who owns the tables, whenever that opens them.
-- name: grant_tables
DO $$
DECLARE
    one record;
BEGIN
    IF to_regrole('milepost_worker') IS NULL OR to_regrole('milepost_operator') IS NULL THEN RETURN; END IF;
    FOR one IN SELECT relname FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND starts_with(relname, 'milepost_')
            AND relowner = to_regrole(quote_ident(current_user))
            AND NOT has_table_privilege('milepost_worker', oid, 'SELECT') LOOP
        EXECUTE format('GRANT SELECT ON %I TO milepost_worker, milepost_operator', one.relname);
        IF one.relname <> 'milepost_tables' THEN
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %I TO milepost_worker, milepost_operator', one.relname);
        END IF;
    END LOOP;
END $$;
