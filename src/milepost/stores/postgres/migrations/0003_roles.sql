-- Who may say what, and which code is at work: what `milepost db roles` and `milepost db migrate` rest on. And what
-- became of a commit whose answer was never heard.

-- One row a process that writes: the number of its latest batch, written by that batch itself. Transaction numbers cannot
-- tell this: what a crash took back was never written down, and its number is given to somebody else.
CREATE TABLE mp_lines (
    line  TEXT COLLATE "C" PRIMARY KEY,
    batch BIGINT NOT NULL,
    at    BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE mp_lines IS 'authoritative';

-- Whether a person put the message in: filled in by a trigger from whoever is connected, once there are roles.
ALTER TABLE mp_inbox ADD COLUMN person BOOLEAN NOT NULL DEFAULT TRUE;

-- A person's word permits one entry of a kind, once: which message an entry of a worker's was taken from.
CREATE TABLE mp_quoted (
    message BIGINT NOT NULL REFERENCES mp_inbox (id) ON DELETE CASCADE,
    entry   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (message, entry)
);
COMMENT ON TABLE mp_quoted IS 'projection';

-- The newest migration that a worker's code knows. Every transaction says it for itself, as a setting of its own.
ALTER TABLE mp_workers ADD COLUMN knows BIGINT NOT NULL
    DEFAULT coalesce(nullif(current_setting('milepost.knows', TRUE), '')::bigint, 1);

CREATE FUNCTION mp_refuse_the_outdated() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    oldest CONSTANT bigint := (SELECT max(number) FROM mp_migrations WHERE kind = 'post');
BEGIN
    IF NEW.ended_at IS NULL AND NEW.knows < oldest THEN
        RAISE EXCEPTION USING ERRCODE = 'MP001', MESSAGE = format(
            'this worker''s code knows the schema up to %s, and %s took away what it needs', NEW.knows, oldest);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER mp_workers_not_outdated BEFORE INSERT OR UPDATE OF lease_until ON mp_workers
    FOR EACH ROW EXECUTE FUNCTION mp_refuse_the_outdated();
