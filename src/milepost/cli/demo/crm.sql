-- name: schema
-- What the desk notes about each ticket. The table lies in the store of the runs, so that a note and the record of it are
-- one transaction. Nothing here is unique on purpose: a note that was made twice would show as two rows.
CREATE TABLE IF NOT EXISTS crm_notes (ticket TEXT NOT NULL, action TEXT NOT NULL) STRICT;

-- name: add_note
INSERT INTO crm_notes (ticket, action) VALUES (?, ?);

-- name: is_there
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'crm_notes';

-- name: all_notes
SELECT ticket, action FROM crm_notes ORDER BY rowid;
