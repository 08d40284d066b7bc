-- Every statement of the embedded store, by name.

-- The last entry, and the first one whose note the tables do not have yet.
-- name: last_row
SELECT coalesce(max(row), 0), (SELECT row FROM mp_behind) FROM mp_journal;

-- name: insert_entry
INSERT INTO mp_journal (row, run, seq, previous, body, hash) VALUES (?, ?, ?, ?, ?, ?);

-- Zero rows here is a lost epoch: the run was claimed or killed by somebody else.
-- name: advance_head
UPDATE mp_heads SET row = ?, seq = ?, hash = ?, boundary = coalesce(?, boundary), segment = ?, moved_at = ?
WHERE run = ? AND epoch = ?;

-- name: insert_head
INSERT INTO mp_heads (run, epoch, row, seq, hash, boundary, segment, moved_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: head_of
SELECT epoch, row, seq, hash, boundary, segment FROM mp_heads WHERE run = ?;

-- name: raise_epoch
UPDATE mp_heads SET epoch = ? WHERE run = ?;

-- name: insert_chunk
INSERT INTO mp_chunks (run, digest, body) VALUES (?, ?, ?);

-- name: chunk_of
SELECT body FROM mp_chunks WHERE run = ? AND digest = ?;

-- A step of a later visit of the segment has the same name and may be another tool's.
-- name: put_effect
INSERT INTO mp_effects (run, step, outcome, path, tool, effect, attempt, started_at, why, person)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, step) DO UPDATE SET
    path = excluded.path, tool = excluded.tool, effect = excluded.effect, outcome = excluded.outcome,
    attempt = excluded.attempt, started_at = excluded.started_at, why = excluded.why, person = excluded.person;

-- name: drop_effect
DELETE FROM mp_effects WHERE run = ? AND step = ?;

-- name: put_status
UPDATE mp_runs SET status = ?, reason = ?, until = ?, ask = ?, why = ?, changed_at = ? WHERE run = ?;

-- A message that arrived while the run was held must wake it: at once, unless only ends of children are among them, and
-- others are still to come.
-- name: release_run
UPDATE mp_runs SET owner = NULL, patience = ?4, due = CASE
    WHEN NOT EXISTS (SELECT 1 FROM mp_inbox WHERE mp_inbox.run = mp_runs.run AND taken = 0) THEN ?2
    WHEN ?4 > 0 AND NOT EXISTS (SELECT 1 FROM mp_inbox WHERE mp_inbox.run = mp_runs.run AND taken = 0 AND patient = 0)
        AND EXISTS (SELECT 1 FROM mp_runs c WHERE c.parent = mp_runs.run
            AND c.status NOT IN ('done', 'failed', 'cancelled', 'killed')) THEN min(coalesce(?2, ?1 + ?4), ?1 + ?4)
    ELSE ?1 END
WHERE run = ?3;

-- name: claim_run
UPDATE mp_runs SET owner = ?1, due = NULL, status = CASE
    WHEN status IN ('ready', 'parked') THEN 'running' ELSE status END, changed_at = ?2, began = coalesce(began, ?2)
WHERE run = ?3;

-- name: wake_run
UPDATE mp_runs SET due = min(coalesce(due, ?1), ?1) WHERE run = ?2 AND owner IS NULL;

-- The end of a child, where others are still to come: they are taken together.
-- name: wake_patiently
UPDATE mp_runs SET due = min(coalesce(due, ?1 + patience), ?1 + patience)
WHERE run = ?2 AND owner IS NULL AND patience > 0 AND EXISTS (SELECT 1 FROM mp_runs c WHERE c.parent = mp_runs.run
    AND c.status NOT IN ('done', 'failed', 'cancelled', 'killed'));

-- name: insert_run
INSERT INTO mp_runs (run, id, workflow, version, attached, key, digest, status, due, parent, principal, tenant, tags,
    created_at, changed_at, queue, priority, grp)
VALUES (?, ?, ?, ?, ?, ?, ?, 'ready', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- A number is never given twice: what is left of a run that was pruned still names it.
-- name: next_run
SELECT max(coalesce((SELECT max(run) FROM mp_runs), 0), coalesce((SELECT max(run) FROM mp_tombstones), 0)) + 1;

-- name: run_by_key
SELECT run, id, workflow, digest FROM mp_runs WHERE attached = ? AND key = ?;

-- name: run_number
SELECT run FROM mp_runs WHERE id = ?;

-- name: claim_once
INSERT INTO mp_once (tenant, tool, value, run, step, digest, outcome) VALUES (?, ?, ?, ?, ?, ?, 'started')
ON CONFLICT DO NOTHING;

-- name: settle_once
UPDATE mp_once SET outcome = ?, result = ?
WHERE tenant = ? AND tool = ? AND value = ? AND run = ? AND (?7 = '' OR step = ?7);

-- name: release_once
DELETE FROM mp_once WHERE tenant = ? AND tool = ? AND value = ? AND run = ? AND (?5 = '' OR step = ?5);

-- What failed did not happen, and a run that ended does not start it again. What is contradicted may have happened.
-- name: release_failed
DELETE FROM mp_once WHERE run = ?1
    AND step IN (SELECT step FROM mp_effects WHERE run = ?1 AND outcome = 'failed' AND attempt > 0 AND person IS NULL)
RETURNING tenant, tool, value;

-- An identity outlives the run that claimed it.
-- name: once_of
SELECT coalesce(r.id, t.id, ''), o.step, o.digest, o.outcome, o.result
FROM mp_once o LEFT JOIN mp_runs r USING (run) LEFT JOIN mp_tombstones t USING (run)
WHERE o.tenant = ? AND o.tool = ? AND o.value = ?;

-- name: deliver
INSERT INTO mp_inbox (run, message_id, body, patient) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: take_message
UPDATE mp_inbox SET taken = 1 WHERE id = ? AND taken = 0;

-- name: inbox_of
SELECT id, body FROM mp_inbox WHERE run = ? AND taken = 0 ORDER BY id;

-- name: held_with_mail
SELECT DISTINCT mp_runs.id FROM mp_inbox JOIN mp_runs USING (run)
WHERE taken = 0 AND mp_runs.owner = ?;

-- By the index of the status: few runs are killed, and all others are passed over.
-- name: killed_since
SELECT id FROM mp_runs WHERE status = 'killed' AND changed_at >= ? ORDER BY changed_at DESC, run DESC LIMIT 1000;

-- name: undelivered
SELECT mp_runs.id, count(*) FROM mp_inbox JOIN mp_runs USING (run) WHERE taken = 0 GROUP BY mp_inbox.run ORDER BY mp_runs.run;

-- name: latest_change
SELECT max(changed_at) FROM mp_runs;

-- name: last_bodies
SELECT body FROM mp_journal ORDER BY row DESC LIMIT 200;

-- name: message_known
SELECT body FROM mp_inbox WHERE run = ? AND message_id = ?;

-- name: put_approval
INSERT INTO mp_approvals (id, run, step, path, tool, args, asked_at, verdict) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET verdict = excluded.verdict;

-- name: answer_approval
UPDATE mp_approvals SET verdict = ?, by = ? WHERE id = ?;

-- A run that ended for good asks nothing any more, whoever ended it. What was answered last may stand in a note only.
-- name: approvals_like
WITH latest (id, verdict, by, place) AS MATERIALIZED (
    SELECT n.value ->> 0, n.value ->> 1, n.value ->> 2, max(j.row * 1000 + n.key)
    FROM mp_journal j, json_each(j.note, '$[3]') n
    WHERE j.row >= (SELECT row FROM mp_behind) AND j.note IS NOT NULL GROUP BY 1
),
standing (id, run, step, path, tool, args, asked_at, verdict, by) AS (
    SELECT id, run, step, path, tool, args, asked_at, verdict, by FROM mp_approvals
    WHERE id >= ?1 AND substr(id, 1, length(?1)) = ?1 AND id NOT IN (SELECT id FROM latest)
    UNION ALL
    SELECT a.id, a.run, a.step, a.path, a.tool, a.args, a.asked_at, l.verdict, l.by
    FROM latest l CROSS JOIN mp_approvals a ON a.id = l.id
    WHERE a.id >= ?1 AND substr(a.id, 1, length(?1)) = ?1
)
SELECT id, run_id, step, path, tool, args, asked_at, standing, by FROM (
    SELECT s.*, r.id AS run_id, CASE
        WHEN s.verdict IN ('asked', 'approved') AND r.status IN ('done', 'cancelled', 'killed') THEN 'void'
        ELSE s.verdict END AS standing
    FROM standing s JOIN mp_runs r USING (run)
) WHERE ?2 IS NULL OR standing = ?2 ORDER BY asked_at LIMIT 1000;

-- name: set_switch
INSERT INTO mp_switches (scope, kind, about, why, by, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, kind, about) DO UPDATE SET why = excluded.why, by = excluded.by, at = excluded.at;

-- A hold of an older store knows its run alone.
-- name: lift_switch
DELETE FROM mp_switches WHERE scope = ?1 AND kind = ?2
    AND (?3 IS NULL OR about = ?3 OR (kind = 'hold' AND ?3 LIKE about || ' %'))
RETURNING about;

-- What a start must look at, in one statement: switches, and the breakers of tools that failed lately.
-- name: stops
SELECT 1, scope, kind, about, why, by, at, 0, 0, 0, 0 FROM mp_switches
UNION ALL
SELECT 0, tool, state, probe, why, '', at, failures, trips, until, wait FROM mp_breakers;

-- name: put_breaker
INSERT OR REPLACE INTO mp_breakers (tool, state, failures, trips, until, wait, probe, why, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: drop_breaker
DELETE FROM mp_breakers WHERE tool = ?;

-- name: wait_for
INSERT OR REPLACE INTO mp_waits (scope, run, since, spent, probes, otherwise) VALUES (?, ?, ?, ?, ?, ?);

-- name: waits_no_more
DELETE FROM mp_waits WHERE run = ?;

-- name: anybody_waits
SELECT 1 FROM mp_waits LIMIT 1;

-- A probe that fails spends a try, and tries are bounded: who has made the fewest goes first. Where calls go on, who has waited
-- longest does: whoever comes new has made none, and an effect of which nobody knows whether it happened would wait behind all.
-- name: who_waits
SELECT w.run FROM mp_waits w JOIN mp_runs r USING (run)
WHERE w.scope = ?1 AND (?2 = 0 OR w.probes = 1) AND r.owner IS NULL
ORDER BY CASE WHEN ?2 = 1 THEN w.spent ELSE 0 END, w.since, w.run;

-- name: due_by_then
UPDATE mp_runs SET due = min(coalesce(due, ?1), ?1), until = min(coalesce(until, ?1), ?1) WHERE run = ?2;

-- One that is due now has another reason to be looked at.
-- name: due_only_then
UPDATE mp_runs SET (due, until) = (
    SELECT min(coalesce(otherwise, ?1), ?1), min(coalesce(otherwise, ?1), ?1) FROM mp_waits
    WHERE mp_waits.run = mp_runs.run AND scope = ?3
) WHERE run = ?2 AND due > ?4;

-- name: count_waits
SELECT scope, count(*) FROM mp_waits GROUP BY scope;

-- name: put_worker
INSERT INTO mp_workers (id, host, pid, started_at, lease_until) VALUES (?, ?, ?, ?, ?);

-- name: renew_worker
UPDATE mp_workers SET lease_until = max(lease_until, ?) WHERE id = ? AND ended_at IS NULL;

-- name: end_worker
UPDATE mp_workers SET ended_at = ?, lease_until = 0 WHERE id = ?;

-- name: workers
SELECT id, host, pid, started_at, lease_until, ended_at FROM mp_workers ORDER BY started_at;

-- Owners of runs that were never released, whatever became of them.
-- name: holders
SELECT w.id, w.host, w.pid, w.lease_until, w.ended_at FROM mp_workers w
WHERE w.id IN (SELECT DISTINCT owner FROM mp_runs WHERE owner IS NOT NULL);

-- name: insert_event
INSERT INTO mp_events (run, at, body) SELECT run, ?, ? FROM mp_runs WHERE id = ?;

-- name: events_after
SELECT id, at, body FROM mp_events WHERE run = ? AND id > ? ORDER BY id LIMIT 500;

-- The run from its head back to its last boundary. The predecessor's hash is read apart, to verify the first of them.
-- name: tail_of
WITH RECURSIVE tail (row, seq, previous, body, hash) AS (
    SELECT row, seq, previous, body, hash FROM mp_journal WHERE row = ?1
    UNION ALL
    SELECT j.row, j.seq, j.previous, j.body, j.hash FROM mp_journal j JOIN tail t ON j.row = t.previous
    WHERE t.row > ?2
)
SELECT row, seq, previous, body, hash FROM tail ORDER BY seq;

-- name: whole_chain
WITH RECURSIVE chain (row, seq, previous, body, hash) AS (
    SELECT row, seq, previous, body, hash FROM mp_journal WHERE row = ?1
    UNION ALL
    SELECT j.row, j.seq, j.previous, j.body, j.hash FROM mp_journal j JOIN chain c ON j.row = c.previous
)
SELECT seq, body, hash FROM chain ORDER BY seq;

-- name: hash_of_row
SELECT hash FROM mp_journal WHERE row = ?;

-- The entries of a run after one of its numbers, from its head backwards.
-- name: entries_after
WITH RECURSIVE newer (row, seq, previous, body, hash) AS (
    SELECT row, seq, previous, body, hash FROM mp_journal WHERE row = ?1 AND seq > ?2
    UNION ALL
    SELECT j.row, j.seq, j.previous, j.body, j.hash FROM mp_journal j JOIN newer n ON j.row = n.previous
    WHERE j.seq > ?2
)
SELECT seq, body, hash FROM newer ORDER BY seq;

-- name: run_row
SELECT r.run, r.id, r.workflow, r.version, r.attached, r.key, r.status, r.reason, r.until, r.ask, r.why, r.due, r.owner,
    p.id, r.principal, r.tenant, r.tags, r.created_at, r.changed_at, h.epoch, h.seq, h.segment, r.queue, r.priority, r.grp
FROM mp_runs r JOIN mp_heads h USING (run) LEFT JOIN mp_runs p ON p.run = r.parent
WHERE r.id = ?;

-- name: runs_beginning_with
SELECT id FROM mp_runs WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id LIMIT 6;

-- name: find_runs
SELECT r.run, r.id, r.workflow, r.version, r.attached, r.key, r.status, r.reason, r.until, r.ask, r.why, r.due, r.owner,
    p.id, r.principal, r.tenant, r.tags, r.created_at, r.changed_at, h.epoch, h.seq, h.segment, r.queue, r.priority, r.grp
FROM mp_runs r JOIN mp_heads h USING (run) LEFT JOIN mp_runs p ON p.run = r.parent
WHERE r.run > 0
    AND (?1 IS NULL OR r.status = ?1) AND (?2 IS NULL OR r.workflow = ?2) AND (?3 IS NULL OR r.key = ?3)
    AND (?4 IS NULL OR p.id = ?4)
    AND (?5 = 0 OR r.status = 'blocked' OR (r.status = 'parked' AND coalesce(r.ask, '') <> '')
        OR EXISTS (SELECT 1 FROM mp_effects e WHERE e.run = r.run AND e.person IS NOT NULL))
    AND (?6 IS NULL OR json_extract(r.tags, '$.' || json_quote(?6)) IS ?7)
ORDER BY r.run DESC LIMIT ?8;

-- name: count_runs
SELECT status, count(*) FROM mp_runs WHERE run > 0 GROUP BY status;

-- name: children_of
WITH RECURSIVE family (run) AS (
    SELECT run FROM mp_runs WHERE run = ?1
    UNION
    SELECT r.run FROM mp_runs r JOIN family f ON r.parent = f.run
)
SELECT r.run, r.id, r.status FROM mp_runs r JOIN family USING (run) ORDER BY r.run;

-- A message that waited for its owner must not be lost with it.
-- name: stop_run
UPDATE mp_runs SET status = ?1, reason = NULL, until = NULL, ask = NULL, why = ?2, owner = NULL, changed_at = ?4,
    due = CASE WHEN EXISTS (SELECT 1 FROM mp_inbox WHERE mp_inbox.run = mp_runs.run AND taken = 0) THEN ?4 ELSE ?3 END
WHERE run = ?5;

-- name: open_effects
SELECT r.id, e.step, e.path, e.tool, e.effect, e.outcome, e.attempt, e.started_at, e.why, e.person
FROM mp_effects e JOIN mp_runs r USING (run)
WHERE (?1 IS NULL OR e.run = ?1) ORDER BY e.run, e.started_at LIMIT 1000;

-- What a run that was killed has not begun, or what failed in it, is not begun any more.
-- name: drop_unbegun
DELETE FROM mp_effects WHERE run = ? AND outcome IN ('not_started', 'failed') AND person IS NULL;

-- Nobody can answer any more what a run that was killed had asked for.
-- name: void_approvals
UPDATE mp_approvals SET verdict = 'void' WHERE run = ? AND verdict IN ('asked', 'approved');

-- name: lose_effects
UPDATE mp_effects SET outcome = 'unknown', why = ? WHERE run = ? AND outcome = 'started';

-- name: get_meta
SELECT value FROM mp_meta WHERE name = ?;

-- name: put_meta
INSERT INTO mp_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: is_store
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'mp_migrations';

-- name: tables
SELECT count(*) FROM sqlite_schema WHERE type = 'table';

-- name: create_migrations
CREATE TABLE mp_migrations ( -- authoritative
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, at INTEGER NOT NULL
) STRICT;

-- name: migrations
SELECT number, name, checksum FROM mp_migrations ORDER BY number;

-- name: insert_migration
INSERT INTO mp_migrations (number, name, checksum, at) VALUES (?, ?, ?, ?);

-- name: owner_of
SELECT owner, status FROM mp_runs WHERE run = ?;

-- name: parent_of
SELECT p.id FROM mp_runs r JOIN mp_runs p ON p.run = r.parent WHERE r.run = ?;

-- ---------------------------------------------------------------- encryption

-- Made when a store is encrypted, and never before: no other store pays for them. 006D7065 is how what is encrypted begins.
-- name: refuse_plain_entries
CREATE TRIGGER mp_journal_no_plain BEFORE INSERT ON mp_journal WHEN substr(NEW.body, 1, 4) <> x'006D7065'
BEGIN SELECT RAISE(ABORT, 'this store is encrypted: a plain entry is refused'); END;

-- name: refuse_plain_chunks
CREATE TRIGGER mp_chunks_no_plain BEFORE INSERT ON mp_chunks WHEN substr(NEW.body, 1, 4) <> x'006D7065'
BEGIN SELECT RAISE(ABORT, 'this store is encrypted: a plain chunk is refused'); END;

-- name: refuse_plain_messages
CREATE TRIGGER mp_inbox_no_plain BEFORE INSERT ON mp_inbox WHEN substr(NEW.body, 1, 4) <> x'006D7065'
BEGIN SELECT RAISE(ABORT, 'this store is encrypted: a plain message is refused'); END;

-- name: all_once
SELECT tenant, tool, value, digest, result FROM mp_once;

-- name: hide_once
UPDATE mp_once SET value = ?, digest = ?, result = ? WHERE tenant = ? AND tool = ? AND value = ?;
