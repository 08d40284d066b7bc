-- What a run may still do after a long time, and what became of runs that are gone. Labels as in 0001.

-- ---------------------------------------------------------------- keeping: seals, pruning, imports

ALTER TABLE mp_tombstones ADD COLUMN seq INTEGER;
ALTER TABLE mp_tombstones ADD COLUMN hash BLOB;
ALTER TABLE mp_tombstones ADD COLUMN digest TEXT;
ALTER TABLE mp_tombstones ADD COLUMN workflow TEXT;
ALTER TABLE mp_tombstones ADD COLUMN status TEXT;
ALTER TABLE mp_tombstones ADD COLUMN attached INTEGER;
ALTER TABLE mp_tombstones ADD COLUMN key TEXT;

CREATE UNIQUE INDEX mp_tombstones_id ON mp_tombstones (id);
CREATE INDEX mp_tombstones_key ON mp_tombstones (attached, key) WHERE key IS NOT NULL;

-- Without this a tombstone for a run that goes on would open its journal to whoever writes both.
CREATE TRIGGER mp_tombstones_of_the_ended BEFORE INSERT ON mp_tombstones
WHEN NOT EXISTS (
    SELECT 1 FROM mp_runs r JOIN mp_heads h USING (run)
    WHERE r.run = NEW.run AND r.id = NEW.id AND h.seq IS NEW.seq AND h.hash IS NEW.hash
        AND r.status IN ('done', 'failed', 'cancelled', 'killed')
)
BEGIN SELECT RAISE(ABORT, 'mp_tombstones: only a run that ended has one, and it names its last entry'); END;

CREATE TRIGGER mp_tombstones_no_replace BEFORE INSERT ON mp_tombstones
WHEN EXISTS (SELECT 1 FROM mp_tombstones WHERE run = NEW.run OR id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'mp_tombstones is append-only: a tombstone is never replaced'); END;

CREATE TRIGGER mp_tombstones_no_update BEFORE UPDATE ON mp_tombstones
BEGIN SELECT RAISE(ABORT, 'mp_tombstones is append-only: a tombstone is never changed'); END;

CREATE TRIGGER mp_tombstones_no_delete BEFORE DELETE ON mp_tombstones
BEGIN SELECT RAISE(ABORT, 'mp_tombstones is append-only: a tombstone stays'); END;

-- Runs that were begun in another store, whose id their chain's genesis names.
CREATE TABLE mp_imports ( -- authoritative
    run    INTEGER PRIMARY KEY,
    origin TEXT NOT NULL,
    bundle TEXT NOT NULL,
    signer TEXT NOT NULL,
    at     INTEGER NOT NULL,
    by     TEXT NOT NULL
) STRICT;

-- ---------------------------------------------------------------- switches, breakers, and who waits for them

-- One row a reason: what one contradiction holds is not set free by looking into another.
ALTER TABLE mp_switches RENAME TO mp_switches_before;

CREATE TABLE mp_switches ( -- projection
    scope TEXT NOT NULL,
    kind  TEXT NOT NULL,
    about TEXT NOT NULL,
    why   TEXT NOT NULL,
    by    TEXT NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (scope, kind, about)
) STRICT, WITHOUT ROWID;

INSERT INTO mp_switches (scope, kind, about, why, by, at)
SELECT scope, kind, CASE kind WHEN 'hold' THEN by ELSE '' END, why, by, at FROM mp_switches_before;

DROP TABLE mp_switches_before;

-- A tool that has neither failed lately nor is held has no row.
CREATE TABLE mp_breakers ( -- authoritative
    tool     TEXT PRIMARY KEY,
    state    TEXT NOT NULL,
    failures INTEGER NOT NULL,
    trips    INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    wait     INTEGER NOT NULL,
    probe    TEXT NOT NULL,
    why      TEXT NOT NULL,
    at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which run that nobody holds rests on what: written where it parks, gone where it is claimed. Without it a run only
-- looks again later: when it is due `otherwise`.
CREATE TABLE mp_waits ( -- projection
    scope     TEXT NOT NULL,
    run       INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    spent     INTEGER NOT NULL,
    probes    INTEGER NOT NULL,
    otherwise INTEGER,
    PRIMARY KEY (scope, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX mp_waits_run ON mp_waits (run);

-- ---------------------------------------------------------------- shared budgets

-- What the runs of a pool may spend in a unit. Amounts are decimal texts: they are added exactly, and not by SQL.
CREATE TABLE mp_ceilings ( -- projection
    pool    TEXT NOT NULL,
    per     TEXT NOT NULL,
    unit    TEXT NOT NULL,
    ceiling TEXT NOT NULL,
    PRIMARY KEY (pool, per, unit)
) STRICT, WITHOUT ROWID;

-- One row a reservation and ceiling: what is held can be counted, and goes with its effect. `day` counts UTC days from
-- 1970; it is -1 under ceilings that hold for ever.
CREATE TABLE mp_reserved ( -- projection
    pool   TEXT NOT NULL,
    day    INTEGER NOT NULL,
    unit   TEXT NOT NULL,
    run    INTEGER NOT NULL,
    step   TEXT NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (pool, day, unit, run, step)
) STRICT, WITHOUT ROWID;

CREATE INDEX mp_reserved_step ON mp_reserved (run, step);

CREATE TABLE mp_spent ( -- projection
    pool   TEXT NOT NULL,
    day    INTEGER NOT NULL,
    unit   TEXT NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (pool, day, unit)
) STRICT, WITHOUT ROWID;

-- What a run has spent above its reservations, by now.
CREATE TABLE mp_overspent ( -- projection
    run    INTEGER NOT NULL,
    unit   TEXT NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (run, unit)
) STRICT, WITHOUT ROWID;
