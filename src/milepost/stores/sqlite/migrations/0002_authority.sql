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
