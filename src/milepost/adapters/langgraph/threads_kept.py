"""What the tables of LangGraph's threads hold, and how values are put together from chunks and taken apart again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from milepost.core import chunks
from milepost.errors import Damaged
from milepost.stores.encryption import reveal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from milepost.adapters.langgraph.values import Values
    from milepost.stores.encryption import Cipher
    from milepost.stores.tables import Rows

SOME = 500  # how many chunks are asked for at once


class Place(NamedTuple):
    """A thread, and the namespace of a graph inside it."""

    thread: str
    ns: str


class Row(NamedTuple):
    """One checkpoint as it is stored."""

    thread: str
    ns: str
    id: str
    parent: str | None
    root: str
    metadata: bytes


class Split(NamedTuple):
    """A value in chunks: the digest of the first, and the bodies of all by digest."""

    root: str
    bodies: dict[str, bytes]


class Kept:
    """Reads and writes the rows; every method that takes `rows` works inside its caller's transaction."""

    def __init__(self, values: Values, cipher: Cipher | None) -> None:
        self._values = values
        self._cipher = cipher

    # ------------------------------------------------------------ values

    def split(self, value: Any) -> Split:
        """Take a value apart. Raises UnknownType."""
        return Split(*chunks.split(self._values.write(value)))

    def store(self, rows: Rows, thread: str, bodies: dict[str, bytes]) -> None:
        """Write the chunks that the thread does not have yet. The thread's row has to be held, or they may be swept."""
        names = {self._name(thread, digest): digest for digest in bodies}
        for (name,) in rows.run("stored", thread, msgspec.json.encode([*names]).decode()):
            del names[name]
        new = [(thread, name, self._hide(thread, digest, bodies[digest])) for name, digest in names.items()]
        rows.each("put_chunk", new)

    def values(self, rows: Rows, thread: str, roots: Sequence[str], known: dict[str, bytes]) -> list[Any]:
        """Put values together; `known` keeps the chunks that were read. Raises Damaged, UnknownType."""
        self._read(rows, thread, roots, known)
        return [self._values.read(chunks.join(root, lambda name: known[f"{thread}/{name}"])) for root in roots]

    def _read(self, rows: Rows, thread: str, roots: Iterable[str], known: dict[str, bytes]) -> set[str]:
        """Read chunks and all that they refer to, a level at a time; return the digests."""
        wanted, seen = set(roots), set[str]()
        while wanted:
            seen |= wanted
            new = [name for name in wanted if f"{thread}/{name}" not in known]
            for begin in range(0, len(new), SOME):
                self._fetch(rows, thread, new[begin : begin + SOME], known)
            wanted = {to for name in wanted for to in chunks.references(known[f"{thread}/{name}"])} - seen
        return seen

    def _fetch(self, rows: Rows, thread: str, names: list[str], known: dict[str, bytes]) -> None:
        stored = {name: digest for digest in names for name in self._names(thread, digest)}
        missing = set(names)
        for name, body in rows.run("chunks", thread, msgspec.json.encode([*stored]).decode()):
            digest = stored[name]
            missing.discard(digest)
            plain = reveal(self._cipher, thread, f"chunk {digest}", bytes(body))
            if chunks.digest_of(plain) != digest:
                raise Damaged(thread, f"chunk {digest[:12]} is not what it was")
            known[f"{thread}/{digest}"] = plain
        if missing:
            raise Damaged(thread, f"chunk {min(missing)[:12]} is missing")

    def _name(self, thread: str, digest: str) -> str:
        return digest if self._cipher is None else self._cipher.chunk_name(thread, digest)

    def _names(self, thread: str, digest: str) -> set[str]:
        """Return the names that a chunk may have: its own, where it is from before the store was encrypted."""
        return {digest, self._name(thread, digest)}

    def _hide(self, thread: str, digest: str, body: bytes) -> bytes:
        return body if self._cipher is None else self._cipher.seal(thread, f"chunk {digest}", body)

    def sealed(self, place: Place, metadata: Any) -> bytes:
        """Return metadata as it is stored."""
        written = self._values.write(metadata)
        return written if self._cipher is None else self._cipher.seal(place.thread, "metadata", written)

    def metadata(self, row: Row) -> Any:
        """Return the metadata of a checkpoint."""
        return self._values.read(reveal(self._cipher, row.thread, "metadata", bytes(row.metadata)))

    # ------------------------------------------------------------ deleting and copying

    def delete(self, thread: str, rows: Rows) -> None:
        """Delete all of a thread."""
        rows.run("hold", thread)
        for statement in ("delete_thread_checkpoints", "delete_thread_writes", "delete_thread_chunks", "delete_thread"):
            rows.run(statement, thread)

    def delete_runs(self, rows: Rows, runs: Sequence[str]) -> None:
        """Delete the checkpoints of invocations."""
        found = sorted({place for run in runs for place in rows.run("of_run", run)})
        for thread in sorted({thread for thread, *_ in found}):
            rows.run("hold", thread)
        for thread, ns, id_ in found:
            self._drop(rows, thread, ns, id_)
        for thread in sorted({thread for thread, *_ in found}):
            self._sweep(rows, thread)

    def prune(self, thread: str, rows: Rows) -> None:
        """Keep the latest checkpoint of each namespace, and what it is made from."""
        if not rows.run("hold", thread):
            return  # nobody has written to it: who begins just now loses nothing
        kept: dict[str, set[str]] = {}
        for ns, id_ in rows.run("ids", thread):
            if ns not in kept:
                kept[ns] = self._lineage(rows, thread, ns, id_)
            if id_ not in kept[ns]:
                self._drop(rows, thread, ns, id_)
        self._sweep(rows, thread)

    def _lineage(self, rows: Rows, thread: str, ns: str, latest: str) -> set[str]:
        """Return a checkpoint's id, and those back to where each channel that it holds as changes has its value."""
        kept: set[str] = set()
        at: str | None = latest
        lacking: set[str] | None = None
        while at is not None and (found := rows.run("checkpoint", thread, ns, at)):
            row = Row(*found[0])
            kept.add(at)
            (checkpoint,) = self.values(rows, thread, [row.root], {})
            if lacking is None:
                counted = self.metadata(row).get("counters_since_delta_snapshot") or {}
                lacking = {channel for channel, since in counted.items() if any(since)}
            lacking -= set(checkpoint["channel_values"])
            at = row.parent if lacking else None
        return kept

    def _drop(self, rows: Rows, thread: str, ns: str, id_: str) -> None:
        rows.run("delete_checkpoint", thread, ns, id_)
        rows.run("delete_writes", thread, ns, id_)

    def _sweep(self, rows: Rows, thread: str) -> None:
        """Delete the chunks that nothing refers to any more."""
        used = self._read(rows, thread, (root for (root,) in rows.run("roots", thread)), {})
        names = {name for digest in used for name in self._names(thread, digest)}
        rows.each("delete_chunk", [(thread, name) for (name,) in rows.run("names", thread) if name not in names])

    def copy(self, rows: Rows, source: str, target: str, saver: str) -> None:
        """Copy all of a thread; the copy is nobody's yet, and may be taken by who reads it."""
        for thread in sorted((source, target)):
            rows.run("hold", thread)
        checkpoints = rows.run("thread_checkpoints", source)
        if not checkpoints or source == target:
            return
        self.delete(target, rows)
        rows.run("begin_thread", target)
        rows.run("take_thread", target, f"{saver}.")
        known: dict[str, bytes] = {}
        digests = self._read(rows, source, (root for (root,) in rows.run("roots", source)), known)
        self.store(rows, target, {digest: known[f"{source}/{digest}"] for digest in digests})
        place = Place(target, "")
        for ns, id_, parent, run, root, metadata in checkpoints:
            noted = self.sealed(place, self.metadata(Row(source, ns, id_, parent, root, metadata)))
            rows.run("put", target, ns, id_, parent, run, root, noted)
        rows.each("put_write", [(target, *write) for write in rows.run("thread_writes", source)])
