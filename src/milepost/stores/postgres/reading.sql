-- What is read, outside a batch and inside it.

-- name: chunk_of
SELECT body FROM mp_chunks WHERE run = $1 AND digest = $2;

-- A step of a later visit of the segment has the same name and may be another tool's.
-- name: once_of
SELECT coalesce(r.id, t.id, ''), o.step, o.digest, o.outcome, o.result
FROM mp_once o LEFT JOIN mp_runs r USING (run) LEFT JOIN mp_tombstones t USING (run)
WHERE o.tenant = $1 AND o.tool = $2 AND o.value = $3;

-- name: inbox_of
SELECT id, body FROM mp_inbox WHERE run = $1 AND taken = 0 ORDER BY id;

-- Few are held, and whatever the store holds may have mail: each is asked about by itself.
-- name: held_with_mail
SELECT r.id FROM mp_runs r
WHERE r.owner = $1 AND (SELECT 1 FROM mp_inbox i WHERE i.run = r.run AND i.taken = 0 LIMIT 1) IS NOT NULL;

-- By the index of the status: few runs are killed, and all others are passed over.
-- name: killed_since
SELECT id FROM mp_runs WHERE status = 'killed' AND changed_at >= $1 ORDER BY changed_at DESC, run DESC LIMIT 1000;

-- name: undelivered
SELECT mp_runs.id, count(*) FROM mp_inbox JOIN mp_runs USING (run) WHERE taken = 0
GROUP BY mp_runs.run, mp_runs.id ORDER BY mp_runs.run;

-- name: latest_change
SELECT max(changed_at) FROM mp_runs;

-- name: last_bodies
SELECT body FROM mp_journal ORDER BY row DESC LIMIT 200;

-- name: approvals_like
SELECT id, run_id, step, path, tool, args, asked_at, standing, by FROM (
    SELECT a.*, r.id AS run_id, CASE
        WHEN a.verdict IN ('asked', 'approved') AND r.status IN ('done', 'cancelled', 'killed') THEN 'void'
        ELSE a.verdict END AS standing
    FROM mp_approvals a JOIN mp_runs r USING (run)
    WHERE a.id >= $1 AND substr(a.id, 1, length($1)) = $1
) AS shown WHERE $2::text IS NULL OR standing = $2 ORDER BY asked_at LIMIT 1000;

-- name: workers
SELECT id, host, pid, started_at, lease_until, ended_at FROM mp_workers ORDER BY started_at;

-- Owners of runs that were never released, whatever became of them.
-- name: holders
SELECT w.id, w.host, w.pid, w.lease_until, w.ended_at FROM mp_workers w
WHERE w.id IN (SELECT DISTINCT owner FROM mp_runs WHERE owner IS NOT NULL);

-- name: events_after
SELECT id, at, body FROM mp_events WHERE run = $1 AND id > $2 ORDER BY id LIMIT 500;

-- The run from its head back to its last boundary. The predecessor's hash is read apart, to verify the first of them.
-- name: tail_of
WITH RECURSIVE tail (row, seq, previous, body, hash) AS (
    SELECT row, seq, previous, body, hash FROM mp_journal WHERE row = $1
    UNION ALL
    SELECT j.row, j.seq, j.previous, j.body, j.hash FROM mp_journal j JOIN tail t ON j.row = t.previous
    WHERE t.row > $2
)
SELECT row, seq, previous, body, hash FROM tail ORDER BY seq;

-- The same, and all that belongs to it, from a run's id: one question instead of five, as of one instant by itself.
-- name: tail_at_once
WITH RECURSIVE head AS MATERIALIZED (
    SELECT r.run, h.epoch, h.row, h.seq, h.hash, h.boundary, h.segment FROM mp_runs r JOIN mp_heads h USING (run) WHERE r.id = $1
), tail (row, seq, previous, body, hash) AS (
    SELECT row, seq, previous, body, hash FROM mp_journal WHERE row = (SELECT row FROM head)
    UNION ALL
    SELECT j.row, j.seq, j.previous, j.body, j.hash FROM mp_journal j JOIN tail t ON j.row = t.previous
    WHERE t.row > (SELECT boundary FROM head)
)
SELECT h.run, h.epoch, h.row, h.seq, h.hash, h.boundary, h.segment, t.row, t.seq, t.previous, t.body, t.hash,
    CASE WHEN t.row = h.boundary THEN (SELECT b.hash FROM mp_journal b WHERE b.row = t.previous) END,
    CASE WHEN t.previous IS NULL THEN (SELECT origin FROM mp_imports i WHERE i.run = h.run) END
FROM head h, tail t ORDER BY t.seq;

-- name: chunk_at_once
SELECT c.body FROM mp_runs r JOIN mp_chunks c USING (run) WHERE r.id = $1 AND c.digest = $2;

-- name: inbox_at_once
SELECT i.id, i.body FROM mp_runs r LEFT JOIN mp_inbox i ON i.run = r.run AND i.taken = 0 WHERE r.id = $1 ORDER BY i.id;

-- name: whole_chain
WITH RECURSIVE chain (row, seq, previous, body, hash) AS (
    SELECT row, seq, previous, body, hash FROM mp_journal WHERE row = $1
    UNION ALL
    SELECT j.row, j.seq, j.previous, j.body, j.hash FROM mp_journal j JOIN chain c ON j.row = c.previous
)
SELECT seq, body, hash FROM chain ORDER BY seq;

-- name: hash_of_row
SELECT hash FROM mp_journal WHERE row = $1;

-- The entries of a run after one of its numbers, from its head backwards.
-- name: entries_after
WITH RECURSIVE newer (row, seq, previous, body, hash) AS (
    SELECT row, seq, previous, body, hash FROM mp_journal WHERE row = $1 AND seq > $2
    UNION ALL
    SELECT j.row, j.seq, j.previous, j.body, j.hash FROM mp_journal j JOIN newer n ON j.row = n.previous
    WHERE j.seq > $2
)
SELECT seq, body, hash FROM newer ORDER BY seq;

-- name: run_row
SELECT r.run, r.id, r.workflow, r.version, r.attached, r.key, r.status, r.reason, r.until, r.ask, r.why, r.due, r.owner,
    p.id, r.principal, r.tenant, r.tags, r.created_at, r.changed_at, h.epoch, h.seq, h.segment, r.queue,
    r.priority, r.grp
FROM mp_runs r JOIN mp_heads h USING (run) LEFT JOIN mp_runs p ON p.run = r.parent
WHERE r.id = $1;

-- name: runs_beginning_with
SELECT id FROM mp_runs WHERE id >= $1 AND id < ($1::text || 'g') COLLATE "C" ORDER BY id LIMIT 6;

-- name: find_runs
SELECT r.run, r.id, r.workflow, r.version, r.attached, r.key, r.status, r.reason, r.until, r.ask, r.why, r.due, r.owner,
    p.id, r.principal, r.tenant, r.tags, r.created_at, r.changed_at, h.epoch, h.seq, h.segment, r.queue,
    r.priority, r.grp
FROM mp_runs r JOIN mp_heads h USING (run) LEFT JOIN mp_runs p ON p.run = r.parent
WHERE r.run > 0
    AND ($1::text IS NULL OR r.status = $1) AND ($2::text IS NULL OR r.workflow = $2) AND ($3::text IS NULL OR r.key = $3)
    AND ($4::text IS NULL OR p.id = $4)
    AND ($5 = 0 OR r.status = 'blocked' OR (r.status = 'parked' AND coalesce(r.ask, '') <> '')
        OR EXISTS (SELECT 1 FROM mp_effects e WHERE e.run = r.run AND e.person IS NOT NULL))
    AND ($6::text IS NULL OR (r.tags::json ->> $6) IS NOT DISTINCT FROM $7::text)
ORDER BY r.run DESC LIMIT $8;

-- name: count_runs
SELECT status, count(*) FROM mp_runs WHERE run > 0 GROUP BY status;

-- name: open_effects
SELECT r.id, e.step, e.path, e.tool, e.effect, e.outcome, e.attempt, e.started_at, e.why, e.person
FROM mp_effects e JOIN mp_runs r USING (run)
WHERE ($1::bigint IS NULL OR e.run = $1) ORDER BY e.run, e.started_at NULLS FIRST, e.step LIMIT 1000;


-- name: refuse_plain_entries
CREATE TRIGGER mp_journal_no_plain BEFORE INSERT ON mp_journal FOR EACH ROW WHEN (substr(NEW.body, 1, 4) <> '\x006d7065'::bytea)
EXECUTE FUNCTION mp_refuse('is encrypted: a plain entry is refused');

-- name: refuse_plain_chunks
CREATE TRIGGER mp_chunks_no_plain BEFORE INSERT ON mp_chunks FOR EACH ROW WHEN (substr(NEW.body, 1, 4) <> '\x006d7065'::bytea)
EXECUTE FUNCTION mp_refuse('is encrypted: a plain chunk is refused');

-- name: refuse_plain_messages
CREATE TRIGGER mp_inbox_no_plain BEFORE INSERT ON mp_inbox FOR EACH ROW WHEN (substr(NEW.body, 1, 4) <> '\x006d7065'::bytea)
EXECUTE FUNCTION mp_refuse('is encrypted: a plain message is refused');

-- name: all_once
SELECT tenant, tool, value, digest, result FROM mp_once;

-- name: hide_once
UPDATE mp_once SET value = $1, digest = $2, result = $3 WHERE tenant = $4 AND tool = $5 AND value = $6;
