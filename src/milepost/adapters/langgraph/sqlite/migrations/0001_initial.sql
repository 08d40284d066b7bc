-- Threads of LangGraph. Text is compared byte by byte, so that the ids of checkpoints, which rise with time, sort.

-- Who writes a thread. `version` rises with every write, so that whoever read before one knows it.
CREATE TABLE milepost_langgraph_threads ( -- authoritative
    thread  TEXT NOT NULL PRIMARY KEY,
    writer  TEXT NOT NULL,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- `root` names the chunk in which the checkpoint's value begins; `run` is LangGraph's own id of the invocation.
CREATE TABLE milepost_langgraph_checkpoints ( -- authoritative
    thread   TEXT NOT NULL,
    ns       TEXT NOT NULL,
    id       TEXT NOT NULL,
    parent   TEXT,
    run      TEXT,
    root     TEXT NOT NULL,
    metadata BLOB NOT NULL,
    PRIMARY KEY (thread, ns, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX milepost_langgraph_runs ON milepost_langgraph_checkpoints (run) WHERE run IS NOT NULL;

-- What finished tasks wrote behind a checkpoint; position is below 0 for what LangGraph notes of a task itself.
CREATE TABLE milepost_langgraph_writes ( -- authoritative
    thread     TEXT NOT NULL,
    ns         TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    path       TEXT NOT NULL,
    task       TEXT NOT NULL,
    position   INTEGER NOT NULL,
    channel    TEXT NOT NULL,
    root       TEXT NOT NULL,
    PRIMARY KEY (thread, ns, checkpoint, task, position)
) STRICT, WITHOUT ROWID;

-- Values, split by content: what two checkpoints of a thread have in common is here once.
CREATE TABLE milepost_langgraph_chunks ( -- authoritative
    thread TEXT NOT NULL,
    name   TEXT NOT NULL,
    body   BLOB NOT NULL,
    PRIMARY KEY (thread, name)
) STRICT, WITHOUT ROWID;
