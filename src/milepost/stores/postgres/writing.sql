-- What a batch writes. A statement that is run for many rows takes one array a column.

-- What is left of processes that died goes with time: a day is more than anybody asks for his latest batch.
-- name: open_line
WITH gone AS (
    DELETE FROM mp_lines WHERE at < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 86400000 RETURNING 1
)
INSERT INTO mp_lines (line, batch) VALUES ($1, 0) ON CONFLICT DO NOTHING;

-- name: note_batch
INSERT INTO mp_lines (line, batch) VALUES ($1, $2) ON CONFLICT (line) DO UPDATE SET batch = excluded.batch,
    at = excluded.at;

-- Waits for the transaction that is noting its batch, if it is still about to end.
-- name: latest_batch
SELECT batch FROM mp_lines WHERE line = $1 FOR UPDATE;

-- A process that is frozen between two messages of a batch holds its locks, and no timeout of the server's sees it: they
-- count while a statement runs, or behind the end of one, and it is neither. Whoever waited in vain ends such connections
-- of the same role. What they had not committed is rolled back.
-- name: end_frozen
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid() AND application_name = 'milepost'
    AND wait_event = 'ClientRead' AND state IN ('active', 'idle in transaction')
    AND state_change < clock_timestamp() - interval '15 seconds' AND xact_start < clock_timestamp() - interval '15 seconds';

-- name: close_line
DELETE FROM mp_lines WHERE line = $1;

-- name: last_row
SELECT nextval('mp_batches') << 16;

-- name: next_run
SELECT nextval('mp_run_numbers');

-- name: insert_entry
INSERT INTO mp_journal (row, run, seq, previous, body, hash)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[]);

-- Less rows here than were given is a lost epoch: a run was claimed or killed by somebody else.
-- name: advance_head
UPDATE mp_heads h SET row = u.row, seq = u.seq, hash = u.hash, boundary = coalesce(u.boundary, h.boundary),
    segment = u.segment, moved_at = u.at
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[])
    AS u (row, seq, hash, boundary, segment, at, run, epoch)
WHERE h.run = u.run AND h.epoch = u.epoch;

-- name: insert_head
INSERT INTO mp_heads (run, epoch, row, seq, hash, boundary, segment, moved_at)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[], $7::text[],
    $8::bigint[]);

-- name: head_of
SELECT epoch, row, seq, hash, boundary, segment FROM mp_heads WHERE run = $1;

-- name: raise_epoch
UPDATE mp_heads h SET epoch = u.epoch FROM unnest($1::bigint[], $2::bigint[]) AS u (epoch, run) WHERE h.run = u.run;

-- name: insert_chunk
INSERT INTO mp_chunks (run, digest, body) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])
ON CONFLICT DO NOTHING;

-- A step of a later visit of the segment has the same name and may be another tool's.
-- name: put_effect
INSERT INTO mp_effects (run, step, outcome, path, tool, effect, attempt, started_at, why, person)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
    $9::text[], $10::text[])
ON CONFLICT (run, step) DO UPDATE SET
    path = excluded.path, tool = excluded.tool, effect = excluded.effect, outcome = excluded.outcome,
    attempt = excluded.attempt, started_at = excluded.started_at, why = excluded.why, person = excluded.person;

-- name: drop_effect
DELETE FROM mp_effects e USING unnest($1::bigint[], $2::text[]) AS u (run, step) WHERE e.run = u.run AND e.step = u.step;

-- name: put_status
UPDATE mp_runs r SET status = u.status, reason = u.reason, until = u.until, ask = u.ask, why = u.why, changed_at = u.at
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
    AS u (status, reason, until, ask, why, at, run)
WHERE r.run = u.run;

-- A message that arrived while the run was held must wake it at once. Of whom there is one message or child, it is asked by
-- the run: a plan for EXISTS reads all that wait in the whole store into a table first.
-- name: release_run
UPDATE mp_runs r SET owner = NULL, patience = u.patience, due = CASE
    WHEN (SELECT 1 FROM mp_inbox i WHERE i.run = r.run AND i.taken = 0 LIMIT 1) IS NULL THEN u.due
    WHEN u.patience > 0
        AND (SELECT 1 FROM mp_inbox i WHERE i.run = r.run AND i.taken = 0 AND i.patient = 0 LIMIT 1) IS NULL
        AND (SELECT 1 FROM mp_runs c WHERE c.parent = r.run
            AND c.status NOT IN ('done', 'failed', 'cancelled', 'killed') LIMIT 1) IS NOT NULL
        THEN least(coalesce(u.due, u.now + u.patience), u.now + u.patience)
    ELSE u.now END
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (now, due, run, patience)
WHERE r.run = u.run;

-- name: claim_run
UPDATE mp_runs r SET owner = u.owner, due = NULL, changed_at = u.at, began = coalesce(began, u.at),
    status = CASE WHEN status IN ('ready', 'parked') THEN 'running' ELSE status END
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u (owner, at, run)
WHERE r.run = u.run;

-- name: wake_run
UPDATE mp_runs SET due = least(coalesce(due, $1::bigint), $1::bigint) WHERE run = $2 AND owner IS NULL;

-- The end of a child, where others are still to come: they are taken together.
-- name: wake_patiently
UPDATE mp_runs r SET due = least(coalesce(due, $1::bigint + patience), $1::bigint + patience)
WHERE run = $2 AND owner IS NULL AND patience > 0 AND EXISTS (SELECT 1 FROM mp_runs c WHERE c.parent = r.run
    AND c.status NOT IN ('done', 'failed', 'cancelled', 'killed'));

-- name: insert_run
INSERT INTO mp_runs (run, id, workflow, version, attached, key, digest, status, due, parent, principal, tenant, tags,
    created_at, changed_at, queue, priority, grp)
SELECT u.run, u.id, u.workflow, u.version, u.attached, u.key, u.digest, 'ready', u.due, u.parent, u.principal, u.tenant,
    u.tags, u.created_at, u.changed_at, u.queue, u.priority, u.grp
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::bigint[],
    $9::bigint[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::bigint[], $17::text[])
    AS u (run, id, workflow, version, attached, key, digest, due, parent, principal, tenant, tags, created_at, changed_at,
        queue, priority, grp);

-- name: run_by_key
SELECT run, id, workflow, digest FROM mp_runs WHERE attached = $1 AND key = $2;

-- name: run_number
SELECT run FROM mp_runs WHERE id = $1;

-- In the order of the key: of two batches that want the same identities, one waits for the other and none for ever.
-- name: claim_once
INSERT INTO mp_once (tenant, tool, value, run, step, digest, outcome)
SELECT u.*, 'started'
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[])
    AS u (tenant, tool, value, run, step, digest)
ORDER BY u.tenant COLLATE "C", u.tool COLLATE "C", u.value COLLATE "C"
ON CONFLICT DO NOTHING;

-- name: settle_once
UPDATE mp_once o SET outcome = u.outcome, result = u.result
FROM unnest($1::text[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[])
    AS u (outcome, result, tenant, tool, value, run, step)
WHERE o.tenant = u.tenant AND o.tool = u.tool AND o.value = u.value AND o.run = u.run
    AND (u.step = '' OR o.step = u.step);

-- name: release_once
DELETE FROM mp_once o
USING unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) AS u (tenant, tool, value, run, step)
WHERE o.tenant = u.tenant AND o.tool = u.tool AND o.value = u.value AND o.run = u.run
    AND (u.step = '' OR o.step = u.step);

-- What failed did not happen, and a run that ended does not start it again. What is contradicted may have happened.
-- name: release_failed
DELETE FROM mp_once WHERE run = $1 AND step IN (
    SELECT step FROM mp_effects WHERE run = $1 AND outcome = 'failed' AND attempt > 0 AND person IS NULL)
RETURNING tenant, tool, value;

-- name: deliver
INSERT INTO mp_inbox (run, message_id, body, patient) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- By the ids alone: asked for what is not taken, a plan reads all messages that wait in the whole store.
-- name: take_message
UPDATE mp_inbox SET taken = 1 WHERE id = ANY ($1::bigint[]);

-- name: put_approval
INSERT INTO mp_approvals (id, run, step, path, tool, args, asked_at, verdict)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::text[])
ON CONFLICT (id) DO UPDATE SET verdict = excluded.verdict;

-- name: answer_approval
UPDATE mp_approvals a SET verdict = u.verdict, by = u.by
FROM unnest($1::text[], $2::text[], $3::text[]) AS u (verdict, by, id)
WHERE a.id = u.id;

-- name: put_worker
INSERT INTO mp_workers (id, host, pid, started_at, lease_until) VALUES ($1, $2, $3, $4, $5);

-- name: renew_worker
UPDATE mp_workers w SET lease_until = greatest(w.lease_until, u.until)
FROM unnest($1::bigint[], $2::text[]) AS u (until, id)
WHERE w.id = u.id AND w.ended_at IS NULL;

-- name: end_worker
UPDATE mp_workers SET ended_at = $1, lease_until = 0 WHERE id = $2;

-- name: insert_event
INSERT INTO mp_events (run, at, body)
SELECT r.run, u.at, u.body
FROM unnest($1::bigint[], $2::bytea[], $3::text[]) WITH ORDINALITY AS u (at, body, id, place) JOIN mp_runs r ON r.id = u.id
ORDER BY u.place;

-- name: owner_of
SELECT owner, status FROM mp_runs WHERE run = $1;

-- name: parent_of
SELECT p.id FROM mp_runs r JOIN mp_runs p ON p.run = r.parent WHERE r.run = $1;

-- name: children_of
WITH RECURSIVE family (run) AS (
    SELECT run FROM mp_runs WHERE run = $1
    UNION
    SELECT r.run FROM mp_runs r JOIN family f ON r.parent = f.run
)
SELECT r.run, r.id, r.status FROM mp_runs r JOIN family USING (run) ORDER BY r.run;

-- A message that waited for its owner must not be lost with it.
-- name: stop_run
UPDATE mp_runs SET status = $1, reason = NULL, until = NULL, ask = NULL, why = $2, owner = NULL, changed_at = $4,
    due = CASE WHEN EXISTS (SELECT 1 FROM mp_inbox WHERE mp_inbox.run = mp_runs.run AND taken = 0) THEN $4::bigint
        ELSE $3::bigint END
WHERE run = $5;

-- What a run that was killed has not begun, or what failed in it, is not begun any more.
-- name: drop_unbegun
DELETE FROM mp_effects WHERE run = $1 AND outcome IN ('not_started', 'failed') AND person IS NULL;

-- Nobody can answer any more what a run that was killed had asked for.
-- name: void_approvals
UPDATE mp_approvals SET verdict = 'void' WHERE run = $1 AND verdict IN ('asked', 'approved');

-- name: lose_effects
UPDATE mp_effects SET outcome = 'unknown', why = $1 WHERE run = $2 AND outcome = 'started';

-- name: get_meta
SELECT value FROM mp_meta WHERE name = $1;

-- name: put_meta
INSERT INTO mp_meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
