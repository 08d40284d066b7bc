-- A fleet of workers: turns, schedules, and what sits still.

-- ---------------------------------------------------------------- hints

-- name: latest
SELECT (SELECT max(row) FROM mp_journal), (SELECT max(id) FROM mp_inbox);

-- ---------------------------------------------------------------- whose turn it is

-- Whoever writes to the file is alone already.
-- name: lock_turns
SELECT 1;

-- name: due_runs
SELECT run, id, workflow, attached, status, owner, queue, grp, began FROM mp_runs
WHERE due <= ?1 AND owner IS NULL
    AND workflow IN (SELECT value FROM json_each(?2))
    AND (?3 IS NULL OR queue IN (SELECT value FROM json_each(?3)))
ORDER BY priority DESC, due, run LIMIT ?4;

-- name: due_among
SELECT run, id, workflow, attached, status, owner, queue, grp, began FROM mp_runs
WHERE id IN (SELECT value FROM json_each(?2)) AND due <= ?1 AND owner IS NULL
ORDER BY priority DESC, due, run;

-- name: next_due
SELECT due FROM mp_runs
WHERE due > ?1 AND owner IS NULL
    AND workflow IN (SELECT value FROM json_each(?2))
    AND (?3 IS NULL OR queue IN (SELECT value FROM json_each(?3)))
ORDER BY due LIMIT 1;

-- name: runs_of_owner
SELECT run, id, workflow, attached, status, owner, queue, grp, began FROM mp_runs WHERE owner = ? LIMIT 500;

-- name: place_of
SELECT queue, grp, began FROM mp_runs WHERE run = ?;

-- What is held is what a fleet holds at once: few rows, whatever the store holds.
-- name: held_in
SELECT grp, count(*), 0, NULL FROM mp_runs
WHERE owner IS NOT NULL AND queue = ?1 AND (?2 IS NULL OR grp = ?2) GROUP BY grp;

-- name: begun_in
SELECT grp, count(*), 0, NULL FROM mp_runs
WHERE began IS NOT NULL AND status NOT IN ('done', 'failed', 'cancelled', 'killed') AND queue = ? GROUP BY grp;

-- name: begun_in_group
SELECT grp, count(*), 0, NULL FROM mp_runs
WHERE began IS NOT NULL AND status NOT IN ('done', 'failed', 'cancelled', 'killed') AND queue = ? AND grp = ? GROUP BY grp;

-- name: recent_in
SELECT grp, 0, count(*), min(began) FROM mp_runs WHERE began > ? AND queue = ? GROUP BY grp;

-- name: recent_in_group
SELECT grp, 0, count(*), min(began) FROM mp_runs WHERE began > ? AND queue = ? AND grp = ? GROUP BY grp;

-- name: queues
SELECT queue, sum(due <= ?1 AND owner IS NULL), min(CASE WHEN due <= ?1 AND owner IS NULL THEN due END),
    sum(owner IS NOT NULL)
FROM (
    SELECT queue, due, owner FROM mp_runs WHERE due <= ?1
    UNION ALL
    SELECT queue, NULL, owner FROM mp_runs WHERE owner IS NOT NULL
) GROUP BY queue ORDER BY queue;

-- ---------------------------------------------------------------- children

-- name: children
SELECT id, status FROM mp_runs WHERE parent = ? ORDER BY run LIMIT ?;

-- name: live_children
SELECT id, status FROM mp_runs
WHERE parent = ? AND status NOT IN ('done', 'failed', 'cancelled', 'killed') ORDER BY run LIMIT ?;

-- ---------------------------------------------------------------- what sits still

-- name: still
SELECT r.id, r.workflow, h.segment, r.owner, h.moved_at FROM mp_runs r JOIN mp_heads h USING (run)
WHERE r.owner IS NOT NULL AND h.moved_at < ? ORDER BY h.moved_at LIMIT 100;

-- ---------------------------------------------------------------- schedules

-- name: schedules
SELECT name, workflow, spec, next_at, last_at, last_run FROM mp_schedules ORDER BY name;

-- name: schedule
SELECT name, workflow, spec, next_at, last_at, last_run FROM mp_schedules WHERE name = ?;

-- name: declare_schedule
INSERT INTO mp_schedules (name, workflow, spec, next_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET workflow = ?2, spec = ?3, next_at = ?4 WHERE spec <> ?3;

-- Zero rows here: somebody else has ticked, or declared it otherwise.
-- name: tick_schedule
UPDATE mp_schedules SET next_at = ?4, last_at = ?3, last_run = coalesce(?5, last_run)
WHERE name = ?1 AND spec = ?2 AND next_at = ?3;
