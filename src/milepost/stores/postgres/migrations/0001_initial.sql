-- Every table says what it is, in its comment:
--   authoritative  recovery reads it; nothing else knows what it says
--   projection     rebuilt from the journal (mp_switches from the store's own, whose run is 0)
--   diagnostic     deleting all of it changes nothing
-- Moments are milliseconds since 1970. Texts that are compared have the collation "C": every server orders them alike.

CREATE FUNCTION mp_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'MP001', MESSAGE = TG_TABLE_NAME || ' ' || TG_ARGV[0];
END $$;

CREATE TABLE mp_meta (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value TEXT NOT NULL
);
COMMENT ON TABLE mp_meta IS 'authoritative';

-- A row of the journal is the number of its batch, shifted by 16 bits, plus a place in it. It is taken when the heads of
-- the batch's runs are locked already, so the rows of one run rise with its entries. Batches commit in any order.
CREATE SEQUENCE mp_batches;

-- Numbers of runs; one is never given twice, since what is left of a run that was pruned still names it.
CREATE SEQUENCE mp_run_numbers;

-- One row an entry. `previous` is the row of the run's entry before it: a run is read from its head backwards, and an
-- insert touches the last page of one index, whichever run it is for.
CREATE TABLE mp_journal (
    row      BIGINT PRIMARY KEY,
    run      BIGINT NOT NULL,
    seq      BIGINT NOT NULL,
    previous BIGINT,
    body     BYTEA NOT NULL,
    hash     BYTEA NOT NULL
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
COMMENT ON TABLE mp_journal IS 'authoritative';

-- What every append changes, and nothing else. Half of each page is free: a new version of a row finds room beside the
-- old one, no index is touched, and what is dead goes with the next look at the page.
CREATE TABLE mp_heads (
    run      BIGINT PRIMARY KEY,
    epoch    BIGINT NOT NULL,
    row      BIGINT NOT NULL,
    seq      BIGINT NOT NULL,
    hash     BYTEA NOT NULL,
    boundary BIGINT NOT NULL,
    segment  TEXT
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE mp_heads IS 'projection';

CREATE TABLE mp_runs (
    run        BIGINT PRIMARY KEY,
    id         TEXT COLLATE "C" NOT NULL UNIQUE,
    workflow   TEXT COLLATE "C" NOT NULL,
    version    TEXT NOT NULL,
    attached   BIGINT NOT NULL,
    key        TEXT COLLATE "C",
    digest     TEXT NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    reason     TEXT,
    until      BIGINT,
    ask        TEXT,
    why        TEXT,
    due        BIGINT,
    owner      TEXT COLLATE "C",
    parent     BIGINT,
    principal  TEXT NOT NULL,
    tenant     TEXT,
    tags       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE mp_runs IS 'projection';

CREATE UNIQUE INDEX mp_runs_key ON mp_runs (attached, key) WHERE key IS NOT NULL;
CREATE INDEX mp_runs_due ON mp_runs (due) WHERE due IS NOT NULL AND owner IS NULL;
CREATE INDEX mp_runs_owner ON mp_runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX mp_runs_parent ON mp_runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX mp_runs_status ON mp_runs (status);

-- Effects that are not started, started or unknown; a settled one leaves.
CREATE TABLE mp_effects (
    run        BIGINT NOT NULL,
    step       TEXT COLLATE "C" NOT NULL,
    path       TEXT NOT NULL,
    tool       TEXT NOT NULL,
    effect     TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    attempt    BIGINT NOT NULL,
    started_at BIGINT,
    why        TEXT,
    person     TEXT,
    PRIMARY KEY (run, step)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE mp_effects IS 'projection';

CREATE TABLE mp_once (
    tenant  TEXT COLLATE "C" NOT NULL,
    tool    TEXT COLLATE "C" NOT NULL,
    value   TEXT COLLATE "C" NOT NULL,
    run     BIGINT NOT NULL,
    step    TEXT COLLATE "C" NOT NULL,
    digest  TEXT NOT NULL,
    outcome TEXT NOT NULL,
    result  BYTEA,
    PRIMARY KEY (tenant, tool, value)
);
COMMENT ON TABLE mp_once IS 'authoritative';
CREATE INDEX mp_once_run ON mp_once (run);

CREATE TABLE mp_chunks (
    run    BIGINT NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    body   BYTEA NOT NULL,
    PRIMARY KEY (run, digest)
);
COMMENT ON TABLE mp_chunks IS 'authoritative';

CREATE TABLE mp_inbox (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run        BIGINT NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    body       BYTEA NOT NULL,
    taken      BIGINT NOT NULL DEFAULT 0,
    UNIQUE (run, message_id)
);
COMMENT ON TABLE mp_inbox IS 'authoritative';
CREATE INDEX mp_inbox_waiting ON mp_inbox (run) WHERE taken = 0;

-- One row a reason: what one contradiction holds is not set free by looking into another.
CREATE TABLE mp_switches (
    scope TEXT COLLATE "C" NOT NULL,
    kind  TEXT COLLATE "C" NOT NULL,
    about TEXT COLLATE "C" NOT NULL,
    why   TEXT NOT NULL,
    by    TEXT NOT NULL,
    at    BIGINT NOT NULL,
    PRIMARY KEY (scope, kind, about)
);
COMMENT ON TABLE mp_switches IS 'projection';

-- A tool that has neither failed lately nor is held has no row.
CREATE TABLE mp_breakers (
    tool     TEXT COLLATE "C" PRIMARY KEY,
    state    TEXT NOT NULL,
    failures BIGINT NOT NULL,
    trips    BIGINT NOT NULL,
    until    BIGINT NOT NULL,
    wait     BIGINT NOT NULL,
    probe    TEXT NOT NULL,
    why      TEXT NOT NULL,
    at       BIGINT NOT NULL
);
COMMENT ON TABLE mp_breakers IS 'authoritative';

-- Which run that nobody holds rests on what: written where it parks, gone where it is claimed. Without it a run only
-- looks again later: when it is due `otherwise`.
CREATE TABLE mp_waits (
    scope     TEXT COLLATE "C" NOT NULL,
    run       BIGINT NOT NULL,
    since     BIGINT NOT NULL,
    spent     BIGINT NOT NULL,
    probes    BIGINT NOT NULL,
    otherwise BIGINT,
    PRIMARY KEY (scope, run)
);
COMMENT ON TABLE mp_waits IS 'projection';
CREATE INDEX mp_waits_run ON mp_waits (run);

CREATE TABLE mp_approvals (
    id       TEXT COLLATE "C" PRIMARY KEY,
    run      BIGINT NOT NULL,
    step     TEXT NOT NULL,
    path     TEXT NOT NULL,
    tool     TEXT NOT NULL,
    args     BYTEA NOT NULL,
    asked_at BIGINT NOT NULL,
    verdict  TEXT NOT NULL,
    by       TEXT
);
COMMENT ON TABLE mp_approvals IS 'projection';
CREATE INDEX mp_approvals_run ON mp_approvals (run);

CREATE TABLE mp_workers (
    id          TEXT COLLATE "C" PRIMARY KEY,
    host        TEXT NOT NULL,
    pid         BIGINT NOT NULL,
    started_at  BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    ended_at    BIGINT
) WITH (fillfactor = 50);
COMMENT ON TABLE mp_workers IS 'authoritative';

CREATE TABLE mp_events (
    id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run  BIGINT NOT NULL,
    at   BIGINT NOT NULL,
    body BYTEA NOT NULL
);
COMMENT ON TABLE mp_events IS 'diagnostic';
CREATE INDEX mp_events_run ON mp_events (run, id);

-- ---------------------------------------------------------------- shared budgets

-- What the runs of a pool may spend in a unit. Amounts are decimal texts: they are added exactly, and not by SQL.
CREATE TABLE mp_ceilings (
    pool    TEXT COLLATE "C" NOT NULL,
    per     TEXT COLLATE "C" NOT NULL,
    unit    TEXT COLLATE "C" NOT NULL,
    ceiling TEXT NOT NULL,
    PRIMARY KEY (pool, per, unit)
);
COMMENT ON TABLE mp_ceilings IS 'projection';

-- One row a reservation and ceiling: what is held can be counted, and goes with its effect. `day` counts UTC days from
-- 1970; it is -1 under ceilings that hold for ever.
CREATE TABLE mp_reserved (
    pool   TEXT COLLATE "C" NOT NULL,
    day    BIGINT NOT NULL,
    unit   TEXT COLLATE "C" NOT NULL,
    run    BIGINT NOT NULL,
    step   TEXT COLLATE "C" NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (pool, day, unit, run, step)
);
COMMENT ON TABLE mp_reserved IS 'projection';
CREATE INDEX mp_reserved_step ON mp_reserved (run, step);

CREATE TABLE mp_spent (
    pool   TEXT COLLATE "C" NOT NULL,
    day    BIGINT NOT NULL,
    unit   TEXT COLLATE "C" NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (pool, day, unit)
);
COMMENT ON TABLE mp_spent IS 'projection';

-- What a run has spent above its reservations, by now.
CREATE TABLE mp_overspent (
    run    BIGINT NOT NULL,
    unit   TEXT COLLATE "C" NOT NULL,
    amount TEXT NOT NULL,
    PRIMARY KEY (run, unit)
);
COMMENT ON TABLE mp_overspent IS 'projection';

-- ---------------------------------------------------------------- keeping: seals, pruning, imports

-- A run may be deleted only beside its tombstone, in the same transaction.
CREATE TABLE mp_tombstones (
    run      BIGINT PRIMARY KEY,
    id       TEXT COLLATE "C" NOT NULL UNIQUE,
    at       BIGINT NOT NULL,
    by       TEXT NOT NULL,
    why      TEXT NOT NULL,
    seq      BIGINT NOT NULL,
    hash     BYTEA NOT NULL,
    digest   TEXT NOT NULL,
    workflow TEXT NOT NULL,
    status   TEXT NOT NULL,
    attached BIGINT NOT NULL,
    key      TEXT COLLATE "C"
);
COMMENT ON TABLE mp_tombstones IS 'authoritative';
CREATE INDEX mp_tombstones_key ON mp_tombstones (attached, key) WHERE key IS NOT NULL;

-- Runs that were begun in another store, whose id their chain's genesis names.
CREATE TABLE mp_imports (
    run    BIGINT PRIMARY KEY,
    origin TEXT NOT NULL,
    bundle TEXT NOT NULL,
    signer TEXT NOT NULL,
    at     BIGINT NOT NULL,
    by     TEXT NOT NULL
);
COMMENT ON TABLE mp_imports IS 'authoritative';

-- ---------------------------------------------------------------- what is written stays written

CREATE FUNCTION mp_only_beside_a_tombstone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM mp_tombstones WHERE run = OLD.run) THEN
        RAISE EXCEPTION USING ERRCODE = 'MP001',
            MESSAGE = TG_TABLE_NAME || ' is append-only: a run is deleted only beside its tombstone';
    END IF;
    RETURN OLD;
END $$;

-- Without this a tombstone for a run that goes on would open its journal to whoever writes both.
CREATE FUNCTION mp_only_of_the_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM mp_runs r JOIN mp_heads h USING (run)
        WHERE r.run = NEW.run AND r.id = NEW.id AND h.seq = NEW.seq AND h.hash = NEW.hash
            AND r.status IN ('done', 'failed', 'cancelled', 'killed')
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'MP001',
            MESSAGE = 'mp_tombstones: only a run that ended has one, and it names its last entry';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER mp_journal_no_update BEFORE UPDATE ON mp_journal
    FOR EACH ROW EXECUTE FUNCTION mp_refuse('is append-only: an entry is never changed');
CREATE TRIGGER mp_journal_no_delete BEFORE DELETE ON mp_journal
    FOR EACH ROW EXECUTE FUNCTION mp_only_beside_a_tombstone();
CREATE TRIGGER mp_journal_no_truncate BEFORE TRUNCATE ON mp_journal
    EXECUTE FUNCTION mp_refuse('is append-only: it is never truncated');
CREATE TRIGGER mp_chunks_no_update BEFORE UPDATE ON mp_chunks
    FOR EACH ROW EXECUTE FUNCTION mp_refuse('is append-only: a chunk is never changed');
CREATE TRIGGER mp_chunks_no_delete BEFORE DELETE ON mp_chunks
    FOR EACH ROW EXECUTE FUNCTION mp_only_beside_a_tombstone();
CREATE TRIGGER mp_chunks_no_truncate BEFORE TRUNCATE ON mp_chunks
    EXECUTE FUNCTION mp_refuse('is append-only: it is never truncated');
CREATE TRIGGER mp_tombstones_of_the_ended BEFORE INSERT ON mp_tombstones
    FOR EACH ROW EXECUTE FUNCTION mp_only_of_the_ended();
CREATE TRIGGER mp_tombstones_no_update BEFORE UPDATE ON mp_tombstones
    FOR EACH ROW EXECUTE FUNCTION mp_refuse('is append-only: a tombstone is never changed');
CREATE TRIGGER mp_tombstones_no_delete BEFORE DELETE ON mp_tombstones
    FOR EACH ROW EXECUTE FUNCTION mp_refuse('is append-only: a tombstone stays');
CREATE TRIGGER mp_tombstones_no_truncate BEFORE TRUNCATE ON mp_tombstones
    EXECUTE FUNCTION mp_refuse('is append-only: it is never truncated');

-- Also for a session that calls itself a replica, for which triggers are off otherwise.
ALTER TABLE mp_journal ENABLE ALWAYS TRIGGER mp_journal_no_update;
ALTER TABLE mp_journal ENABLE ALWAYS TRIGGER mp_journal_no_delete;
ALTER TABLE mp_journal ENABLE ALWAYS TRIGGER mp_journal_no_truncate;
ALTER TABLE mp_chunks ENABLE ALWAYS TRIGGER mp_chunks_no_update;
ALTER TABLE mp_chunks ENABLE ALWAYS TRIGGER mp_chunks_no_delete;
ALTER TABLE mp_chunks ENABLE ALWAYS TRIGGER mp_chunks_no_truncate;
ALTER TABLE mp_tombstones ENABLE ALWAYS TRIGGER mp_tombstones_of_the_ended;
ALTER TABLE mp_tombstones ENABLE ALWAYS TRIGGER mp_tombstones_no_update;
ALTER TABLE mp_tombstones ENABLE ALWAYS TRIGGER mp_tombstones_no_delete;
ALTER TABLE mp_tombstones ENABLE ALWAYS TRIGGER mp_tombstones_no_truncate;
