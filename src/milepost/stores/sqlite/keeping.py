"""Pruning runs, taking runs in, and counting seals: what is done to a store rather than to a run, in a transaction.

A run is pruned whole or not at all, beside its tombstone, and with an entry in the store's own journal. What stays of
it: the tombstone, and the business identities that it claimed. An identity whose recorded result stands in a chunk of
the run takes that chunk's bytes along, or whoever asks for it later would find nothing.

A run that is taken in brings its bytes as they were stored. Its numbers and rows are given here anew; its hashes are
not, so it verifies from the genesis of the store that it was begun in, which `mp_imports` remembers.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from milepost.core.chain import genesis, link
from milepost.errors import Damaged, Refused
from milepost.stores.encryption import reveal, shown
from milepost.stores.keeping import Leaf, MarkSeal, Prunable, Prune, RunCopy, Standing, TakeIn, TakenIn, Tombstone
from milepost.stores.sqlite.connection import SQL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from milepost.stores.sqlite.writing import Batch

SEQUENCE = "seal_sequence"
ROW = (
    "id", "workflow", "version", "attached", "key", "digest", "status", "reason", "until", "ask", "why", "parent",
    "principal", "tenant", "tags", "created_at", "changed_at",
)  # fmt: skip
ONCE = ("tenant", "tool", "value", "step", "digest", "outcome", "result")
APPROVAL = ("id", "step", "path", "tool", "args", "asked_at", "verdict", "by")
EFFECT = ("step", "outcome", "path", "tool", "effect", "attempt", "started_at", "why", "person")
_REFERENCE = b'{"$ref":"'
OF_A_RUN = ("entries", "chunks", "inbox", "effects", "events", "import", "reserved", "overspent", "head", "run")


# ---------------------------------------------------------------- reading


def standing(connection: apsw.Connection, store_id: str) -> Standing:
    """Return where every chain ends, what was pruned, and the number of the last seal, as of one instant."""
    with _instant(connection):
        leaves = [Leaf(*row) for row in _rows(connection, "leaves")]
        gone = [Tombstone(*row) for row in _rows(connection, "tombstones")]
        return Standing(store_id, leaves, gone, _sequence(connection))


def prunable(connection: apsw.Connection, before: int, workflow: str | None, limit: int) -> list[Prunable]:
    """Return runs that ended before a moment, oldest first, each with what keeps it."""
    return [Prunable(*row) for row in _rows(connection, "prunable", before, workflow, None, limit)]


def copy(connection: apsw.Connection, store_id: str, run: int, run_id: str) -> RunCopy:
    """Return a whole run as it stands. Raises Damaged where its chain cannot be read to its beginning."""
    with _instant(connection):
        found = _rows(connection, "head_of", run)
        if not found:
            raise Damaged(run_id, "it has no head")
        epoch, row, seq, digest, boundary, segment = found[0]
        entries = _rows(connection, "whole_chain", row)
        at = _rows(connection, "boundary_seq", boundary)
        if not at or not entries:
            raise Damaged(run_id, "its latest boundary is missing")
        origin = _rows(connection, "origin_of", run)
        return RunCopy(
            run_id,
            origin[0][0] if origin else store_id,
            _named(ROW, _rows(connection, "copy_row", run))[0],
            seq,
            digest,
            epoch,
            segment,
            at[0][0],
            [body for _, body, _ in entries],
            dict(_rows(connection, "copy_chunks", run)),
            _named(ONCE, _rows(connection, "copy_once", run)),
            _named(APPROVAL, _rows(connection, "copy_approvals", run)),
            _named(EFFECT, _rows(connection, "copy_effects", run)),
        )


# ---------------------------------------------------------------- operations


def mark(batch: Batch, operation: MarkSeal) -> int:
    """Count one seal more, in the store's own journal."""
    number = max(_sequence(batch.connection), operation.above) + 1
    batch.connection.execute(SQL["put_meta"], (SEQUENCE, str(number))).fetchall()
    batch.system_entry(operation.entry(number), operation.at)
    return number


def prune(batch: Batch, operation: Prune) -> list[Tombstone]:
    """Delete runs beside their tombstones. Raises UnknownRun, and Refused where one of them has to stay."""
    connection = batch.connection
    # What is deleted is overwritten in the file, too: whoever asked for it to be gone did not mean "until it is found".
    kept_before = connection.pragma("secure_delete")
    connection.pragma("secure_delete", True)
    try:
        return _prune(batch, operation)
    finally:
        connection.pragma("secure_delete", kept_before)


def _prune(batch: Batch, operation: Prune) -> list[Tombstone]:
    connection = batch.connection
    runs = [batch.run_number(run_id) for run_id in operation.run_ids]
    stones = []
    for run, run_id in zip(runs, operation.run_ids, strict=True):
        found = _rows(connection, "prunable", None, None, run_id, 1)
        kept = found[0][5] if found else "it has not ended"
        if kept:
            raise Refused(f"run {run_id} cannot be pruned: {kept}. Look with: milepost show {run_id}")
        _keep_results(batch, run, run_id)
        connection.execute(SQL["insert_tombstone"], (operation.at, operation.by, operation.why, run)).fetchall()
        stone = Tombstone(*_rows(connection, "tombstone_of", run)[0])
        stone = replace(stone, digest=shown(batch.cipher, run_id, "digest", stone.digest) or "")
        batch.system_entry(operation.entry(stone), operation.at)
        stones.append(stone)
    numbers = "[" + ",".join(map(str, runs)) + "]"
    connection.execute(SQL["delete_approvals"], (numbers,)).fetchall()
    for run in runs:
        for name in OF_A_RUN:
            connection.execute(SQL[f"delete_{name}"], (run,)).fetchall()
        batch.moved.pop(run, None)
    return stones


def _keep_results(batch: Batch, run: int, run_id: str) -> None:
    connection, cipher = batch.connection, batch.cipher
    for tenant, tool, value, stored in _rows(connection, "once_results", run):
        result = reveal(cipher, "", value, bytes(stored))
        if not result.startswith(_REFERENCE):
            continue
        digest = result[len(_REFERENCE) : -2].decode()
        body = _rows(connection, "chunk_of", run, digest)
        if cipher is not None:
            name = cipher.chunk_name(run_id, digest)
            hidden = _rows(connection, "chunk_of", run, name)
            body = [(cipher.seal("", value, cipher.open(run_id, f"chunk {name}", row[0])),) for row in hidden] or body
        if body:
            connection.execute(SQL["put_once_result"], (body[0][0], tenant, tool, value)).fetchall()


def take_in(batch: Batch, operation: TakeIn) -> TakenIn:
    """Take a run in, or find that it is here already. Raises Refused."""
    connection, given = batch.connection, operation.copy
    here = _rows(connection, "run_number", given.run_id)
    if here:
        head = _rows(connection, "head_of", here[0][0])
        found = _rows(connection, "hash_at", head[0][1], given.seq) if head else []
        if not found or bytes(found[0][0]) != given.hash:
            raise Refused(
                f"run {given.run_id} is here with another chain. Compare with: milepost journal {given.run_id}"
            )
        return TakenIn(given.run_id, fresh=False)
    _refuse_strangers(connection, given)
    run = cast("int", _rows(connection, "next_run")[0][0])
    row, taken = given.row, given.row["status"] if operation.stop is None else "blocked"
    asked = (None, row["ask"], row["why"]) if operation.stop is None else ("person", operation.ask, operation.why)
    made = (
        run, given.run_id, row["workflow"], row["version"], row["attached"], row["key"], row["digest"], taken, *asked,
        row["parent"], row["principal"], row["tenant"], row["tags"], row["created_at"], operation.at,
    )  # fmt: skip
    connection.execute(SQL["take_in_run"], made).fetchall()
    origin = (run, given.origin, operation.bundle, operation.signer, operation.at, operation.by)
    connection.execute(SQL["take_in_import"], origin).fetchall()
    _take_entries(batch, run, operation)
    connection.executemany(SQL["insert_chunk"], [(run, name, body) for name, body in given.chunks.items()])
    held = _take_rows(connection, run, given)
    batch.system_entry(operation.told, operation.at)
    return TakenIn(given.run_id, fresh=True, held=held)


def refuse_pruned(connection: apsw.Connection, run_id: str, key: tuple[int, str] | None) -> None:
    """Raise Refused where a run of this id or key was pruned: what it did would be done once more."""
    gone = _rows(connection, "pruned_of", run_id) or (_rows(connection, "pruned_key", *key) if key else [])
    if gone:
        named = f"key {key[1]!r} is that of" if key and gone[0][0] != run_id else "this is"
        raise Refused(f"{named} run {gone[0][0]}, which ended and was pruned by {gone[0][1]}. Use another key.")


def _refuse_strangers(connection: apsw.Connection, given: RunCopy) -> None:
    key = None if given.row["key"] is None else (cast("int", given.row["attached"]), cast("str", given.row["key"]))
    refuse_pruned(connection, given.run_id, key)
    other = _rows(connection, "run_by_key", *key) if key else []
    if other:
        raise Refused(f"run {given.run_id} was started with key {key[1]!r}, which is run {other[0][1]}'s here.")  # type: ignore[index]


def _take_entries(batch: Batch, run: int, operation: TakeIn) -> None:
    given = operation.copy
    bodies = [*given.bodies, *([operation.stop] if operation.stop is not None else [])]
    row, digest = batch.next_row, genesis(given.origin, given.run_id)
    previous: int | None = None
    rows = []
    boundary = row + given.boundary - 1
    for seq, body in enumerate(bodies, start=1):
        digest = link(digest, body)
        rows.append((row, run, seq, previous, body, digest))
        previous, row = row, row + 1
    batch.connection.executemany(SQL["insert_entry"], rows)
    epoch = given.epoch if operation.stop is None else given.epoch + 1
    head = (run, epoch, previous, len(bodies), digest, boundary, given.segment)
    batch.connection.execute(SQL["insert_head"], head).fetchall()
    batch.used_rows(len(bodies))


def _take_rows(connection: apsw.Connection, run: int, given: RunCopy) -> list[tuple[str, str, str]]:
    """Write what stands beside the entries; return the identities that somebody else holds here."""
    held = []
    for once in given.once:
        before = connection.total_changes()
        claim = (*(once[name] for name in ONCE[:3]), run, *(once[name] for name in ONCE[3:]))
        connection.execute(SQL["take_in_once"], claim).fetchall()
        if connection.total_changes() == before:
            held.append((str(once["tenant"]), str(once["tool"]), str(once["value"])))
    for approval in given.approvals:
        shown = (approval["id"], run, *(approval[name] for name in APPROVAL[1:]))
        connection.execute(SQL["take_in_approval"], shown).fetchall()
    for effect in given.effects:
        lost = {**effect, "outcome": "unknown"} if effect["outcome"] == "started" else effect
        connection.execute(SQL["put_effect"], (run, *(lost[name] for name in EFFECT))).fetchall()
    return held


@contextmanager
def _instant(connection: apsw.Connection) -> Iterator[None]:
    """Read what follows as of one instant."""
    connection.execute("SAVEPOINT instant").fetchall()
    try:
        yield
    finally:
        connection.execute("RELEASE instant").fetchall()


def _sequence(connection: apsw.Connection) -> int:
    found = _rows(connection, "get_meta", SEQUENCE)
    return int(found[0][0]) if found else 0


def _rows(connection: apsw.Connection, name: str, *args: Any) -> list[Any]:
    return connection.execute(SQL[name], args).fetchall()


def _named(names: tuple[str, ...], rows: list[Any]) -> list[dict[str, object]]:
    return [dict(zip(names, row, strict=True)) for row in rows]
