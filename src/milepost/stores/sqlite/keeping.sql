-- Keeping: seals, pruning, imports.

-- name: leaves
SELECT r.id, h.seq, h.hash FROM mp_heads h JOIN mp_runs r USING (run) ORDER BY r.id;

-- name: tombstones
SELECT id, seq, hash, digest, workflow, status, at, by, why FROM mp_tombstones ORDER BY id;

-- name: pruned_of
SELECT id, by, at FROM mp_tombstones WHERE id = ?;

-- name: pruned_key
SELECT id, by, at FROM mp_tombstones WHERE attached = ? AND key = ?;

-- name: origin_of
SELECT origin FROM mp_imports WHERE run = ?;

-- What has ended, and why it has to stay. A family goes when all of it has ended: a child's result may still be taken.
-- name: prunable
SELECT r.id, r.workflow, r.status, r.changed_at, h.seq, CASE
    WHEN r.owner IS NOT NULL THEN 'a worker holds it'
    WHEN EXISTS (SELECT 1 FROM mp_effects e WHERE e.run = r.run
        AND (e.outcome IN ('started', 'unknown', 'confirmed') OR e.person IS NOT NULL))
        THEN 'it has effects whose outcome is open'
    WHEN EXISTS (SELECT 1 FROM mp_inbox i WHERE i.run = r.run AND i.taken = 0) THEN 'messages wait for it'
    WHEN EXISTS (SELECT 1 FROM mp_runs p WHERE p.run = r.parent
        AND p.status NOT IN ('done', 'failed', 'cancelled', 'killed')) THEN 'the run that started it has not ended'
    WHEN EXISTS (SELECT 1 FROM mp_runs c WHERE c.parent = r.run
        AND c.status NOT IN ('done', 'failed', 'cancelled', 'killed')) THEN 'a run that it started has not ended'
    ELSE '' END
FROM mp_runs r JOIN mp_heads h USING (run)
WHERE r.run > 0 AND r.status IN ('done', 'failed', 'cancelled', 'killed')
    AND (?1 IS NULL OR r.changed_at < ?1) AND (?2 IS NULL OR r.workflow = ?2) AND (?3 IS NULL OR r.id = ?3)
ORDER BY r.run LIMIT ?4;

-- name: insert_tombstone
INSERT INTO mp_tombstones (run, id, seq, hash, digest, workflow, status, attached, key, at, by, why)
SELECT r.run, r.id, h.seq, h.hash, r.digest, r.workflow, r.status, r.attached, r.key, ?, ?, ?
FROM mp_runs r JOIN mp_heads h USING (run) WHERE r.run = ?;

-- name: tombstone_of
SELECT id, seq, hash, digest, workflow, status, at, by, why FROM mp_tombstones WHERE run = ?;

-- name: once_results
SELECT tenant, tool, value, result FROM mp_once WHERE run = ? AND result IS NOT NULL;

-- name: put_once_result
UPDATE mp_once SET result = ? WHERE tenant = ? AND tool = ? AND value = ?;

-- name: delete_entries
WITH RECURSIVE chain (row) AS (
    SELECT row FROM mp_heads WHERE run = ?1
    UNION ALL
    SELECT j.previous FROM mp_journal j JOIN chain c ON j.row = c.row WHERE j.previous IS NOT NULL
)
DELETE FROM mp_journal WHERE run = ?1 AND row IN (SELECT row FROM chain);

-- name: delete_chunks
DELETE FROM mp_chunks WHERE run = ?;

-- name: delete_inbox
DELETE FROM mp_inbox WHERE run = ?;

-- name: delete_effects
DELETE FROM mp_effects WHERE run = ?;

-- name: delete_approvals
DELETE FROM mp_approvals WHERE run IN (SELECT value FROM json_each(?));

-- name: delete_events
DELETE FROM mp_events WHERE run = ?;

-- name: delete_import
DELETE FROM mp_imports WHERE run = ?;

-- name: delete_head
DELETE FROM mp_heads WHERE run = ?;

-- name: delete_run
DELETE FROM mp_runs WHERE run = ?;

-- name: copy_row
SELECT r.id, r.workflow, r.version, r.attached, r.key, r.digest, r.status, r.reason, r.until, r.ask, r.why, p.id AS parent,
    r.principal, r.tenant, r.tags, r.created_at, r.changed_at, r.queue, r.priority, r.grp
FROM mp_runs r LEFT JOIN mp_runs p ON p.run = r.parent WHERE r.run = ?;

-- name: boundary_seq
SELECT seq FROM mp_journal WHERE row = ?;

-- name: copy_chunks
SELECT digest, body FROM mp_chunks WHERE run = ? ORDER BY row;

-- name: copy_once
SELECT tenant, tool, value, step, digest, outcome, result FROM mp_once WHERE run = ? ORDER BY tenant, tool, value;

-- name: copy_approvals
WITH latest (id, verdict, by, place) AS (
    SELECT n.value ->> 0, n.value ->> 1, n.value ->> 2, max(j.row * 1000 + n.key)
    FROM mp_journal j, json_each(j.note, '$[3]') n
    WHERE j.row >= (SELECT row FROM mp_behind) AND j.note IS NOT NULL AND j.run = ?1 GROUP BY 1
)
SELECT a.id, a.step, a.path, a.tool, a.args, a.asked_at, coalesce(l.verdict, a.verdict),
    CASE WHEN l.id IS NULL THEN a.by ELSE l.by END
FROM mp_approvals a LEFT JOIN latest l ON l.id = a.id WHERE a.run = ?1 ORDER BY a.id;

-- name: copy_effects
SELECT step, outcome, path, tool, effect, attempt, started_at, why, person FROM mp_effects WHERE run = ? ORDER BY step;

-- name: hash_at
WITH RECURSIVE chain (row, seq, previous, hash) AS (
    SELECT row, seq, previous, hash FROM mp_journal WHERE row = ?1
    UNION ALL
    SELECT j.row, j.seq, j.previous, j.hash FROM mp_journal j JOIN chain c ON j.row = c.previous WHERE c.seq > ?2
)
SELECT hash FROM chain WHERE seq = ?2;

-- name: take_in_run
INSERT INTO mp_runs (run, id, workflow, version, attached, key, digest, status, reason, until, ask, why, due, owner, parent,
    principal, tenant, tags, created_at, changed_at, queue, priority, grp)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, NULL, NULL, (SELECT run FROM mp_runs WHERE id = ?), ?, ?, ?, ?, ?, ?, ?,
    ?);

-- name: take_in_import
INSERT INTO mp_imports (run, origin, bundle, signer, at, by) VALUES (?, ?, ?, ?, ?, ?);

-- name: take_in_once
INSERT INTO mp_once (tenant, tool, value, run, step, digest, outcome, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: take_in_approval
INSERT INTO mp_approvals (id, run, step, path, tool, args, asked_at, verdict, by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;
