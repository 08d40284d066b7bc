-- name: schema
-- What the payment service has been asked for, and what it has done. `applied` is the truth of the outside world:
-- one row, one movement of money. `key` is null for vouchers, which this service cannot deduplicate.
CREATE TABLE IF NOT EXISTS requests (
    seq        INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,
    order_id   TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    arrived_ms INTEGER NOT NULL,
    fault      TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS requests_by_order ON requests (kind, order_id);
CREATE TABLE IF NOT EXISTS applied (
    seq        INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,
    key        TEXT UNIQUE,
    body_hash  TEXT NOT NULL,
    order_id   TEXT NOT NULL,
    cents      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    arrived_ms INTEGER NOT NULL,
    applied_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS applied_by_order ON applied (kind, order_id);

-- name: attempts_so_far
SELECT count(*) FROM requests WHERE kind = ? AND order_id = ?;

-- name: add_request
INSERT INTO requests (kind, order_id, attempt, arrived_ms, fault) VALUES (?, ?, ?, ?, ?);

-- name: find_key
SELECT kind, seq, order_id, cents, attempt, applied_ms, key, body_hash FROM applied WHERE key = ?;

-- name: apply
INSERT INTO applied (kind, key, body_hash, order_id, cents, attempt, arrived_ms, applied_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
RETURNING kind, seq, order_id, cents, attempt, applied_ms, key, body_hash;

-- name: find_order
SELECT kind, seq, order_id, cents, attempt, applied_ms, key, body_hash FROM applied
WHERE kind = ? AND order_id = ? AND applied_ms <= ? ORDER BY seq;

-- name: all_applied
SELECT kind, seq, order_id, cents, attempt, applied_ms, key, body_hash FROM applied ORDER BY seq;

-- name: faults_met
SELECT fault, count(*) FROM requests GROUP BY fault ORDER BY fault;
