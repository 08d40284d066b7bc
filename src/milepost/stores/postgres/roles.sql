-- What `milepost db roles` does; it may be done again at any time, and a later version's does what that needs more.
--
-- milepost_worker    drives runs: reads everything, appends, keeps the projections of what it appends
-- milepost_operator  is a person: puts in messages that decide, throws and lifts switches, sets ceilings, kills, prunes
--
-- Neither logs in. Those who do are made members: CREATE ROLE refunds_worker LOGIN IN ROLE milepost_worker. What grants
-- cannot tell apart, triggers do, by who is connected. A worker has a person's word turned into entries all the time: the
-- message that a person put in, and which nobody has quoted yet, is what permits such an entry. Whoever owns the tables
-- counts as a person; a worker must never own them, since an owner may switch triggers off.
--
-- What this cannot see: whether a worker tells the truth about what a tool answered, or what is in an encrypted message.
-- There an approval's signature is the proof (milepost keys).

DO $$
BEGIN
    IF to_regrole('milepost_worker') IS NULL THEN CREATE ROLE milepost_worker NOLOGIN; END IF;
    IF to_regrole('milepost_operator') IS NULL THEN CREATE ROLE milepost_operator NOLOGIN; END IF;
    IF NOT pg_has_role(current_user, 'milepost_operator', 'MEMBER') THEN
        EXECUTE format('GRANT milepost_operator TO %I', current_user);
    END IF;
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO milepost_worker, milepost_operator', current_schema());
END $$;

-- ---------------------------------------------------------------- grants

CREATE OR REPLACE FUNCTION mp_grants() RETURNS TABLE (name text, worker text, operator text)
LANGUAGE sql IMMUTABLE AS $$ VALUES
    ('mp_migrations', 'SELECT', 'SELECT'),
    ('mp_meta', 'SELECT', 'SELECT'),
    ('mp_journal', 'SELECT, INSERT', 'SELECT, INSERT, DELETE'),
    ('mp_chunks', 'SELECT, INSERT', 'SELECT, INSERT, DELETE'),
    ('mp_heads', 'SELECT, INSERT, UPDATE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_runs', 'SELECT, INSERT, UPDATE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_effects', 'SELECT, INSERT, UPDATE, DELETE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_once', 'SELECT, INSERT, UPDATE, DELETE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_inbox', 'SELECT, INSERT, UPDATE (taken)', 'SELECT, INSERT, UPDATE (taken), DELETE'),
    ('mp_quoted', 'SELECT, INSERT', 'SELECT, INSERT'),
    ('mp_switches', 'SELECT, INSERT, UPDATE, DELETE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_breakers', 'SELECT, INSERT, UPDATE, DELETE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_waits', 'SELECT, INSERT, UPDATE, DELETE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_approvals', 'SELECT, INSERT, UPDATE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_workers', 'SELECT, INSERT, UPDATE', 'SELECT, INSERT, UPDATE'),
    ('mp_lines', 'SELECT, INSERT, UPDATE, DELETE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_schedules', 'SELECT, INSERT, UPDATE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_events', 'SELECT, INSERT', 'SELECT, INSERT, DELETE'),
    ('mp_ceilings', 'SELECT', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_reserved', 'SELECT, INSERT, UPDATE, DELETE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_spent', 'SELECT, INSERT, UPDATE', 'SELECT, INSERT, UPDATE'),
    ('mp_overspent', 'SELECT, INSERT, UPDATE', 'SELECT, INSERT, UPDATE, DELETE'),
    ('mp_tombstones', 'SELECT', 'SELECT, INSERT'),
    ('mp_imports', 'SELECT', 'SELECT, INSERT, DELETE')
$$;

DO $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT * FROM mp_grants() WHERE to_regclass(name) IS NOT NULL LOOP
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC, milepost_worker, milepost_operator', one.name);
        EXECUTE format('GRANT %s ON %I TO milepost_worker', one.worker, one.name);
        EXECUTE format('GRANT %s ON %I TO milepost_operator', one.operator, one.name);
    END LOOP;
    FOR one IN SELECT relname FROM pg_class
        WHERE relkind = 'S' AND relnamespace = current_schema()::regnamespace AND starts_with(relname, 'mp_') LOOP
        EXECUTE format('GRANT USAGE, SELECT ON SEQUENCE %I TO milepost_worker, milepost_operator', one.relname);
    END LOOP;
END $$;

-- ---------------------------------------------------------------- who speaks

CREATE OR REPLACE FUNCTION mp_person() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_has_role(current_user, 'milepost_operator', 'MEMBER')
$$;

CREATE OR REPLACE FUNCTION mp_not_yours(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format(
        '%s is a person''s, and %s is none: it needs the role milepost_operator', what, current_user);
END $$;

-- What a body says, as far as it can be compared: jsonb has no NUL, and nothing that is compared here has one.
CREATE OR REPLACE FUNCTION mp_read(body bytea) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(convert_from(body, 'UTF8'), '(?<!\\)((?:\\\\)*)\\u0000', '\1', 'g')::jsonb
$$;

-- ---------------------------------------------------------------- messages

CREATE OR REPLACE FUNCTION mp_guard_inbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.person := mp_person();
    IF NOT NEW.person AND get_byte(NEW.body, 0) <> 0
        AND convert_from(NEW.body, 'UTF8') !~ '^{"message":"(evidence|child|recheck|send|cancel|revoke)\.[0-9]+"' THEN
        PERFORM mp_not_yours(format('the message %s', NEW.message_id));
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER mp_inbox_by_whom BEFORE INSERT ON mp_inbox
    FOR EACH ROW EXECUTE FUNCTION mp_guard_inbox();

-- ---------------------------------------------------------------- entries that say what a person said

-- Note that an entry is taken from a person's message, the earliest that fits and was not taken for one of its kind.
CREATE OR REPLACE FUNCTION mp_quote(whose bigint, entry text, kinds text, fits jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    found bigint;
BEGIN
    SELECT i.id INTO found
    FROM mp_inbox i
    WHERE i.run = whose AND i.person
        AND (get_byte(i.body, 0) = 0 OR (
            convert_from(i.body, 'UTF8') ~ ('^{"message":"(' || kinds || ')\.[0-9]+"')
            AND mp_read(i.body) @> fits))
        AND NOT EXISTS (SELECT 1 FROM mp_quoted q WHERE q.message = i.id AND q.entry = mp_quote.entry)
    ORDER BY i.id LIMIT 1;
    IF found IS NULL THEN RETURN FALSE; END IF;
    INSERT INTO mp_quoted (message, entry) VALUES (found, entry);
    RETURN TRUE;
END $$;

-- Whether a person looked into what a hold is about, which is a run, or a run and a path in it.
CREATE OR REPLACE FUNCTION mp_looked_into(about text, entry text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN mp_quote((SELECT run FROM mp_runs WHERE id = split_part(about, ' ', 1)), entry, 'resolve', '{}');
END $$;

CREATE OR REPLACE FUNCTION mp_guard_entry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    said jsonb;
    kind text;
    allowed boolean;
BEGIN
    IF mp_person() OR get_byte(NEW.body, 0) = 0 THEN RETURN NEW; END IF;
    kind := substring(convert_from(NEW.body, 'UTF8') FROM '^{"entry":"([a-z_]+)\.[0-9]+"');
    said := mp_read(NEW.body);
    IF NEW.run = 0 THEN -- the store's own journal
        allowed := CASE
            WHEN kind IN ('breaker_opened', 'breaker_probed', 'breaker_closed') THEN TRUE
            WHEN kind = 'switch_set' THEN said ->> 'kind' = 'hold'
            WHEN kind = 'switch_lifted' THEN said ->> 'kind' = 'hold' AND mp_looked_into(said ->> 'about', kind)
            ELSE FALSE END;
    ELSE
        allowed := CASE kind
            WHEN 'approval_answered' THEN said ->> 'approved' = 'false' OR mp_quote(NEW.run, kind, 'answer',
                jsonb_build_object('approval', said -> 'id', 'approved', TRUE))
            WHEN 'widened' THEN mp_quote(NEW.run, kind, 'grant', jsonb_strip_nulls(
                jsonb_build_object('scopes', said -> 'scopes', 'budget', said -> 'budget')))
            WHEN 'resumed' THEN mp_quote(NEW.run, kind, 'resume', '{}')
            WHEN 'retried' THEN mp_quote(NEW.run, kind, 'retry|resolve', '{}')
            WHEN 'rewind_asked' THEN mp_quote(NEW.run, kind, 'rewind', jsonb_build_object('to', said -> 'to'))
            ELSE kind IS NOT NULL END;
    END IF;
    IF allowed IS NOT TRUE THEN
        PERFORM mp_not_yours(format('an entry %s that no message of a person permits', coalesce(kind, 'of no kind')));
    END IF;
    RETURN NEW;
END $$;

-- Most entries say by their first bytes that they are of no such kind: those cost a comparison, and no call.
CREATE OR REPLACE TRIGGER mp_journal_by_whom BEFORE INSERT ON mp_journal
    FOR EACH ROW WHEN (
        NEW.run = 0 OR substr(NEW.body, 1, 10) <> '{"entry":"'
        OR substr(NEW.body, 11, 4) NOT IN ('clai', 'effe', 'atte', 'find', 'read', 'valu', 'slee', 'chec', 'run_', 'chil', 'sign')
    ) EXECUTE FUNCTION mp_guard_entry();

-- ---------------------------------------------------------------- heads, approvals, switches

CREATE OR REPLACE FUNCTION mp_guard_head() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'MP001',
        MESSAGE = 'mp_heads: neither the end of what is written nor an epoch ever goes back';
END $$;

CREATE OR REPLACE TRIGGER mp_heads_only_forward BEFORE UPDATE ON mp_heads
    FOR EACH ROW WHEN (NEW.run <> OLD.run OR NEW.epoch < OLD.epoch OR NEW.seq < OLD.seq)
    EXECUTE FUNCTION mp_guard_head();

CREATE OR REPLACE FUNCTION mp_guard_approval() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT mp_person() AND NOT EXISTS (
        SELECT 1 FROM mp_inbox i WHERE i.run = NEW.run AND i.person AND (
            get_byte(i.body, 0) = 0 OR (i.body >= '{"message":"answer.' AND i.body < '{"message":"answer/'
            AND mp_read(i.body) @> jsonb_build_object('approval', NEW.id, 'approved', TRUE)))) THEN
        PERFORM mp_not_yours(format('the approval %s', NEW.id));
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER mp_approvals_by_whom BEFORE INSERT OR UPDATE ON mp_approvals
    FOR EACH ROW WHEN (NEW.verdict = 'approved') EXECUTE FUNCTION mp_guard_approval();

CREATE OR REPLACE FUNCTION mp_guard_switch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF mp_person() THEN RETURN coalesce(NEW, OLD); END IF;
    IF TG_OP = 'DELETE' THEN
        IF OLD.kind <> 'hold' OR NOT mp_looked_into(OLD.about, 'lift ' || OLD.scope) THEN
            PERFORM mp_not_yours(format('lifting the %s on %s', OLD.kind, OLD.scope));
        END IF;
        RETURN OLD;
    END IF;
    IF NEW.kind <> 'hold' OR (TG_OP = 'UPDATE' AND OLD.kind <> 'hold') THEN
        PERFORM mp_not_yours(format('a %s on %s', NEW.kind, NEW.scope));
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER mp_switches_by_whom BEFORE INSERT OR UPDATE OR DELETE ON mp_switches
    FOR EACH ROW EXECUTE FUNCTION mp_guard_switch();

-- A table of the session's own must never be read in place of ours: pg_temp comes last, and is said to.
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT oid::regprocedure AS name FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND starts_with(proname, 'mp_') LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path TO %I, pg_temp', one.name, current_schema());
    END LOOP;
END $$;
