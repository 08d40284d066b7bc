-- Reservations stand by step, in one tree instead of two: each is written when its effect starts and deleted when that
-- settles, by its step, while what a ceiling holds in all is read only where another process wrote meanwhile.

DROP INDEX mp_reserved_step;
ALTER TABLE mp_reserved RENAME TO mp_reserved_before;

CREATE TABLE mp_reserved ( -- projection
    run    INTEGER NOT NULL,
    step   TEXT NOT NULL,
    pool   TEXT NOT NULL,
    day    INTEGER NOT NULL,
    unit   TEXT NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (run, step, pool, day, unit)
) STRICT, WITHOUT ROWID;

INSERT INTO mp_reserved (run, step, pool, day, unit, amount)
SELECT run, step, pool, day, unit, amount FROM mp_reserved_before;

DROP TABLE mp_reserved_before;
