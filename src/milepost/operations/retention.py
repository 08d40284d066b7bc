"""Pruning: runs that ended long ago are deleted, each beside its tombstone, a few at a time.

What stays: the tombstone (id, last hash, digest, who, when, why), an entry in the store's own journal, and the business
identities that the run claimed, with their outcome. So no later run does again what a pruned one did, and neither its
id nor its key starts anything. What stays behind for another reason is said: a run whose effects are open, whose family
has not ended, that a worker holds, or for which messages wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from milepost.core import codec
from milepost.core.store_entries import RunPruned
from milepost.errors import Refused
from milepost.stores.keeping import Prunable, Prune

if TYPE_CHECKING:
    from milepost.stores.api import Store
    from milepost.stores.keeping import Tombstone

AT_ONCE = 50
Write = Callable[[Any], Awaitable[Any]]
EVERY = 2**31 - 1  # of them


@dataclass(slots=True)
class Pruned:
    """What was pruned (or would be), and what had to stay, with why."""

    runs: list[Prunable] = field(default_factory=list)
    kept: list[Prunable] = field(default_factory=list)


async def prune(
    store: Store,
    write: Write,
    *,
    before: int,
    now: int,
    by: str,
    why: str,
    workflow: str | None = None,
    dry: bool = False,
) -> Pruned:
    """Delete the runs that ended before a moment. Moments are milliseconds since 1970. `dry` only looks.

    Some runs at a time are one transaction, so that no writer waits for long; each run goes whole or stays whole.
    """
    found = await store.prunable(before, workflow, EVERY)
    pruned = Pruned([one for one in found if not one.kept], [one for one in found if one.kept])
    if dry:
        return pruned

    def entry(stone: Tombstone) -> bytes:
        told = RunPruned(
            at=now,
            run=stone.run_id,
            workflow=stone.workflow,
            seq=stone.seq,
            hash=stone.hash.hex(),
            digest=stone.digest,
            status=stone.status,
            by=by,
            why=why,
        )
        return codec.encode(told)

    gone, wanted = [], pruned.runs
    for first in range(0, len(wanted), AT_ONCE):
        some = wanted[first : first + AT_ONCE]
        try:
            await write(Prune([one.run_id for one in some], now, by, why, entry))
            gone += some
        except Refused:  # one of them moved since it was looked at: the others do not wait for it
            for one in some:
                try:
                    await write(Prune([one.run_id], now, by, why, entry))
                    gone.append(one)
                except Refused:
                    continue
    moved = {one.run_id for one in wanted} - {one.run_id for one in gone}
    pruned.kept += [one for one in wanted if one.run_id in moved]
    pruned.runs = gone
    return pruned
