"""Back to an earlier boundary, or on from one as another run: what can be said of either by the record alone.

A rewind is a message: the run's worker undoes and writes, under all gates. A fork is a new run, written here at once.
It carries what had happened at its boundary: the state, what had finished, the versions it was made with. It carries
nothing that permits: no money, no approval, no scope, no signal that waits. Those are given anew by whoever forks. The
tenant is no permission but the room in which identities (`once=`) count; so it stays, and what the origin claimed
stays claimed.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import chunks, codec
from milepost.core import entries as e
from milepost.core import history as core
from milepost.core import messages as m
from milepost.core.authority import Authority
from milepost.core.budget import amounts
from milepost.core.chain import verify
from milepost.core.chunks import digest_of
from milepost.core.tracing import trace_of
from milepost.errors import Damaged, InvalidValue, NotReversible, StartConflict, UnknownBoundary
from milepost.stores.api import Create, Created, Deliver, NewRun, Post

if TYPE_CHECKING:
    from milepost.core.history import History, Stage
    from milepost.stores.api import Store

Write = Callable[[Any], Awaitable[Any]]
_json = msgspec.json.Encoder(order="deterministic")
_about = msgspec.json.Decoder(e.About)


@dataclass(frozen=True, slots=True)
class Back:
    """What the record says of a way back: the boundary, what was done since, newest first, what forbids it."""

    run_id: str
    boundary: str
    visit: int
    since: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Forked:
    """A fork: its id, whether this call made it, where it goes on, and what the origin did since, which may recur."""

    run_id: str
    fresh: bool
    origin: str
    boundary: str
    since: list[str]


async def history_of(store: Store, run_id: str) -> History:
    """Return the whole of a run, verified. Raises UnknownRun, Damaged."""
    before, stored, head = await store.chain(run_id)
    verify(run_id, before, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
    return core.read(run_id, (codec.decode(one.plain) for one in stored))


def boundary_of(history: History, named: str) -> Stage:
    """Return the boundary of this name or number. Raises UnknownBoundary."""
    found = history.find(named)
    if found is None:
        raise UnknownBoundary(history.state.run, named, [stage.name for stage in history.standing()])
    return found


async def look_back(store: Store, run_id: str, to: str) -> Back:
    """Return what the record says of a way back to a boundary. Raises UnknownRun, UnknownBoundary, Damaged."""
    history = await history_of(store, run_id)
    target = boundary_of(history, to)
    driven = (await store.run(run_id)).owner is not None
    since = [effect.path for _, effect in history.since(target)]
    return Back(run_id, target.name, target.visit, since, core.refused(history, target, driven=driven))


async def rewind(store: Store, write: Write, now: int, run_id: str, *, to: str, by: str, why: str) -> Back:
    """Ask a run to go back to a boundary; its worker does it, or refuses with an entry that says why.

    Raises NotReversible where the record alone forbids it, UnknownRun, UnknownBoundary, Damaged.
    """
    run_id = await store.resolve_id(run_id)
    back = await look_back(store, run_id, to)
    if back.refused:
        raise NotReversible(run_id, back.boundary, back.refused)
    message = m.Rewind(at=now, by=by, to=back.visit, why=why)
    await write(Deliver(Post(run_id, f"rewind:{uuid.uuid4().hex}", m.encode(message), now)))
    return back


async def refusal(store: Store, run_id: str, after: int) -> str | None:
    """Return why a run refused a rewind in an entry after number `after`, None where it did not."""
    for stored in await store.after(run_id, after):
        entry = codec.decode(stored.plain)
        if isinstance(entry, e.MessageRefused) and entry.kind == "rewind":
            return entry.why
    return None


async def fork(
    store: Store,
    write: Write,
    now: int,
    run_id: str,
    *,
    at: str | None,
    by: str,
    why: str,
    authority: Authority,
    budget: Mapping[str, Decimal | int] | None = None,
    key: str | None = None,
    deadline: int | None = None,
) -> Forked:
    """Make a new run that goes on from a boundary of another one, by default from its latest.

    With a `key`, the same fork twice is one run. Raises NotReversible for a boundary that nobody may go on from,
    UnknownRun, UnknownBoundary, Damaged, InvalidValue for a budget that is no amount, StartConflict.
    """
    run_id = await store.resolve_id(run_id)
    history = await history_of(store, run_id)
    target = _latest(history) if at is None else boundary_of(history, at)
    kept: dict[str, bytes] = {}
    about = _about.decode(await _kept(store, run_id, target.boundary.about, {}))
    reasons = core.unsound(history, target)
    if about.attached and key is None:
        reasons.append("a host finds its run by the key: say under which one it goes on")
    if reasons:
        raise NotReversible(run_id, target.name, reasons)
    for root in (about.input_root, target.boundary.state_root, target.boundary.finished_root):
        await _keep_tree(store, run_id, root, kept)
    await _kept(store, run_id, target.boundary.manifest, kept)
    for marker in target.boundary.finished:
        if bytes(marker.output).startswith(b'{"$ref":"'):
            await _kept(store, run_id, msgspec.json.decode(marker.output)["$ref"], kept)
    told = _told(run_id, about, target, now, key, authority, deadline)
    new = _new(history.state.run, told, target, kept, _amounts(budget), now, by, why)
    created: Created = await write(Create(new))
    if (created.workflow, created.digest) != (new.workflow, new.digest):
        raise StartConflict(key or "", created.id, "which is another run, or another fork")
    open_ = [effect for effect in history.state.effects() if effect.open and effect.effect != "read"]
    done = [effect for stage, effect in history.since(target) if effect.by != "once"]
    since = [f"{effect.path} ({effect.outcome})" for effect in [*open_, *done]]
    return Forked(created.id, created.fresh, run_id, target.name, since)


def _latest(history: History) -> Stage:
    return [stage for stage in history.standing() if not stage.ended][-1]


def _told(
    origin: str,
    about: e.About,
    target: Stage,
    now: int,
    key: str | None,
    authority: Authority,
    deadline: int | None,
) -> e.About:
    """Return what is true of the fork: the workflow and its input are the origin's, all that permits is given anew."""
    granted = msgspec.structs.replace(authority.granted(now), tenant=about.authority.tenant)
    return msgspec.structs.replace(
        about,
        key=key,
        authority=granted,
        deadline=deadline,
        parent=None,
        parent_step=None,
        created_at=now,
        forked_from=origin,
        forked_at=target.visit,
    )


def _new(
    origin: str,
    about: e.About,
    target: Stage,
    kept: dict[str, bytes],
    budget: dict[str, Decimal],
    now: int,
    by: str,
    why: str,
) -> NewRun:
    data = _json.encode(about)
    kept[digest_of(data)] = data
    boundary = msgspec.structs.replace(
        target.boundary,
        about=digest_of(data),
        granted=budget,
        spent={},
        overspent={},
        words=(),
        signals=(),
        cancel=None,
        epoch=0,
        owner="",
    )
    fork_id = uuid.uuid4().hex[:20]
    same = sha256(f"fork\0{origin}\0{target.seq}\0{about.workflow}".encode()).hexdigest()
    return NewRun(
        id=fork_id,
        workflow=about.workflow,
        version=about.version,
        digest=same,
        entry=codec.encode(
            e.RunCreated(at=now, run=fork_id, boundary=boundary, by=by, why=why, trace=trace_of(fork_id))
        ),
        segment=boundary.segment,
        at=now,
        due=None if about.attached else now,
        key=about.key,
        attached=about.attached,
        principal=about.authority.principal,
        tenant=about.authority.tenant,
        tags=_json.encode(about.tags).decode(),
        chunks=kept,
    )


def _amounts(budget: Mapping[str, Decimal | int] | None) -> dict[str, Decimal]:
    try:
        return amounts(budget)
    except ValueError as error:
        what = "budget"
        raise InvalidValue(what, str(error)) from error


async def _keep_tree(store: Store, run_id: str, root: str | None, kept: dict[str, bytes]) -> None:
    wanted: list[str] = [] if root is None else [root]
    while wanted:
        digest = wanted.pop()
        if digest not in kept:
            wanted.extend(chunks.references(await _kept(store, run_id, digest, kept)))


async def _kept(store: Store, run_id: str, digest: str, kept: dict[str, bytes]) -> bytes:
    """Return a chunk whose bytes match its name, and keep it for the fork. Raises Damaged."""
    data = await store.chunk(run_id, digest)
    if digest_of(data) != digest:
        raise Damaged(run_id, f"chunk {digest[:12]} does not match its digest")
    kept[digest] = data
    return data
