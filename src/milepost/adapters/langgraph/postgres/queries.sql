-- Statements of LangGraph's checkpoints.

-- Who writes a thread, and how often it was written to.
-- name: held
SELECT writer, version FROM milepost_langgraph_threads WHERE thread = $1;

-- The same, held until the transaction ends; a thread that is not there yet is nobody's.
-- name: hold
SELECT writer, version FROM milepost_langgraph_threads WHERE thread = $1 FOR UPDATE;

-- name: begin_thread
INSERT INTO milepost_langgraph_threads (thread, writer, version) VALUES ($1, '', 0) ON CONFLICT DO NOTHING;

-- name: take_thread
UPDATE milepost_langgraph_threads SET writer = $2, version = version + 1 WHERE thread = $1;

-- A checkpoint that is saved again is as it was saved last.
-- name: put
INSERT INTO milepost_langgraph_checkpoints (thread, ns, id, parent, run, root, metadata)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (thread, ns, id) DO UPDATE SET
    parent = excluded.parent, run = excluded.run, root = excluded.root, metadata = excluded.metadata;

-- name: put_chunk
INSERT INTO milepost_langgraph_chunks (thread, name, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- What a task has written stays as it was written first.
-- name: put_write
INSERT INTO milepost_langgraph_writes (thread, ns, checkpoint, path, task, position, channel, root)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING;

-- What LangGraph notes of a task is as it was noted last.
-- name: put_note
INSERT INTO milepost_langgraph_writes (thread, ns, checkpoint, path, task, position, channel, root)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (thread, ns, checkpoint, task, position) DO UPDATE SET
    path = excluded.path, channel = excluded.channel, root = excluded.root;

-- name: checkpoint
SELECT thread, ns, id, parent, root, metadata FROM milepost_langgraph_checkpoints
WHERE thread = $1 AND ns = $2 AND id = $3;

-- name: latest
SELECT thread, ns, id, parent, root, metadata FROM milepost_langgraph_checkpoints
WHERE thread = $1 AND ns = $2
ORDER BY id DESC LIMIT 1;

-- Of one thread, newest first, what is behind a place. Where an argument is null it selects nothing.
-- name: listed
SELECT thread, ns, id, parent, root, metadata FROM milepost_langgraph_checkpoints
WHERE thread = $1 AND ($2::text IS NULL OR ns = $2::text) AND ($3::text IS NULL OR id = $3::text)
    AND ($4::text IS NULL OR id < $4::text) AND ($5::text IS NULL OR (id, thread, ns) < ($5::text, $6::text, $7::text))
ORDER BY id DESC, thread DESC, ns DESC LIMIT $8;

-- The same of all threads.
-- name: listed_everywhere
SELECT thread, ns, id, parent, root, metadata FROM milepost_langgraph_checkpoints
WHERE $1::text IS NULL AND ($2::text IS NULL OR ns = $2::text) AND ($3::text IS NULL OR id = $3::text)
    AND ($4::text IS NULL OR id < $4::text) AND ($5::text IS NULL OR (id, thread, ns) < ($5::text, $6::text, $7::text))
ORDER BY id DESC, thread DESC, ns DESC LIMIT $8;

-- name: writes
SELECT task, channel, root FROM milepost_langgraph_writes WHERE thread = $1 AND ns = $2 AND checkpoint = $3
ORDER BY path, task, position;

-- name: chunks
SELECT name, body FROM milepost_langgraph_chunks
WHERE thread = $1 AND name IN (SELECT json_array_elements_text($2::text::json));

-- name: stored
SELECT name FROM milepost_langgraph_chunks
WHERE thread = $1 AND name IN (SELECT json_array_elements_text($2::text::json));

-- Where every value of a thread begins.
-- name: roots
SELECT root FROM milepost_langgraph_checkpoints WHERE thread = $1
UNION SELECT root FROM milepost_langgraph_writes WHERE thread = $1;

-- name: names
SELECT name FROM milepost_langgraph_chunks WHERE thread = $1;

-- name: delete_chunk
DELETE FROM milepost_langgraph_chunks WHERE thread = $1 AND name = $2;

-- name: of_run
SELECT thread, ns, id FROM milepost_langgraph_checkpoints WHERE run = $1;

-- name: ids
SELECT ns, id FROM milepost_langgraph_checkpoints WHERE thread = $1 ORDER BY ns, id DESC;

-- name: delete_checkpoint
DELETE FROM milepost_langgraph_checkpoints WHERE thread = $1 AND ns = $2 AND id = $3;

-- name: delete_writes
DELETE FROM milepost_langgraph_writes WHERE thread = $1 AND ns = $2 AND checkpoint = $3;

-- name: delete_thread_checkpoints
DELETE FROM milepost_langgraph_checkpoints WHERE thread = $1;

-- name: delete_thread_writes
DELETE FROM milepost_langgraph_writes WHERE thread = $1;

-- name: delete_thread_chunks
DELETE FROM milepost_langgraph_chunks WHERE thread = $1;

-- name: delete_thread
DELETE FROM milepost_langgraph_threads WHERE thread = $1;

-- name: thread_checkpoints
SELECT ns, id, parent, run, root, metadata FROM milepost_langgraph_checkpoints WHERE thread = $1 ORDER BY id;

-- name: thread_writes
SELECT ns, checkpoint, path, task, position, channel, root FROM milepost_langgraph_writes WHERE thread = $1;
