-- Shared budgets.

-- name: ceilings
SELECT pool, per, unit, ceiling FROM mp_ceilings ORDER BY pool, per, unit;

-- name: set_ceiling
INSERT INTO mp_ceilings (pool, per, unit, ceiling) VALUES ($1, $2, $3, $4)
ON CONFLICT (pool, per, unit) DO UPDATE SET ceiling = excluded.ceiling;

-- name: lift_ceiling
DELETE FROM mp_ceilings WHERE pool = $1 AND per = $2 AND unit = $3;

-- What is reserved under a ceiling that is lifted is let go: nothing would ever settle it.
-- name: forget_reserved
DELETE FROM mp_reserved WHERE pool = $1 AND unit = $2 AND (day >= 0) = ($3 <> 0);

-- name: reserved_of
SELECT amount FROM mp_reserved WHERE pool = $1 AND day = $2 AND unit = $3;

-- To hold again for a step replaces what it held.
-- name: put_reserved
INSERT INTO mp_reserved (pool, day, unit, run, step, amount)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[])
ON CONFLICT (pool, day, unit, run, step) DO UPDATE SET amount = excluded.amount;

-- name: drop_reserved
DELETE FROM mp_reserved r USING unnest($1::bigint[], $2::text[]) AS gone (run, step)
WHERE r.run = gone.run AND r.step = gone.step;

-- What a step held that was not written in this batch.
-- name: take_reserved
DELETE FROM mp_reserved WHERE run = $1 AND step = $2 RETURNING pool, day, unit, amount;

-- An unknown effect may have happened: what it reserved stays.
-- name: release_reserved
DELETE FROM mp_reserved WHERE run = $1
    AND step NOT IN (SELECT step FROM mp_effects WHERE run = $1 AND outcome IN ('started', 'unknown'));

-- name: spent_of
SELECT amount FROM mp_spent WHERE pool = $1 AND day = $2 AND unit = $3;

-- name: put_spent
INSERT INTO mp_spent (pool, day, unit, amount)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[])
ON CONFLICT (pool, day, unit) DO UPDATE SET amount = excluded.amount;

-- name: wake_for_money
UPDATE mp_runs SET due = least(coalesce(due, $1::bigint), $1::bigint) WHERE status = 'parked' AND reason = 'budget' AND owner IS NULL;

-- name: all_spent
SELECT pool, day, unit, amount FROM mp_spent;

-- name: all_reserved
SELECT m.id, r.step, r.pool, r.day, r.unit, r.amount FROM mp_reserved r JOIN mp_runs m USING (run);

-- Entries of all runs in the order in which they were written.
-- name: written_after
SELECT j.row, r.id, j.seq, j.body FROM mp_journal j JOIN mp_runs r USING (run) WHERE j.row > $1 ORDER BY j.row LIMIT 1000;

-- name: put_overspent
INSERT INTO mp_overspent (run, unit, amount) VALUES ($1, $2, $3)
ON CONFLICT (run, unit) DO UPDATE SET amount = excluded.amount;

-- name: overspent
SELECT r.id, o.unit, o.amount FROM mp_overspent o JOIN mp_runs r USING (run) ORDER BY o.run DESC, o.unit;

-- name: delete_reserved
DELETE FROM mp_reserved WHERE run = $1;

-- name: delete_overspent
DELETE FROM mp_overspent WHERE run = $1;
