-- What is stopped, and who waits for it.

-- name: set_switch
INSERT INTO mp_switches (scope, kind, about, why, by, at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope, kind, about) DO UPDATE SET why = excluded.why, by = excluded.by, at = excluded.at;

-- name: lift_switch
DELETE FROM mp_switches WHERE scope = $1 AND kind = $2
    AND ($3::text IS NULL OR about = $3 OR (kind = 'hold' AND starts_with($3, about || ' ')))
RETURNING about;

-- What a start must look at, in one statement: switches, and the breakers of tools that failed lately.
-- name: stops
SELECT * FROM (
    SELECT 1 AS is_switch, scope, kind, about, why, by, at, 0::bigint, 0::bigint, 0::bigint, 0::bigint FROM mp_switches
    UNION ALL
    SELECT 0, tool, state, probe, why, '', at, failures, trips, until, wait FROM mp_breakers
) AS standing ORDER BY is_switch DESC, scope, kind, about;

-- name: put_breaker
INSERT INTO mp_breakers (tool, state, failures, trips, until, wait, probe, why, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tool) DO UPDATE SET state = excluded.state, failures = excluded.failures, trips = excluded.trips,
    until = excluded.until, wait = excluded.wait, probe = excluded.probe, why = excluded.why, at = excluded.at;

-- name: drop_breaker
DELETE FROM mp_breakers WHERE tool = $1;

-- name: wait_for
INSERT INTO mp_waits (scope, run, since, spent, probes, otherwise) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope, run) DO UPDATE SET since = excluded.since, spent = excluded.spent, probes = excluded.probes,
    otherwise = excluded.otherwise;

-- name: waits_no_more
DELETE FROM mp_waits WHERE run = ANY ($1::bigint[]);

-- name: anybody_waits
SELECT 1 FROM mp_waits LIMIT 1;

-- A probe that fails spends a try, and tries are bounded: who has made the fewest goes first. Where calls go on, who has waited
-- longest does: whoever comes new has made none, and an effect of which nobody knows whether it happened would wait behind all.
-- name: who_waits
SELECT w.run FROM mp_waits w JOIN mp_runs r USING (run)
WHERE w.scope = $1 AND ($2 = 0 OR w.probes = 1) AND r.owner IS NULL
ORDER BY CASE WHEN $2 = 1 THEN w.spent ELSE 0 END, w.since, w.run;

-- name: due_by_then
UPDATE mp_runs r SET due = least(coalesce(due, u.at), u.at), until = least(coalesce(until, u.at), u.at)
FROM unnest($1::bigint[], $2::bigint[]) AS u (at, run)
WHERE r.run = u.run;

-- One that is due now has another reason to be looked at.
-- name: due_only_then
UPDATE mp_runs r SET due = least(coalesce(w.otherwise, u.at), u.at), until = least(coalesce(w.otherwise, u.at), u.at)
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS u (at, run, scope, now)
    JOIN mp_waits w ON w.run = u.run AND w.scope = u.scope
WHERE r.run = u.run AND r.due > u.now;

-- name: count_waits
SELECT scope, count(*) FROM mp_waits GROUP BY scope;
