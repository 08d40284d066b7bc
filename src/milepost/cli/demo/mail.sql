-- name: schema
-- Every mail that the server took responsibility for. `dropped` says that it then hung up without saying so.
CREATE TABLE IF NOT EXISTS mails (
    seq         INTEGER PRIMARY KEY,
    ticket      TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    recipient   TEXT NOT NULL,
    subject     TEXT NOT NULL,
    received_ms INTEGER NOT NULL,
    dropped     INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS mails_by_ticket ON mails (ticket);

-- name: received_so_far
SELECT count(*) FROM mails WHERE ticket = ?;

-- name: add_mail
INSERT INTO mails (ticket, message_id, recipient, subject, received_ms, dropped) VALUES (?, ?, ?, ?, ?, ?);

-- name: all_mails
SELECT seq, ticket, message_id, recipient, subject, dropped FROM mails ORDER BY seq;
