-- The schema's own record, and what `milepost db` asks.

-- name: is_store
SELECT to_regclass('mp_migrations') IS NOT NULL;

-- name: taken
SELECT EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND starts_with(relname, 'mp_'));

-- name: get_meta
SELECT value FROM mp_meta WHERE name = $1;

-- name: put_meta
INSERT INTO mp_meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING;

-- name: counts_workers
SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('mp_workers') AND attname = 'knows');

-- name: create_migrations
CREATE TABLE mp_migrations (
    number   BIGINT PRIMARY KEY,
    name     TEXT NOT NULL,
    kind     TEXT NOT NULL,
    checksum TEXT NOT NULL,
    at       BIGINT NOT NULL,
    by       TEXT NOT NULL DEFAULT current_user
);
COMMENT ON TABLE mp_migrations IS 'authoritative';

-- name: migrations
SELECT number, name, kind, checksum FROM mp_migrations ORDER BY number;

-- name: insert_migration
INSERT INTO mp_migrations (number, name, kind, checksum, at)
VALUES ($1, $2, $3, $4, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);

-- One migration at a time, whoever starts it.
-- name: one_at_a_time
SELECT pg_advisory_xact_lock(7812722302);

-- From here to the end of the transaction nobody enlists or renews; what waits then meets the new schema.
-- name: hold_workers
LOCK TABLE mp_workers IN SHARE MODE;

-- name: oldest_at_work
SELECT min(knows) FROM mp_workers
WHERE ended_at IS NULL AND lease_until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: at_work
SELECT knows, count(*) FROM mp_workers
WHERE ended_at IS NULL AND lease_until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint
GROUP BY knows ORDER BY knows;

-- name: has_roles
SELECT to_regprocedure('mp_grants()') IS NOT NULL AND to_regrole('milepost_worker') IS NOT NULL;

-- name: grants
SELECT name, worker, operator FROM mp_grants();

-- name: settings
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name;

-- name: encoding
SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database();

-- name: roles
SELECT rolname, rolcanlogin, rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication
FROM pg_roles WHERE rolname IN ('milepost_worker', 'milepost_operator') ORDER BY rolname;

-- What a worker's role could do to what is written, or say in a person's place, if its grants were other than ours.
-- name: too_much
SELECT c.relname, p.privilege
FROM pg_class c CROSS JOIN unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p (privilege)
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND starts_with(c.relname, 'mp_')
    AND has_table_privilege('milepost_worker', c.oid, p.privilege)
    AND NOT (c.relname || ' ' || p.privilege = ANY ($1::text[]))
ORDER BY 1, 2;

-- name: too_little
SELECT split_part(wanted, ' ', 1), split_part(wanted, ' ', 2)
FROM unnest($1::text[]) AS wanted
WHERE to_regclass(split_part(wanted, ' ', 1)) IS NOT NULL
    AND NOT has_table_privilege('milepost_worker', split_part(wanted, ' ', 1), split_part(wanted, ' ', 2))
ORDER BY 1, 2;

-- Triggers that should stand, and do not, or are switched off.
-- name: gone_triggers
SELECT wanted FROM unnest($1::text[]) AS wanted
WHERE NOT EXISTS (
    SELECT 1 FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND t.tgname = wanted AND t.tgenabled IN ('O', 'A'))
ORDER BY 1;

-- Who owns the tables may switch off every trigger: a worker that logs in must not be one of them.
-- name: owners_who_work
SELECT DISTINCT pg_get_userbyid(c.relowner)
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND starts_with(c.relname, 'mp_')
    AND pg_has_role('milepost_worker', c.relowner, 'MEMBER');

-- name: people_who_work
SELECT r.rolname FROM pg_roles r
WHERE NOT r.rolsuper AND r.rolname NOT IN ('milepost_worker', 'milepost_operator')
    AND pg_has_role(r.oid, 'milepost_worker', 'MEMBER') AND pg_has_role(r.oid, 'milepost_operator', 'MEMBER')
    AND r.oid NOT IN (SELECT relowner FROM pg_class WHERE relname = 'mp_journal')
ORDER BY 1;
