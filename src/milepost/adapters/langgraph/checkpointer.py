"""A checkpointer of LangGraph on a Milepost store: a SQLite file, or a PostgreSQL database.

Each save is one transaction that is durable when it returns. Values are split by content, so that a list which grows is
not stored again at every step. Two that write one thread are told apart (`fencing`), and values that could not be read
back are refused when they are saved (`values`).

The asynchronous methods hand the same work to a thread of their own, in the order in which they were called; what was
handed over is done, also where the caller is cancelled meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)

from milepost.adapters.langgraph import fencing
from milepost.adapters.langgraph.fencing import KEY, Held, Mark, StaleWriter
from milepost.adapters.langgraph.threads_kept import Kept, Place, Row
from milepost.adapters.langgraph.values import Values
from milepost.opening import open_tables

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig

    from milepost.stores.tables import Rows

T = TypeVar("T")
PACKAGE = "milepost.adapters.langgraph"
PAGE = 50


class Checkpointer(BaseCheckpointSaver[int]):
    """Keeps the threads of graphs in a store: `graph.compile(checkpointer=Checkpointer("sqlite:///milepost.db"))`.

    `store` is the URL of a store, which may be the one that an App has; the tables are made where they are missing.
    `types` are the classes that states may hold beside plain data and messages (see `Values`), and `encryption` the
    key file of an encrypted store. It is opened here, and stays open until `close`, or the end of a `with` block.

    Every method raises StoreError where the store fails; those that write raise StaleWriter where somebody else has
    written to the thread since it was read, and UnknownType for a value that could not be read back.
    """

    serde: Values

    def __init__(
        self, store: str, *, types: Sequence[type] | Mapping[str, type] = (), encryption: Path | None = None
    ) -> None:
        super().__init__(serde=Values(types))
        self._tables = open_tables(store, PACKAGE, encryption=encryption)
        self._kept = Kept(self.serde, self._tables.cipher)
        self._name = secrets.token_hex(8)
        self._thread = ThreadPoolExecutor(1, "milepost-langgraph")

    def close(self) -> None:
        """Close the connection, once what was begun is done."""
        self._thread.shutdown()
        self._tables.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Checkpointer:  # noqa: ARG002
        """Return itself: a class is declared by itself, with `types`, and never by its name alone."""
        return self

    # ------------------------------------------------------------ reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a configuration names, or the latest of its thread; None where there is none."""
        place, id_ = _place(config), get_checkpoint_id(config)

        def work(rows: Rows) -> CheckpointTuple | None:
            held = Held(*(rows.run("held", place.thread) or [()])[0])
            found = rows.run("checkpoint", *place, id_) if id_ else rows.run("latest", *place)
            if not found:
                return None
            mark = None if place.ns and fencing.is_invocation(config["configurable"]) else Mark.of(held, self._name)
            return self._tuple(rows, Row(*found[0]), {}, mark)

        found = self._tables.look(work)
        _remember(config, found)
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return checkpoints, the newest first, a page at a time."""
        given = config["configurable"] if config else {}
        thread, ns = given.get("thread_id"), given.get("checkpoint_ns")
        selected = (None if thread is None else str(thread), ns, given.get("checkpoint_id"))
        until = get_checkpoint_id(before) if before else None
        statement = "listed_everywhere" if thread is None else "listed"
        last: tuple[str | None, ...] = (None, None, None)
        left = limit
        while left is None or left > 0:
            page = self._tables.look(partial(self._page, (statement, *selected, until), last, filter or {}))
            yield from page.tuples[:left]
            left = None if left is None else left - len(page.tuples)
            if page.last is None:
                return
            last = page.last

    def _page(
        self, question: tuple[Any, ...], behind: tuple[str | None, ...], wanted: Mapping[str, Any], rows: Rows
    ) -> _Page:
        statement, *args = question
        found = [Row(*row) for row in rows.run(statement, *args, *behind, PAGE)]
        known: dict[str, bytes] = {}
        tuples = []
        for row in found:
            metadata = self._kept.metadata(row)
            if all(name in metadata and metadata[name] == value for name, value in wanted.items()):
                tuples.append(self._tuple(rows, row, known, None))
        last = (found[-1].id, found[-1].thread, found[-1].ns) if len(found) == PAGE else None
        return _Page(tuples, last)

    def _tuple(self, rows: Rows, row: Row, known: dict[str, bytes], mark: Mark | None) -> CheckpointTuple:
        metadata = self._kept.metadata(row)  # first: it says whether there is a key for the rest
        writes = rows.run("writes", row.thread, row.ns, row.id)
        checkpoint, *values = self._kept.values(rows, row.thread, [row.root, *(root for *_, root in writes)], known)
        pending = [(task, channel, value) for (task, channel, _), value in zip(writes, values, strict=True)]
        marked = {KEY: mark.text()} if mark else {}
        parent = None if row.parent is None else _config(row, row.parent, marked)
        return CheckpointTuple(_config(row, row.id, marked), checkpoint, metadata, parent, pending)

    # ------------------------------------------------------------ writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002  what is new is seen by its content
    ) -> RunnableConfig:
        """Save a checkpoint, durably, and return the configuration that names it."""
        place, parent = _place(config), get_checkpoint_id(config)
        noted = get_serializable_checkpoint_metadata(config, metadata)
        value = self._kept.split(checkpoint)
        run = noted.get("run_id")
        row = Row(place.thread, place.ns, checkpoint["id"], parent, value.root, self._kept.sealed(place, noted))

        def work(rows: Rows) -> None:
            self._take(rows, config, place)
            self._kept.store(rows, place.thread, value.bodies)
            rows.run(
                "put", row.thread, row.ns, row.id, parent, None if run is None else str(run), row.root, row.metadata
            )

        self._tables.do(work)
        marked = {KEY: config["configurable"][KEY]} if KEY in config["configurable"] else {}
        return _config(row, row.id, marked)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task has written, durably. What is there stays, but for what LangGraph notes of a task."""
        place = _place(config)
        checkpoint = str(config["configurable"]["checkpoint_id"])
        split = [self._kept.split(value) for _, value in writes]
        of: dict[str, list[tuple[Any, ...]]] = {"put_write": [], "put_note": []}
        for position, ((channel, _), value) in enumerate(zip(writes, split, strict=True)):
            at = WRITES_IDX_MAP.get(channel, position)
            row = (*place, checkpoint, task_path, task_id, at, channel, value.root)
            of["put_note" if channel in WRITES_IDX_MAP else "put_write"].append(row)

        def work(rows: Rows) -> None:
            self._take(rows, config, place)
            self._kept.store(rows, place.thread, {name: body for value in split for name, body in value.bodies.items()})
            for statement, some in of.items():
                rows.each(statement, some)

        self._tables.do(work)

    def _take(self, rows: Rows, config: RunnableConfig, place: Place) -> None:
        """Write the thread's row as who this is. Raises StaleWriter."""
        mark = Mark.read(config["configurable"].get(KEY))
        rows.run("begin_thread", place.thread)
        held = Held(*rows.run("hold", place.thread)[0])
        inside = fencing.around(place.thread)
        writer = fencing.writer_of(held, mark, self._name, inside=inside, nested=bool(place.ns))
        if not writer:
            raise StaleWriter(place.thread)
        rows.run("take_thread", place.thread, writer)

    # ------------------------------------------------------------ deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread. Whoever still writes to it is stale."""
        self._tables.do(partial(self._kept.delete, str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that invocations with these ids made, and what was written behind them."""
        self._tables.do(lambda rows: self._kept.delete_runs(rows, [str(run) for run in run_ids]))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread to another one, which is replaced. Nothing happens where there is no source."""
        self._tables.do(lambda rows: self._kept.copy(rows, str(source_thread_id), str(target_thread_id), self._name))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace (`keep_latest`), or nothing (`delete`).

        Where the latest holds a channel only as its changes (a DeltaChannel), the checkpoints back to the one with the
        channel's value stay, too. Raises ValueError for another strategy.
        """
        if strategy not in {"keep_latest", "delete"}:
            msg = f"strategy {strategy!r}: it is 'keep_latest' or 'delete'"
            raise ValueError(msg)
        clear = self._kept.prune if strategy == "keep_latest" else self._kept.delete
        for thread in map(str, thread_ids):
            self._tables.do(partial(clear, thread))

    # ------------------------------------------------------------ the same, asynchronously

    async def _soon(self, work: Callable[[], T]) -> T:
        """Do it on the thread of this checkpointer, to its end."""
        context = copy_context()
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, context.run, work))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return what `get_tuple` does."""
        found = await self._soon(lambda: self.get_tuple(config))
        _remember(config, found)  # in the context of the caller, too
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Return what `list` does."""
        pages = self.list(config, filter=filter, before=before, limit=limit)
        while (found := await self._soon(lambda: next(pages, None))) is not None:
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do what `put` does."""
        return await self._soon(lambda: self.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Do what `put_writes` does."""
        await self._soon(lambda: self.put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Do what `delete_thread` does."""
        await self._soon(lambda: self.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do what `delete_for_runs` does."""
        await self._soon(lambda: self.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do what `copy_thread` does."""
        await self._soon(lambda: self.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do what `prune` does."""
        await self._soon(lambda: self.prune(thread_ids, strategy=strategy))


class _Page:
    """Checkpoints that fit, and the place that the next page begins behind; None where this is the last."""

    def __init__(self, tuples: Sequence[CheckpointTuple], last: tuple[str, str, str] | None) -> None:
        self.tuples = tuples
        self.last = last


def _place(config: RunnableConfig) -> Place:
    given = config["configurable"]
    return Place(str(given["thread_id"]), given.get("checkpoint_ns", ""))


def _config(row: Row, id_: str, marked: Mapping[str, str]) -> RunnableConfig:
    return {"configurable": {"thread_id": row.thread, "checkpoint_ns": row.ns, "checkpoint_id": id_, **marked}}


def _remember(config: RunnableConfig, found: CheckpointTuple | None) -> None:
    """Let graphs inside the one that reads here know by which mark it writes."""
    mark = None if found is None else Mark.read(found.config["configurable"].get(KEY))
    if mark is not None and fencing.is_invocation(config["configurable"]):
        fencing.remember(_place(config).thread, mark)
