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

-- Where several are at work each has a share of what comes next for all of them, $5 among them: what is its own comes
-- first, then its neighbours', in turn. Of these it takes few, as somebody is likely to be at them: the list ends before one
-- more. With $6 it takes none while any of the highest priority is its own, else half of them, from the end that they come to
-- last. Without $6 the very first run is everybody's. So is what has been due for five seconds, at every look: nobody who
-- is at work may serve its queue, or have room for it beside what comes in meanwhile with a higher priority.
-- name: due_apart
WITH crew AS (
    SELECT greatest(count(*), 1) AS many, count(*) FILTER (WHERE id < $5) AS place FROM mp_workers
    WHERE ended_at IS NULL AND lease_until > $1
), soonest AS MATERIALIZED (
    SELECT run, priority, due, due <= $1 - 5000 AS overdue,
        CASE WHEN due <= $1 - 5000 THEN 0 ELSE (run % many - place + many) % many END AS share FROM mp_runs, crew
    WHERE due <= $1 AND owner IS NULL
        AND workflow IN (SELECT json_array_elements_text($2::json))
        AND ($3::text IS NULL OR queue IN (SELECT json_array_elements_text($3::json)))
    ORDER BY priority DESC, due, run
    LIMIT $4::bigint * (SELECT CASE WHEN many > 1 THEN least(8 * many, 64) ELSE 1 END FROM crew)
), seen AS MATERIALIZED ( -- else worked out anew for each of them
    SELECT CASE WHEN NOT $6::bool THEN ($4::bigint + 7) / 8
            WHEN max(priority) = max(priority) FILTER (WHERE share = 0) THEN 0
            ELSE (count(*) FILTER (WHERE share > 0) + 1) / 2 END AS may,
        (SELECT run FROM soonest ORDER BY priority DESC, due, run LIMIT 1) AS first
    FROM soonest
), placed AS (
    SELECT run, overdue, share, may, row_number() OVER (ORDER BY priority DESC, $6::bool OR run <> first, share,
        CASE WHEN $6::bool AND share > 0 THEN -due ELSE due END, run) AS place
    FROM soonest, seen
), chosen AS MATERIALIZED (
    SELECT run, place FROM (SELECT *, count(*) FILTER (WHERE share > 0) OVER (ORDER BY place) AS others FROM placed) AS listed
    WHERE others <= may OR overdue ORDER BY place LIMIT $4::bigint
)
SELECT r.run, id, workflow, attached, status, owner, queue, grp, began
FROM chosen, LATERAL (SELECT * FROM mp_runs WHERE mp_runs.run = chosen.run OFFSET 0) AS r ORDER BY place;

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
