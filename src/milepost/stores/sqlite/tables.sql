-- What a surface's own tables need of the store.

-- name: make_tables
CREATE TABLE IF NOT EXISTS milepost_tables ( -- authoritative
    owner    TEXT NOT NULL,
    number   INTEGER NOT NULL,
    name     TEXT NOT NULL,
    checksum TEXT NOT NULL,
    PRIMARY KEY (owner, number)
) STRICT, WITHOUT ROWID;

-- name: has_tables
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'milepost_tables';

-- name: tables_applied
SELECT number, name, checksum FROM milepost_tables WHERE owner = ?1 ORDER BY number;

-- name: note_tables
INSERT INTO milepost_tables (owner, number, name, checksum) VALUES (?1, ?2, ?3, ?4);

-- name: encrypted
SELECT value FROM mp_meta WHERE name = 'encryption';
