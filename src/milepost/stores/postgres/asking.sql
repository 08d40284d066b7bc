-- What is asked of the server itself, and how a batch takes its locks.

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: renewed
UPDATE mp_workers SET lease_until = greatest(lease_until, $1::bigint) WHERE id = $2 AND ended_at IS NULL
RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: backend
SELECT pg_backend_pid();

-- The braces are filled with an array of numbers.
-- name: lock_heads
SELECT run, epoch FROM mp_heads WHERE run = ANY ({}) ORDER BY run FOR NO KEY UPDATE;

-- name: begin
BEGIN;

-- name: COMMIT
COMMIT;

-- name: mark
SAVEPOINT part;

-- name: undo
ROLLBACK TO SAVEPOINT part;

-- name: keep
RELEASE SAVEPOINT part;

-- name: gate_together
SELECT pg_advisory_xact_lock_shared($1::bigint)::text;

-- name: gate_alone
SELECT pg_advisory_xact_lock($1::bigint)::text;

-- name: lock_all_heads
SELECT run, epoch FROM mp_heads
WHERE run = ANY ($1::bigint[] || ARRAY(SELECT run FROM mp_runs WHERE id = ANY ($2::text[])))
ORDER BY run FOR NO KEY UPDATE;

-- Of two batches that charge the same pools, one waits for the other and none for ever. Only where there is a ceiling:
-- one is set and lifted by who holds the gate alone.
-- name: lock_pools
SELECT pg_advisory_xact_lock(1819436912, h)::text
FROM (SELECT DISTINCT hashtext(pool) AS h FROM mp_ceilings WHERE pool = ANY ($1::text[]) ORDER BY 1) AS pools;

-- What the operations of a batch are going to ask, each for itself.
-- name: foresee_runs
SELECT r.id, r.run, r.owner, r.status, h.epoch, h.row, h.seq, h.hash, h.boundary, h.segment
FROM mp_runs r JOIN mp_heads h USING (run) WHERE r.run = ANY ($1::bigint[]) OR r.id = ANY ($2::text[]);

-- name: foresee_keys
SELECT u.attached, u.key, r.run, r.id, r.workflow, r.digest
FROM unnest($1::bigint[], $2::text[]) AS u (attached, key) JOIN mp_runs r ON r.attached = u.attached AND r.key = u.key;

-- name: foresee_pruned
SELECT 1 FROM mp_tombstones WHERE id = ANY ($1::text[])
UNION ALL
SELECT 1 FROM unnest($2::bigint[], $3::text[]) AS u (attached, key) JOIN mp_tombstones t ON t.attached = u.attached AND t.key = u.key
LIMIT 1;

-- name: foresee_numbers
SELECT nextval('mp_run_numbers') FROM generate_series(1, $1::bigint);

-- name: runs_named
ARRAY(SELECT run FROM mp_runs WHERE id IN ({}));

-- name: lock_gate
SELECT pg_advisory_xact_lock({})::text;

-- name: share_gate
SELECT pg_advisory_xact_lock_shared({})::text;

-- name: batch
SELECT pg_current_xact_id()::text, nextval('mp_batches') << 16, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    nextval('mp_batches') << 16;

-- The same for appends that are sent along, with COMMIT behind them: it fails unless all heads have the epochs that they
-- were written for, and nothing at all is stopped.
-- name: guard
SELECT nextval('mp_batches') << 16, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, 1 / (CASE WHEN
    (SELECT count(*) FROM (
        SELECT 1 FROM mp_heads h JOIN unnest($1::bigint[], $2::bigint[]) AS u (run, epoch) ON h.run = u.run AND h.epoch = u.epoch
        ORDER BY h.run FOR NO KEY UPDATE OF h
    ) AS locked) = cardinality($1)
    AND NOT EXISTS (SELECT 1 FROM mp_switches) AND NOT EXISTS (SELECT 1 FROM mp_breakers) THEN 1 ELSE 0 END);

-- Most of what is sent along is this, and then it is one statement: to begin and end one costs the server, and us, more
-- than a row. Nothing is changed before the heads are locked, in their order, and the guard has spoken.
-- name: trip
WITH locked AS MATERIALIZED (
    SELECT 1 FROM mp_heads h JOIN unnest($7::bigint[], $8::bigint[]) AS u (run, epoch) ON h.run = u.run AND h.epoch = u.epoch
    ORDER BY h.run FOR NO KEY UPDATE OF h
), moved AS (
    UPDATE mp_heads h SET row = u.row, seq = u.seq, hash = u.hash, boundary = coalesce(u.boundary, h.boundary),
        segment = u.segment, moved_at = u.at
    FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[])
        AS u (row, seq, hash, boundary, segment, at, run, epoch)
    WHERE h.run = u.run AND h.epoch = u.epoch
), written AS (
    INSERT INTO mp_journal (row, run, seq, previous, body, hash)
    SELECT * FROM unnest($9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bytea[], $14::bytea[])
), put AS (
    INSERT INTO mp_effects (run, step, outcome, path, tool, effect, attempt, started_at, why, person)
    SELECT * FROM unnest($15::bigint[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::bigint[],
        $22::bigint[], $23::text[], $24::text[])
    ON CONFLICT (run, step) DO UPDATE SET
        path = excluded.path, tool = excluded.tool, effect = excluded.effect, outcome = excluded.outcome,
        attempt = excluded.attempt, started_at = excluded.started_at, why = excluded.why, person = excluded.person
), dropped AS (
    DELETE FROM mp_effects e USING unnest($25::bigint[], $26::text[]) AS u (run, step)
    WHERE e.run = u.run AND e.step = u.step
), noted AS (
    INSERT INTO mp_lines (line, batch) VALUES ($27, $28) ON CONFLICT (line) DO UPDATE SET batch = excluded.batch,
        at = excluded.at
)
SELECT nextval('mp_batches') << 16, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, 1 / (CASE WHEN
    (SELECT count(*) FROM locked) = cardinality($7)
    AND NOT EXISTS (SELECT 1 FROM mp_switches) AND NOT EXISTS (SELECT 1 FROM mp_breakers) THEN 1 ELSE 0 END);

-- The same for one run, of whose effects one is put and one is dropped at most: no order of heads has to be kept, and
-- without arrays it costs the server half. Rows and numbers of its entries follow each other ($9 and $10 stand before the
-- first); an update that finds no head of that epoch fails the guard, and with it all the rest.
-- name: trip_of_one
WITH moved AS (
    UPDATE mp_heads SET row = $1, seq = $2, hash = $3, boundary = coalesce($4, boundary), segment = $5, moved_at = $6
    WHERE run = $7 AND epoch = $8 RETURNING 1
), written AS (
    INSERT INTO mp_journal (row, run, seq, previous, body, hash)
    SELECT $9::bigint + n, $7, $10::bigint + n, CASE WHEN n > 1 THEN $9 + n - 1 ELSE $11::bigint END, body, hash
    FROM unnest($12::bytea[], $13::bytea[]) WITH ORDINALITY AS u (body, hash, n)
), put AS (
    INSERT INTO mp_effects (run, step, outcome, path, tool, effect, attempt, started_at, why, person)
    SELECT $7, $14::text, $15::text, $16::text, $17::text, $18::text, $19::bigint, $20::bigint, $21::text, $22::text
    WHERE $14 IS NOT NULL
    ON CONFLICT (run, step) DO UPDATE SET
        path = excluded.path, tool = excluded.tool, effect = excluded.effect, outcome = excluded.outcome,
        attempt = excluded.attempt, started_at = excluded.started_at, why = excluded.why, person = excluded.person
), dropped AS (
    DELETE FROM mp_effects WHERE run = $7 AND step = $23::text
), noted AS (
    INSERT INTO mp_lines (line, batch) VALUES ($24, $25) ON CONFLICT (line) DO UPDATE SET batch = excluded.batch,
        at = excluded.at
)
SELECT nextval('mp_batches') << 16, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, 1 / (CASE WHEN
    EXISTS (SELECT 1 FROM moved)
    AND NOT EXISTS (SELECT 1 FROM mp_switches) AND NOT EXISTS (SELECT 1 FROM mp_breakers) THEN 1 ELSE 0 END);

-- name: server_process
SELECT pid::bigint, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid();

-- name: end_process
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1::bigint AND backend_start::text = $2::text;

-- name: process_is_there
SELECT count(*) FROM pg_stat_activity WHERE pid = $1::bigint AND backend_start::text = $2::text;


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

-- name: listen
LISTEN milepost;

-- name: tell
SELECT pg_notify('milepost', $1::text)::text;
