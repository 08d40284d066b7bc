-- Threads of LangGraph. Text is compared byte by byte, so that the ids of checkpoints, which rise with time, sort.

-- Who writes a thread. `version` rises with every write, so that whoever read before one knows it.
CREATE TABLE milepost_langgraph_threads ( -- authoritative
    thread  text COLLATE "C" PRIMARY KEY,
    writer  text NOT NULL,
    version bigint NOT NULL
);

-- `root` names the chunk in which the checkpoint's value begins; `run` is LangGraph's own id of the invocation.
CREATE TABLE milepost_langgraph_checkpoints ( -- authoritative
    thread   text COLLATE "C" NOT NULL,
    ns       text COLLATE "C" NOT NULL,
    id       text COLLATE "C" NOT NULL,
    parent   text,
    run      text,
    root     text NOT NULL,
    metadata bytea NOT NULL,
    PRIMARY KEY (thread, ns, id)
);

CREATE INDEX milepost_langgraph_runs ON milepost_langgraph_checkpoints (run) WHERE run IS NOT NULL;

-- What finished tasks wrote behind a checkpoint; position is below 0 for what LangGraph notes of a task itself.
CREATE TABLE milepost_langgraph_writes ( -- authoritative
    thread     text COLLATE "C" NOT NULL,
    ns         text COLLATE "C" NOT NULL,
    checkpoint text COLLATE "C" NOT NULL,
    path       text COLLATE "C" NOT NULL,
    task       text COLLATE "C" NOT NULL,
    position   integer NOT NULL,
    channel    text NOT NULL,
    root       text NOT NULL,
    PRIMARY KEY (thread, ns, checkpoint, task, position)
);

-- Values, split by content: what two checkpoints of a thread have in common is here once.
CREATE TABLE milepost_langgraph_chunks ( -- authoritative
    thread text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    body   bytea NOT NULL,
    PRIMARY KEY (thread, name)
);
