-- What is asked of the server itself, and how a batch takes its locks.

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: backend
SELECT pg_backend_pid();

-- The braces are filled with an array of numbers.
-- name: lock_heads
SELECT run, epoch FROM mp_heads WHERE run = ANY ({}) ORDER BY run FOR NO KEY UPDATE;

-- name: runs_named
ARRAY(SELECT run FROM mp_runs WHERE id IN ({}));

-- name: lock_gate
SELECT pg_advisory_xact_lock({})::text;

-- name: share_gate
SELECT pg_advisory_xact_lock_shared({})::text;

-- name: batch
SELECT pg_current_xact_id()::text, nextval('mp_batches') << 16, (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- What is left of a connection whose end the server has not noticed: it would hold its locks until it does.
-- name: end_of
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_xid = ($1::text::xid8)::xid AND pid <> pg_backend_pid();

-- name: our_tables
SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'mp\_%' ORDER BY relname;

-- name: read_all
SELECT count(md5(t::text)) FROM {} t;

-- name: triggers_off
SELECT count(*) FROM pg_trigger
WHERE tgname LIKE 'mp\_%\_no\_%' AND tgenabled <> 'A' AND tgname NOT LIKE '%no_plain';

-- name: connections
SELECT count(*), current_setting('max_connections')::bigint FROM pg_stat_activity;
