-- What 0001 laid out is completed here. The words authoritative, projection and diagnostic mean what they mean there.

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
