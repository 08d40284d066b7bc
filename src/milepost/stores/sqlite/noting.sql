-- Notes beside entries, and the tables that catch up with them: see stores/noting.py.

-- name: insert_noting
INSERT INTO mp_journal (row, run, seq, previous, body, hash, note) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: fall_behind
INSERT INTO mp_behind (one, row) VALUES (1, ?);

-- name: caught_up
DELETE FROM mp_behind;

-- name: notes
SELECT run, note FROM mp_journal WHERE row >= ? AND note IS NOT NULL ORDER BY row;

-- name: notes_of_runs
SELECT r.id, j.note FROM mp_journal j JOIN mp_runs r USING (run)
WHERE j.row >= (SELECT row FROM mp_behind) AND j.note IS NOT NULL ORDER BY j.row;
