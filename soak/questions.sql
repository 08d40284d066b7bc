-- What a soak asks the server, beside all that runs. Bytes are with indexes and what is stored out of line.

-- name: tables
SELECT c.relname, pg_total_relation_size(c.oid)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname = 'public' AND c.relname LIKE 'mp\_%' ORDER BY 1;

-- name: connections
SELECT count(*) FROM pg_stat_activity WHERE application_name = 'milepost';

-- Who has ended is held now and then as well, to settle what was in flight: that is asked of no limit.
-- name: held_in
SELECT count(*) FROM mp_runs
WHERE queue = 'slow' AND owner IS NOT NULL AND status NOT IN ('done', 'failed', 'cancelled', 'killed');

-- name: most_in_a_group
SELECT coalesce(max(held), 0) FROM (
    SELECT count(*) AS held FROM mp_runs
    WHERE queue = 'slow' AND owner IS NOT NULL AND grp IS NOT NULL
        AND status NOT IN ('done', 'failed', 'cancelled', 'killed')
    GROUP BY grp
) AS groups;

-- name: statuses
SELECT status, count(*) FROM mp_runs WHERE run > 0 GROUP BY status ORDER BY status;

-- name: unended
SELECT id, workflow, status, coalesce(reason, ''), coalesce(ask, ''), coalesce(until, 0), coalesce(why, ''),
    coalesce(due, 0), coalesce(owner, '')
FROM mp_runs WHERE run > 0 AND (status NOT IN ('done', 'failed', 'cancelled', 'killed') OR owner IS NOT NULL);

-- What the record says last of a run that is stuck: the newest entries first.
-- name: last_entries
SELECT j.seq, convert_from(j.body, 'UTF8') FROM mp_journal j JOIN mp_runs r USING (run)
WHERE r.id = $1 ORDER BY j.seq DESC LIMIT 12;

-- name: ids
SELECT id FROM mp_runs WHERE run > 0;

-- name: ticks
SELECT key FROM mp_runs WHERE workflow = 'tick' AND key IS NOT NULL ORDER BY key;

-- name: notes
SELECT name FROM notes;

-- name: migrated
SELECT count(*) FROM mp_journal WHERE position('"entry":"migrated.'::bytea IN body) > 0;

-- Journal entries of all runs but those that a schedule starts.
-- name: written
SELECT count(*) FROM mp_journal j JOIN mp_runs r USING (run) WHERE r.run > 0 AND r.workflow <> 'tick';

-- name: live_inbox
SELECT count(*) FROM mp_inbox i LEFT JOIN mp_runs r USING (run)
WHERE i.taken = 0 AND (r.run IS NULL OR r.status IN ('done', 'failed', 'cancelled', 'killed'));

-- name: live_waits
SELECT count(*) FROM mp_waits w LEFT JOIN mp_runs r USING (run)
WHERE r.run IS NULL OR r.status IN ('done', 'failed', 'cancelled', 'killed');

-- name: live_effects
SELECT count(*) FROM mp_effects e LEFT JOIN mp_runs r USING (run)
WHERE r.run IS NULL OR r.status IN ('done', 'failed', 'cancelled', 'killed');

-- name: live_reserved
SELECT count(*) FROM mp_reserved s LEFT JOIN mp_effects e USING (run, step) WHERE e.run IS NULL;

-- name: live_approvals
SELECT count(*) FROM mp_approvals a LEFT JOIN mp_runs r USING (run)
WHERE a.verdict IN ('asked', 'approved') AND (r.run IS NULL OR r.status IN ('done', 'failed', 'cancelled', 'killed'));

-- name: held_runs
SELECT count(*) FROM mp_runs WHERE owner IS NOT NULL;

-- name: leases
SELECT count(*) FROM mp_workers
WHERE ended_at IS NULL AND lease_until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: advisory_locks
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory';

-- name: prepared_transactions
SELECT count(*) FROM pg_prepared_xacts;

-- name: replication_slots
SELECT count(*) FROM pg_replication_slots;

-- name: open_transactions
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND xact_start IS NOT NULL
    AND pid <> pg_backend_pid();

-- name: open_effects
SELECT count(*) FROM mp_effects;
