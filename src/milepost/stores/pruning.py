"""Pruning runs, taking runs in, and counting seals: what is done to a store rather than to a run, in a transaction.

A run is pruned whole or not at all, beside its tombstone, and with an entry in the store's own journal. What stays of
it: the tombstone, and the business identities that it claimed. An identity whose recorded result stands in a chunk of
the run takes that chunk's bytes along, or whoever asks for it later would find nothing.

A run that is taken in brings its bytes as they were stored. Its numbers and rows are given here anew; its hashes are
not, so it verifies from the genesis of the store that it was begun in, which `mp_imports` remembers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from milepost.core.chain import genesis, link
from milepost.core.queues import DEFAULT
from milepost.errors import Damaged, Refused
from milepost.stores.api import Throw
from milepost.stores.encryption import reveal, shown
from milepost.stores.keeping import Leaf, MarkSeal, Prunable, Prune, RunCopy, Standing, TakeIn, TakenIn, Tombstone

if TYPE_CHECKING:
    from milepost.stores.statements import Statements
    from milepost.stores.writing import Batch

SEQUENCE = "seal_sequence"
ROW = (
    "id", "workflow", "version", "attached", "key", "digest", "status", "reason", "until", "ask", "why", "parent",
    "principal", "tenant", "tags", "created_at", "changed_at", "queue", "priority", "grp",
)  # fmt: skip
ONCE = ("tenant", "tool", "value", "step", "digest", "outcome", "result")
APPROVAL = ("id", "step", "path", "tool", "args", "asked_at", "verdict", "by")
EFFECT = ("step", "outcome", "path", "tool", "effect", "attempt", "started_at", "why", "person")
_REFERENCE = b'{"$ref":"'
OF_A_RUN = ("entries", "chunks", "inbox", "effects", "events", "import", "reserved", "overspent", "head", "run")


# ---------------------------------------------------------------- reading


def standing(sql: Statements, store_id: str) -> Standing:
    """Return where every chain ends, what was pruned, and the number of the last seal, as of one instant."""
    with sql.instant():
        leaves = [Leaf(*row) for row in sql.run("leaves")]
        gone = [Tombstone(*row) for row in sql.run("tombstones")]
        return Standing(store_id, leaves, gone, _sequence(sql))


def prunable(sql: Statements, before: int, workflow: str | None, limit: int) -> list[Prunable]:
    """Return runs that ended before a moment, oldest first, each with what keeps it."""
    return [Prunable(*row) for row in sql.run("prunable", before, workflow, None, limit)]


def copy(sql: Statements, store_id: str, run: int, run_id: str) -> RunCopy:
    """Return a whole run as it stands. Raises Damaged where its chain cannot be read to its beginning."""
    with sql.instant():
        found = sql.run("head_of", run)
        if not found:
            raise Damaged(run_id, "it has no head")
        epoch, row, seq, digest, boundary, segment = found[0]
        entries = sql.run("whole_chain", row)
        at = sql.run("boundary_seq", boundary)
        if not at or not entries:
            raise Damaged(run_id, "its latest boundary is missing")
        origin = sql.run("origin_of", run)
        return RunCopy(
            run_id,
            origin[0][0] if origin else store_id,
            _named(ROW, sql.run("copy_row", run))[0],
            seq,
            digest,
            epoch,
            segment,
            at[0][0],
            [body for _, body, _ in entries],
            dict(sql.run("copy_chunks", run)),
            _named(ONCE, sql.run("copy_once", run)),
            _named(APPROVAL, sql.run("copy_approvals", run)),
            _named(EFFECT, sql.run("copy_effects", run)),
        )


# ---------------------------------------------------------------- operations


def mark(batch: Batch, operation: MarkSeal) -> int:
    """Count one seal more, in the store's own journal."""
    number = max(_sequence(batch.sql), operation.above) + 1
    batch.sql.do("put_meta", SEQUENCE, str(number))
    batch.system_entry(operation.entry(number), operation.at)
    return number


def prune(batch: Batch, operation: Prune) -> list[Tombstone]:
    """Delete runs beside their tombstones. Raises UnknownRun, and Refused where one of them has to stay."""
    sql = batch.sql
    runs = [batch.run_number(run_id) for run_id in operation.run_ids]
    stones = []
    for run, run_id in zip(runs, operation.run_ids, strict=True):
        found = sql.run("prunable", None, None, run_id, 1)
        kept = found[0][5] if found else "it has not ended"
        if kept:
            raise Refused(f"run {run_id} cannot be pruned: {kept}. Look with: milepost show {run_id}")
        _keep_results(batch, run, run_id)
        sql.do("insert_tombstone", operation.at, operation.by, operation.why, run)
        stone = Tombstone(*sql.run("tombstone_of", run)[0])
        stone = replace(stone, digest=shown(batch.cipher, run_id, "digest", stone.digest) or "")
        batch.system_entry(operation.entry(stone), operation.at)
        stones.append(stone)
    numbers = "[" + ",".join(map(str, runs)) + "]"
    sql.do("delete_approvals", numbers)
    for run in runs:
        for name in OF_A_RUN:
            sql.do(f"delete_{name}", run)
        batch.moved.pop(run, None)
    return stones


def _keep_results(batch: Batch, run: int, run_id: str) -> None:
    sql, cipher = batch.sql, batch.cipher
    for tenant, tool, value, stored in sql.run("once_results", run):
        result = reveal(cipher, "", value, bytes(stored))
        if not result.startswith(_REFERENCE):
            continue
        digest = result[len(_REFERENCE) : -2].decode()
        body = sql.run("chunk_of", run, digest)
        if cipher is not None:
            name = cipher.chunk_name(run_id, digest)
            hidden = sql.run("chunk_of", run, name)
            body = [(cipher.seal("", value, cipher.open(run_id, f"chunk {name}", row[0])),) for row in hidden] or body
        if body:
            sql.do("put_once_result", body[0][0], tenant, tool, value)


def take_in(batch: Batch, operation: TakeIn) -> TakenIn:
    """Take a run in, or find that it is here already. Raises Refused."""
    sql, given = batch.sql, operation.copy
    here = sql.run("run_number", given.run_id)
    if here:
        head = sql.run("head_of", here[0][0])
        found = sql.run("hash_at", head[0][1], given.seq) if head else []
        if not found or bytes(found[0][0]) != given.hash:
            raise Refused(
                f"run {given.run_id} is here with another chain. Compare with: milepost journal {given.run_id}"
            )
        return TakenIn(given.run_id, fresh=False)
    _refuse_strangers(sql, given)
    run = cast("int", sql.run("next_run")[0][0])
    row, taken = given.row, given.row["status"] if operation.stop is None else "blocked"
    asked = (None, row["ask"], row["why"]) if operation.stop is None else ("person", operation.ask, operation.why)
    made = (
        run, given.run_id, row["workflow"], row["version"], row["attached"], row["key"], row["digest"], taken, *asked,
        row["parent"], row["principal"], row["tenant"], row["tags"], row["created_at"], operation.at,
        row.get("queue", DEFAULT), row.get("priority", 0), row.get("grp"),
    )  # fmt: skip
    sql.do("take_in_run", *made)
    origin = (run, given.origin, operation.bundle, operation.signer, operation.at, operation.by)
    sql.do("take_in_import", *origin)
    _take_entries(batch, run, operation)
    if given.chunks:
        sql.many("insert_chunk", [(run, name, body) for name, body in given.chunks.items()])
    held = _take_rows(sql, run, given)
    for unit, amount in operation.overspent.items():
        sql.do("put_overspent", run, unit, f"{amount:f}")
    if operation.holds:
        batch.stops.throw(Throw(operation.at, holds=operation.holds))
    batch.system_entry(operation.told, operation.at)
    return TakenIn(given.run_id, fresh=True, held=held)


def refuse_pruned(sql: Statements, run_id: str, key: tuple[int, str] | None) -> None:
    """Raise Refused where a run of this id or key was pruned: what it did would be done once more."""
    gone = sql.run("pruned_of", run_id) or (sql.run("pruned_key", *key) if key else [])
    if gone:
        named = f"key {key[1]!r} is that of" if key and gone[0][0] != run_id else "this is"
        raise Refused(f"{named} run {gone[0][0]}, which ended and was pruned by {gone[0][1]}. Use another key.")


def _refuse_strangers(sql: Statements, given: RunCopy) -> None:
    key = None if given.row["key"] is None else (cast("int", given.row["attached"]), cast("str", given.row["key"]))
    refuse_pruned(sql, given.run_id, key)
    other = sql.run("run_by_key", *key) if key else []
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
    batch.sql.many("insert_entry", rows)
    epoch = given.epoch if operation.stop is None else given.epoch + 1
    head = (run, epoch, previous, len(bodies), digest, boundary, given.segment, operation.at)
    batch.sql.do("insert_head", *head)
    batch.used_rows(len(bodies))


def _take_rows(sql: Statements, run: int, given: RunCopy) -> list[tuple[str, str, str]]:
    """Write what stands beside the entries; return the identities that somebody else holds here."""
    held = []
    for once in given.once:
        claim = (*(once[name] for name in ONCE[:3]), run, *(once[name] for name in ONCE[3:]))
        if not sql.changed("take_in_once", *claim):
            held.append((str(once["tenant"]), str(once["tool"]), str(once["value"])))
    for approval in given.approvals:
        shown = (approval["id"], run, *(approval[name] for name in APPROVAL[1:]))
        sql.do("take_in_approval", *shown)
    for effect in given.effects:
        lost = {**effect, "outcome": "unknown"} if effect["outcome"] == "started" else effect
        sql.many("put_effect", [(run, *(lost[name] for name in EFFECT))])
    return held


def _sequence(sql: Statements) -> int:
    found = sql.run("get_meta", SEQUENCE)
    return int(found[0][0]) if found else 0


def _named(names: tuple[str, ...], rows: list[Any]) -> list[dict[str, object]]:
    return [dict(zip(names, row, strict=True)) for row in rows]
