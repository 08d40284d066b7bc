-- A fleet of workers: whose turn it is, what is scheduled, what sits still. Labels as in 0001.

-- ---------------------------------------------------------------- queues

ALTER TABLE mp_runs ADD COLUMN queue TEXT NOT NULL DEFAULT 'default';
ALTER TABLE mp_runs ADD COLUMN priority bigint NOT NULL DEFAULT 0;
ALTER TABLE mp_runs ADD COLUMN grp TEXT;

-- When a run was first taken: what began is counted by its row, not by a counter.
ALTER TABLE mp_runs ADD COLUMN began bigint;

UPDATE mp_runs SET began = created_at WHERE status <> 'ready' OR owner IS NOT NULL;

CREATE INDEX mp_runs_began ON mp_runs (queue, grp, began) WHERE began IS NOT NULL;
CREATE INDEX mp_runs_open ON mp_runs (queue, grp)
WHERE began IS NOT NULL AND status NOT IN ('done', 'failed', 'cancelled', 'killed');

-- ---------------------------------------------------------------- children

-- How long a run that waits for many children lets their ends gather (milliseconds); the last one wakes it at once.
ALTER TABLE mp_runs ADD COLUMN patience bigint NOT NULL DEFAULT 0;
ALTER TABLE mp_inbox ADD COLUMN patient bigint NOT NULL DEFAULT 0;

CREATE INDEX mp_runs_live_children ON mp_runs (parent)
WHERE parent IS NOT NULL AND status NOT IN ('done', 'failed', 'cancelled', 'killed');

-- ---------------------------------------------------------------- what sits still

-- When an entry was written last. It stands where every append writes anyway.
ALTER TABLE mp_heads ADD COLUMN moved_at bigint NOT NULL DEFAULT 0;

-- ---------------------------------------------------------------- schedules

CREATE TABLE mp_schedules ( -- authoritative
    name     TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    spec     TEXT NOT NULL,
    next_at  bigint,
    last_at  bigint,
    last_run TEXT
);

COMMENT ON TABLE mp_schedules IS 'authoritative';
