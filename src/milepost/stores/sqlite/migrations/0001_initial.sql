-- Every table says what it is, in its own stored text:
--   authoritative  recovery reads it; nothing else knows what it says
--   projection     rebuilt from the journal (mp_switches from the store's own, whose run is 0)
--   diagnostic     deleting all of it changes nothing

CREATE TABLE mp_meta ( -- authoritative
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row an entry, in the order of writing. `previous` is the row of the run's entry before it: a run is read from its
-- head backwards, so that no index over (run, seq) has to be written for each entry.
CREATE TABLE mp_journal ( -- authoritative
    row      INTEGER PRIMARY KEY,
    run      INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    previous INTEGER,
    body     BLOB NOT NULL,
    hash     BLOB NOT NULL
) STRICT;

-- What every append changes, and nothing else: narrow rows keep a hundred runs on two pages.
CREATE TABLE mp_heads ( -- projection
    run      INTEGER PRIMARY KEY,
    epoch    INTEGER NOT NULL,
    row      INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    hash     BLOB NOT NULL,
    boundary INTEGER NOT NULL,
    segment  TEXT
) STRICT;

CREATE TABLE mp_runs ( -- projection
    run        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    workflow   TEXT NOT NULL,
    version    TEXT NOT NULL,
    attached   INTEGER NOT NULL,
    key        TEXT,
    digest     TEXT NOT NULL,
    status     TEXT NOT NULL,
    reason     TEXT,
    until      INTEGER,
    ask        TEXT,
    why        TEXT,
    due        INTEGER,
    owner      TEXT,
    parent     INTEGER,
    principal  TEXT NOT NULL,
    tenant     TEXT,
    tags       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX mp_runs_key ON mp_runs (attached, key) WHERE key IS NOT NULL;
CREATE INDEX mp_runs_due ON mp_runs (due) WHERE due IS NOT NULL;
CREATE INDEX mp_runs_owner ON mp_runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX mp_runs_parent ON mp_runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX mp_runs_status ON mp_runs (status);

-- Effects that are not started, started or unknown; a settled one leaves.
CREATE TABLE mp_effects ( -- projection
    run        INTEGER NOT NULL,
    step       TEXT NOT NULL,
    path       TEXT NOT NULL,
    tool       TEXT NOT NULL,
    effect     TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    started_at INTEGER,
    why        TEXT,
    person     TEXT,
    PRIMARY KEY (run, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE mp_once ( -- authoritative
    tenant  TEXT NOT NULL,
    tool    TEXT NOT NULL,
    value   TEXT NOT NULL,
    run     INTEGER NOT NULL,
    step    TEXT NOT NULL,
    digest  TEXT NOT NULL,
    outcome TEXT NOT NULL,
    result  BLOB,
    PRIMARY KEY (tenant, tool, value)
) STRICT, WITHOUT ROWID;

-- Not WITHOUT ROWID: a body of a kilobyte does not fit into a cell of an index page, and each would take a page of its own.
CREATE TABLE mp_chunks ( -- authoritative
    row    INTEGER PRIMARY KEY,
    run    INTEGER NOT NULL,
    digest TEXT NOT NULL,
    body   BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX mp_chunks_digest ON mp_chunks (run, digest);

CREATE TABLE mp_inbox ( -- authoritative
    id         INTEGER PRIMARY KEY,
    run        INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    body       BLOB NOT NULL,
    taken      INTEGER NOT NULL DEFAULT 0,
    UNIQUE (run, message_id)
) STRICT;

CREATE INDEX mp_inbox_waiting ON mp_inbox (run) WHERE taken = 0;

CREATE TABLE mp_switches ( -- projection
    scope TEXT PRIMARY KEY,
    kind  TEXT NOT NULL,
    why   TEXT NOT NULL,
    by    TEXT NOT NULL,
    at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE mp_approvals ( -- projection
    id       TEXT PRIMARY KEY,
    run      INTEGER NOT NULL,
    step     TEXT NOT NULL,
    path     TEXT NOT NULL,
    tool     TEXT NOT NULL,
    args     BLOB NOT NULL,
    asked_at INTEGER NOT NULL,
    verdict  TEXT NOT NULL,
    by       TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE mp_workers ( -- authoritative
    id          TEXT PRIMARY KEY,
    host        TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    ended_at    INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE mp_events ( -- diagnostic
    id   INTEGER PRIMARY KEY,
    run  INTEGER NOT NULL,
    at   INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX mp_events_run ON mp_events (run, id);

-- A run may be deleted only beside its tombstone, in the same transaction.
CREATE TABLE mp_tombstones ( -- authoritative
    run INTEGER PRIMARY KEY,
    id  TEXT NOT NULL,
    at  INTEGER NOT NULL,
    by  TEXT NOT NULL,
    why TEXT NOT NULL
) STRICT;

CREATE TRIGGER mp_journal_no_update BEFORE UPDATE ON mp_journal
BEGIN SELECT RAISE(ABORT, 'mp_journal is append-only: an entry is never changed'); END;

CREATE TRIGGER mp_journal_no_delete BEFORE DELETE ON mp_journal
WHEN NOT EXISTS (SELECT 1 FROM mp_tombstones WHERE run = OLD.run)
BEGIN SELECT RAISE(ABORT, 'mp_journal is append-only: a run is deleted only beside its tombstone'); END;

-- INSERT OR REPLACE deletes without firing a delete trigger, so it is stopped at the insert.
CREATE TRIGGER mp_journal_no_replace BEFORE INSERT ON mp_journal
WHEN EXISTS (SELECT 1 FROM mp_journal WHERE row = NEW.row)
BEGIN SELECT RAISE(ABORT, 'mp_journal is append-only: an entry is never replaced'); END;

CREATE TRIGGER mp_chunks_no_update BEFORE UPDATE ON mp_chunks
BEGIN SELECT RAISE(ABORT, 'mp_chunks is append-only: a chunk is never changed'); END;

CREATE TRIGGER mp_chunks_no_delete BEFORE DELETE ON mp_chunks
WHEN NOT EXISTS (SELECT 1 FROM mp_tombstones WHERE run = OLD.run)
BEGIN SELECT RAISE(ABORT, 'mp_chunks is append-only: a run is deleted only beside its tombstone'); END;

CREATE TRIGGER mp_chunks_no_other_row BEFORE INSERT ON mp_chunks
WHEN EXISTS (SELECT 1 FROM mp_chunks WHERE row = NEW.row)
BEGIN SELECT RAISE(ABORT, 'mp_chunks is append-only: a chunk is never replaced'); END;

-- The same content under the same name is nothing new: it is left as it stands.
CREATE TRIGGER mp_chunks_no_replace BEFORE INSERT ON mp_chunks
WHEN EXISTS (SELECT 1 FROM mp_chunks WHERE run = NEW.run AND digest = NEW.digest)
BEGIN SELECT RAISE(IGNORE); END;
