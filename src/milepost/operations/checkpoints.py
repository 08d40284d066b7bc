"""What each checkpoint of a run costs: when it was written, how long its segment took, and how many bytes it added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.core import chunks, codec
from milepost.core import entries as e
from milepost.core.chain import verify

if TYPE_CHECKING:
    from milepost.stores.api import Store

BOUNDARIES = (b'{"entry":"run_created.', b'{"entry":"checkpointed.', b'{"entry":"rewound.', b'{"entry":"run_done.')


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """One checkpoint. `at` is in milliseconds since 1970, `took_ms` since the one before.

    `entry_bytes` stand in the journal, `chunk_bytes` were written beside and were not there before; `state_bytes` is
    how large the state is, however little of it is new. `finished` is the segment that ended, `steps` how many steps
    it had, `following` the segment that is entered next.
    """

    seq: int
    at: int
    took_ms: int
    finished: str | None
    steps: int
    following: str | None
    entry_bytes: int
    chunk_bytes: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The latest checkpoints of a run, oldest first, and how many there are in all."""

    count: int
    latest: list[CheckpointView]


async def checkpoints(store: Store, run_id: str, most: int = 10) -> Checkpoints:
    """Return the `most` latest checkpoints of a run, from its verified journal. Raises UnknownRun, Damaged."""
    genesis, stored, head = await store.chain(run_id)
    verify(run_id, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
    found = [one for one in stored if one.plain.startswith(BOUNDARIES)]
    views: list[CheckpointView] = []
    known: set[str] = set()
    before = None
    for one in found[-most - 1 :]:
        entry = codec.decode(one.plain)
        if not isinstance(entry, e.BOUNDARIES):
            continue
        boundary = entry.boundary
        sizes = await _sizes(store, run_id, boundary)
        view = CheckpointView(
            seq=one.seq,
            at=entry.at,
            took_ms=0 if before is None else entry.at - before,
            finished=boundary.finished_segment if one.seq > 1 else None,
            steps=len(boundary.finished),
            following=boundary.segment,
            entry_bytes=len(one.body),
            chunk_bytes=sum(size for digest, size in sizes.items() if digest not in known),
            state_bytes=await _state_bytes(store, run_id, boundary),
        )
        views.append(view)
        known, before = set(sizes), entry.at
    return Checkpoints(len(found), views[-most:])


async def _sizes(store: Store, run_id: str, boundary: e.Boundary) -> dict[str, int]:
    """Return the bytes of every chunk that a boundary rests on, by digest."""
    wanted = [boundary.about, boundary.manifest, *filter(None, (boundary.state_root, boundary.finished_root))]
    trees = set(wanted[2:])
    sizes: dict[str, int] = {}
    while wanted:
        digest = wanted.pop()
        if digest in sizes:
            continue
        data = await store.chunk(run_id, digest)
        sizes[digest] = len(data)
        if digest in trees:
            below = chunks.references(data)
            trees.update(below)
            wanted.extend(below)
    return sizes


async def _state_bytes(store: Store, run_id: str, boundary: e.Boundary) -> int:
    if boundary.state_root is None:
        return len(bytes(boundary.state))
    wanted, got = [boundary.state_root], dict[str, bytes]()
    while wanted:
        digest = wanted.pop()
        if digest not in got:
            got[digest] = await store.chunk(run_id, digest)
            wanted.extend(chunks.references(got[digest]))
    return len(chunks.join(boundary.state_root, got.__getitem__))
