-- name: schema
-- What the outside world was asked, and what it did. `applied` is the truth: one row, one effect. Its `seq` counts what was
-- applied under one name, so that a receipt is the same again in a fresh account, in whatever order things come.
CREATE TABLE IF NOT EXISTS requests (
    seq     INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    what    TEXT NOT NULL,
    key     TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS requests_by_account ON requests (account);
CREATE TABLE IF NOT EXISTS applied (
    seq     INTEGER NOT NULL,
    account TEXT NOT NULL,
    kind    TEXT NOT NULL,
    tool    TEXT NOT NULL,
    name    TEXT NOT NULL,
    key     TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    args    TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS applied_by_name ON applied (account, kind, tool, name);
CREATE INDEX IF NOT EXISTS applied_by_key ON applied (account, tool, key);
CREATE TABLE IF NOT EXISTS met (
    seq     INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    what    TEXT NOT NULL,
    toxic   TEXT NOT NULL,
    at      INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS met_by_account ON met (account, what);

-- name: add_request
INSERT INTO requests (account, what, key, attempt, at) VALUES (?, ?, ?, ?, ?);

-- name: requests
SELECT what, key, attempt, at FROM requests WHERE account = ? ORDER BY seq;

-- name: apply
INSERT INTO applied (account, kind, tool, name, key, attempt, at, args, seq)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1 + count(*) FROM applied WHERE account = ?1 AND kind = ?2 AND tool = ?3 AND name = ?4
RETURNING seq, tool, name, key, attempt, at, args;

-- name: applied
SELECT seq, tool, name, key, attempt, at, args FROM applied WHERE account = ? ORDER BY rowid;

-- name: of_key
SELECT seq, tool, name, key, attempt, at, args FROM applied WHERE account = ? AND tool = ? AND key = ? ORDER BY rowid;

-- name: of_name
SELECT seq, tool, name, key, attempt, at, args FROM applied
WHERE account = ? AND kind = ? AND tool = ? AND name = ? AND at <= ? ORDER BY rowid;

-- name: add_met
INSERT INTO met (account, what, toxic, at) VALUES (?, ?, ?, ?);

-- name: met
SELECT what, toxic FROM met WHERE account = ? ORDER BY seq;

-- name: met_so_far
SELECT count(*) FROM met WHERE account = ? AND what = ?;
