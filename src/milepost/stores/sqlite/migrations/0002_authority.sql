-- What 0001 laid out is completed here. The words authoritative, projection and diagnostic mean what they mean there.

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
