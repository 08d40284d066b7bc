-- A fleet of workers: turns, schedules, and what sits still.

-- ---------------------------------------------------------------- hints

-- name: latest
SELECT (SELECT max(row) FROM mp_journal), (SELECT max(id) FROM mp_inbox);

-- ---------------------------------------------------------------- whose turn it is

-- Who counts must be alone: two that count at once would both find room.
-- name: lock_turns
SELECT pg_advisory_xact_lock(7812722303);

-- name: due_runs
SELECT run, id, workflow, attached, status, owner, queue, grp, began FROM mp_runs
WHERE due <= $1 AND owner IS NULL
    AND workflow IN (SELECT json_array_elements_text($2::json))
    AND ($3::text IS NULL OR queue IN (SELECT json_array_elements_text($3::json)))
ORDER BY priority DESC, due, run LIMIT $4;

-- Where workers meet at the same runs: each of these looks from another place on ($5 thousandths of what is due), among
-- some times as many as it asks for, those of one priority still before all of a lower one.
-- name: due_apart
SELECT run, id, workflow, attached, status, owner, queue, grp, began FROM (
    SELECT *, row_number() OVER (ORDER BY priority DESC, due, run) AS place, count(*) OVER () AS found FROM (
        SELECT run, id, workflow, attached, status, owner, queue, grp, began, priority, due FROM mp_runs
        WHERE due <= $1 AND owner IS NULL
            AND workflow IN (SELECT json_array_elements_text($2::json))
            AND ($3::text IS NULL OR queue IN (SELECT json_array_elements_text($3::json)))
        ORDER BY priority DESC, due, run LIMIT $4::bigint * 16
    ) AS soonest
) AS placed
ORDER BY priority DESC, place <= found * $5::bigint / 1000, place LIMIT $4::bigint;

-- name: due_among
SELECT run, id, workflow, attached, status, owner, queue, grp, began FROM mp_runs
WHERE id IN (SELECT json_array_elements_text($2::json)) AND due <= $1 AND owner IS NULL
ORDER BY priority DESC, due, run;

-- name: next_due
SELECT due FROM mp_runs
WHERE due > $1 AND owner IS NULL
    AND workflow IN (SELECT json_array_elements_text($2::json))
    AND ($3::text IS NULL OR queue IN (SELECT json_array_elements_text($3::json)))
ORDER BY due LIMIT 1;

-- name: runs_of_owner
SELECT run, id, workflow, attached, status, owner, queue, grp, began FROM mp_runs WHERE owner = $1 LIMIT 500;

-- name: place_of
SELECT queue, grp, began FROM mp_runs WHERE run = $1;

-- What is held is what a fleet holds at once: few rows, whatever the store holds.
-- name: held_in
SELECT grp, count(*), 0, NULL::bigint FROM mp_runs
WHERE owner IS NOT NULL AND queue = $1 AND ($2::text IS NULL OR grp = $2) GROUP BY grp;

-- name: begun_in
SELECT grp, count(*), 0, NULL::bigint FROM mp_runs
WHERE began IS NOT NULL AND status NOT IN ('done', 'failed', 'cancelled', 'killed') AND queue = $1 GROUP BY grp;

-- name: begun_in_group
SELECT grp, count(*), 0, NULL::bigint FROM mp_runs
WHERE began IS NOT NULL AND status NOT IN ('done', 'failed', 'cancelled', 'killed') AND queue = $1 AND grp = $2 GROUP BY grp;

-- name: recent_in
SELECT grp, 0, count(*), min(began) FROM mp_runs WHERE began > $1 AND queue = $2 GROUP BY grp;

-- name: recent_in_group
SELECT grp, 0, count(*), min(began) FROM mp_runs WHERE began > $1 AND queue = $2 AND grp = $3 GROUP BY grp;

-- name: queues
SELECT queue, count(*) FILTER (WHERE due <= $1 AND owner IS NULL), min(due) FILTER (WHERE due <= $1 AND owner IS NULL),
    count(*) FILTER (WHERE owner IS NOT NULL)
FROM (
    SELECT queue, due, owner FROM mp_runs WHERE due <= $1
    UNION ALL
    SELECT queue, NULL, owner FROM mp_runs WHERE owner IS NOT NULL
) AS q GROUP BY queue ORDER BY queue;

-- ---------------------------------------------------------------- what sits still

-- name: children
SELECT id, status FROM mp_runs WHERE parent = $1 ORDER BY run LIMIT $2;

-- name: live_children
SELECT id, status FROM mp_runs
WHERE parent = $1 AND status NOT IN ('done', 'failed', 'cancelled', 'killed') ORDER BY run LIMIT $2;

-- ---------------------------------------------------------------- what sits still

-- name: still
SELECT r.id, r.workflow, h.segment, r.owner, h.moved_at FROM mp_runs r JOIN mp_heads h USING (run)
WHERE r.owner IS NOT NULL AND h.moved_at < $1 ORDER BY h.moved_at LIMIT 100;

-- ---------------------------------------------------------------- schedules

-- name: schedules
SELECT name, workflow, spec, next_at, last_at, last_run FROM mp_schedules ORDER BY name;

-- name: schedule
SELECT name, workflow, spec, next_at, last_at, last_run FROM mp_schedules WHERE name = $1;

-- name: declare_schedule
INSERT INTO mp_schedules (name, workflow, spec, next_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET workflow = $2, spec = $3, next_at = $4 WHERE mp_schedules.spec <> $3;

-- Zero rows here: somebody else has ticked, or declared it otherwise.
-- name: tick_schedule
UPDATE mp_schedules SET next_at = $4, last_at = $3, last_run = coalesce($5::text, last_run)
WHERE name = $1 AND spec = $2 AND next_at = $3;
