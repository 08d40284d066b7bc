-- What an append changes in mp_reserved, mp_spent and mp_approvals may stand beside its last entry at first, whose page is
-- written anyway, and is written to these tables later, many at once. Labels as in 0001.

-- A projection, as they are: no link of the chain covers it. It goes with its entry.
ALTER TABLE mp_journal ADD COLUMN note TEXT;

-- The first entry whose note the tables do not have yet. No row: they have them all.
CREATE TABLE mp_behind ( -- projection
    one INTEGER PRIMARY KEY CHECK (one = 1),
    row INTEGER NOT NULL
) STRICT;

-- Who does not know of notes (a process that opened this file before they were there) must not count without them.
CREATE TRIGGER mp_reserved_not_behind BEFORE INSERT ON mp_reserved WHEN EXISTS (SELECT 1 FROM mp_behind)
BEGIN SELECT RAISE(ABORT, 'mp_reserved is behind the journal: it has to catch up first'); END;

CREATE TRIGGER mp_spent_not_behind BEFORE INSERT ON mp_spent WHEN EXISTS (SELECT 1 FROM mp_behind)
BEGIN SELECT RAISE(ABORT, 'mp_spent is behind the journal: it has to catch up first'); END;
