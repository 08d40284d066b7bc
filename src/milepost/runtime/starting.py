"""How a run comes to be, and how its end is read: for callers outside and for parents."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.authority import Granted
from milepost.core.budget import Amounts
from milepost.core.chunks import digest_of, join, split
from milepost.core.manifest import Manifest, Part, Promises
from milepost.core.queues import DEFAULT, Place
from milepost.core.state import fold
from milepost.core.tracing import trace_of
from milepost.definitions.workflows import Workflow
from milepost.errors import Damaged
from milepost.stores.api import NewRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milepost.definitions.tools import Tool
    from milepost.runtime.engine import Engine

INLINE_BYTES = 1_024
_json = msgspec.json.Encoder(order="deterministic")


def manifest_of(workflow: Workflow[Any, Any] | None, tools: Mapping[str, Tool[..., Any]], policy: str = "") -> Manifest:
    """Return the versions and fingerprints of what runs today; `policy` is the version of the policy in force."""
    listed = {name: (tool.version, tool.fingerprint[:16]) for name, tool in sorted(tools.items())}
    if workflow is None:
        return Manifest(tools=listed, policy=policy)
    prompts: dict[str, Part | str] = {
        name: (prompt.version, prompt.fingerprint[:16]) for name, prompt in sorted(workflow.prompts.items())
    }
    return Manifest(
        workflow=workflow.name,
        version=workflow.version,
        fingerprint=workflow.fingerprint[:16],
        tools=listed,
        prompts=prompts,
        segments={name: segment.fingerprint[:16] for name, segment in workflow.segments.items()},
        states={name: segment.state.fingerprint[:16] for name, segment in workflow.segments.items()},
        models=dict(sorted(workflow.models.items())),
        policy=policy,
    )


def promises_of(workflow: Workflow[Any, Any] | None, tools: Mapping[str, Tool[..., Any]]) -> Promises:
    """Return what today's code says about older versions of itself."""
    stands_in = {name: tool.compatible_with for name, tool in tools.items() if tool.compatible_with}
    if workflow is None:
        return Promises(tools=stands_in)
    return Promises(workflow.compatible_with, workflow.migration_paths(), stands_in)


def place_state(data: bytes) -> tuple[msgspec.Raw, str | None, dict[str, bytes]]:
    """Return how a state stands in a boundary: in place, or as the root of a tree of chunks."""
    if len(data) <= INLINE_BYTES:
        return msgspec.Raw(data), None, {}
    root, chunks = split(data)
    return e.NOTHING, root, chunks


def new_run(
    engine: Engine,
    workflow: Workflow[Any, Any] | None,
    data: bytes,
    *,
    run_id: str,
    key: str | None,
    authority: Granted,
    budget: Amounts | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: int | None = None,
    parent: str | None = None,
    parent_step: str | None = None,
    parent_epoch: int | None = None,
    heard: tuple[str, ...] = (),
    place: Place | None = None,
) -> NewRun:
    """Return a run to be created: its first entry holds its first boundary. Without a workflow it is attached."""
    now = engine.clock.now()
    name, version = (workflow.name, workflow.version) if workflow is not None else ("", "")
    stands = place or Place(DEFAULT if workflow is None else workflow.queue)
    state, root, chunks = place_state(data)
    about = e.About(
        workflow=name,
        version=version,
        key=key,
        input=state,
        input_root=root,
        authority=authority,
        tags=dict(tags or {}),
        deadline=deadline,
        parent=parent,
        parent_step=parent_step,
        attached=workflow is None,
        created_at=now,
        place=stands,
    )
    segment = workflow.first.name if workflow is not None else None
    about_digest = put_chunk(chunks, _json.encode(about))
    manifest = put_chunk(chunks, engine.manifest_bytes(workflow))
    boundary = e.Boundary(about_digest, manifest, 0, segment, state, root, granted=dict(budget or {}), heard=heard)
    return NewRun(
        id=run_id,
        workflow=name,
        version=version,
        digest=sha256(name.encode() + b"\0" + data).hexdigest(),
        entry=codec.encode(e.RunCreated(at=now, run=run_id, boundary=boundary, trace=trace_of(run_id))),
        segment=segment,
        at=now,
        due=None if workflow is None else stands.begins_at or now,
        key=key,
        attached=workflow is None,
        parent=parent,
        parent_epoch=parent_epoch,
        principal=authority.principal,
        tenant=authority.tenant,
        tags=_json.encode(dict(tags or {})).decode(),
        place=stands,
        chunks=chunks,
    )


def put_chunk(chunks: dict[str, bytes], data: bytes) -> str:
    """Add a chunk and return its digest."""
    digest = digest_of(data)
    chunks[digest] = data
    return digest


async def ended(engine: Engine, run_id: str) -> msgspec.Raw:
    """Return the result of a run that is done, as it stands in its record; null for any other."""
    tail = await engine.store.tail(run_id)
    last = codec.decode(tail.entries[-1].plain)
    for stored in reversed(tail.entries):
        last = codec.decode(stored.plain)
        if isinstance(last, e.RunDone):
            return last.result
    return msgspec.Raw(b"null")


async def value_of(engine: Engine, run_id: str, raw: msgspec.Raw | None) -> bytes:
    """Return the bytes of a value that may stand by reference in the record of another run."""
    data = b"null" if raw is None else bytes(raw)
    if not data.startswith(b'{"$ref":"'):
        return data
    return await engine.verified_chunk(run_id, data[len(b'{"$ref":"') : -2].decode())


async def state_bytes(engine: Engine, run_id: str, raw: msgspec.Raw, root: str | None) -> tuple[bytes, set[str]]:
    """Return a boundary's state and the chunks it is made of. Raises Damaged for a chunk that does not verify."""
    if root is None:
        return bytes(raw) or b"null", set()
    wanted, got = [root], {}
    from_chunks = engine.references
    while wanted:
        digest = wanted.pop()
        if digest not in got:
            got[digest] = await engine.verified_chunk(run_id, digest)
            wanted.extend(from_chunks(got[digest]))
    return join(root, got.__getitem__), set(got)


async def result_bytes(engine: Engine, run_id: str) -> bytes:
    """Return the bytes of a run's result. Raises Damaged where the run says it is done and no result is recorded."""
    tail = await engine.store.tail(run_id)
    engine.verify_tail(tail)
    state = fold(run_id, (codec.decode(stored.plain) for stored in tail.entries))
    if state.status != "done":
        raise Damaged(run_id, f"its row says done, its record says {state.status}")
    return await value_of(engine, run_id, state.result)
