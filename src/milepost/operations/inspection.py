"""The one read API: what every surface shows of runs comes from here, and nothing else reads the store for display."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import chunks, codec
from milepost.core import entries as e
from milepost.core.chain import verify
from milepost.core.chunks import digest_of
from milepost.core.history import undoing
from milepost.core.manifest import Manifest
from milepost.core.state import RunState, fold
from milepost.core.steps import ChildWait, Effect, Read, Receive, Sleep
from milepost.errors import Damaged, MilepostError
from milepost.stores.api import Query
from milepost.stores.encryption import KeyMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from milepost.stores.api import ApprovalRow, OpenEffect, RunRow, Store, Switch
    from milepost.stores.fleet import WorkerRow

CHILDREN_SHOWN = 200


@dataclass(frozen=True, slots=True)
class EffectView:
    """One effect as the record has it. `started_at` is in milliseconds since 1970.

    `external` is the outside system's own id, if the tool noted one; `evidence` what was found out about an unknown
    outcome, oldest first.
    """

    run_id: str
    step: str
    path: str
    tool: str
    effect: str
    outcome: str
    attempt: int
    started_at: int | None
    why: str
    person: str
    key: str
    args: Any
    external: str | None
    by: str
    evidence: list[str]
    result: Any = None


@dataclass(frozen=True, slots=True)
class StepView:
    """One call of a tool in a visit, an effect or a read: its outcome, and whether a person or a rule `denied` it."""

    step: str
    path: str
    tool: str
    outcome: str
    why: str
    denied: bool
    result: Any


@dataclass(frozen=True, slots=True)
class Visit:
    """The latest visit of a segment: the state that it was entered with, what it called, and whether it was left."""

    segment: str
    state: Any
    steps: list[StepView]
    left: bool


@dataclass(frozen=True, slots=True)
class Pending:
    """Something that a run has begun and not finished; `until` (milliseconds since 1970) is when it looks again."""

    what: str
    until: int | None = None


@dataclass(frozen=True, slots=True)
class RunDetail:
    """Everything the record says of a run now: stage, finished work, pending work, unresolved outcomes.

    `visits` counts how often each segment was left, `finished` holds the steps of the last one, `effects` and `pending`
    are of the current one. `changes` is what differed in code that went on since the boundary, `refused` the manifest
    of the code that may not. `goes_back_to` is the visit of the boundary that a rewind is on its way to.
    """

    row: RunRow
    about: e.About
    manifest: dict[str, Any]
    state: Any
    stage: str | None
    visits: dict[str, int]
    finished: list[tuple[str, str]]
    effects: list[EffectView]
    pending: list[Pending]
    approvals: list[ApprovalRow]
    scopes: tuple[str, ...]
    granted: dict[str, str]
    spent: dict[str, str]
    reserved: dict[str, str]
    children: dict[str, str]
    cancel: tuple[str, str] | None
    result: Any
    overspent: dict[str, str] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    refused: dict[str, Any] | None = None
    goes_back_to: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One journal entry as people read it. `at` is in milliseconds since 1970."""

    seq: int
    at: int
    name: str
    fields: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of checking one run: how many entries and chunks were read, and what is wrong, if anything.

    `hidden` names the key without which its chain alone could be checked, and not what it says.
    """

    run_id: str
    entries: int
    chunks: int
    damage: str | None
    seq: int | None = None
    hidden: str = ""


class Inspector:
    """Reads one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def runs(self, query: Query) -> list[RunRow]:
        """Return the runs that fit, newest first."""
        return await self._store.runs(query)

    async def counts(self) -> dict[str, int]:
        """Return how many runs there are by status."""
        return await self._store.counts()

    async def id(self, prefix: str) -> str:
        """Return the run id that a prefix means. Raises UnknownRun."""
        return await self._store.resolve_id(prefix)

    async def journal(self, run_id: str) -> list[Line]:
        """Return a run's entries, verified. Raises UnknownRun, Damaged."""
        genesis, stored, head = await self._store.chain(run_id)
        verify(run_id, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
        lines = []
        for one in stored:
            entry = codec.decode(one.plain)
            fields = msgspec.json.decode(one.plain)
            fields.pop("entry")
            lines.append(Line(one.seq, fields.pop("at"), codec.name_of(entry), fields, one.hash.hex()))
        return lines

    async def entries(self, run_id: str, after: int = 0) -> list[tuple[int, e.Entry]]:
        """Return what was appended to a run's record behind the entry number `after`, as (number, entry), oldest first.

        For those who follow a run: each asks for what it has not seen. Raises UnknownRun, MalformedEntry.
        """
        return [(one.seq, codec.decode(one.plain)) for one in await self._store.after(run_id, after)]

    async def begun_with(self, run_id: str, boundary: e.Boundary) -> tuple[e.About, Manifest]:
        """Return what is true of a run, and the versions, as of one of its boundaries. Raises Damaged."""
        about = msgspec.json.decode(await self._chunk(run_id, boundary.about), type=e.About)
        return about, msgspec.json.decode(await self._chunk(run_id, boundary.manifest), type=Manifest)

    async def detail(self, run_id: str) -> RunDetail:
        """Return all that the record says of a run now. Raises UnknownRun, Damaged."""
        row = await self._store.run(run_id)
        state, evidence = await self._state(run_id)
        about = msgspec.json.decode(await self._chunk(run_id, state.about_digest), type=e.About)
        manifest = msgspec.json.decode(await self._chunk(run_id, state.manifest_digest))
        own = [approval for id_ in state.approvals for approval in await self._store.approvals(id_)]
        result = None if state.result is None else msgspec.json.decode(await self._value(run_id, state.result))
        reserved: dict[str, Any] = {}
        for cost in state.ledger.reserved.values():
            for unit, amount in cost.items():
                reserved[unit] = reserved.get(unit, 0) + amount
        return RunDetail(
            row=row,
            about=about,
            manifest=manifest,
            state=msgspec.json.decode(await self._state_bytes(run_id, state)),
            stage=state.segment,
            visits=dict(state.visits),
            finished=[(marker.path, marker.outcome) for marker in state.finished],
            effects=[await self._effect(run_id, effect, evidence.get(effect.step, [])) for effect in state.effects()],
            pending=[] if state.ended else list(_pending(state)),
            approvals=own,
            scopes=state.held(about.authority).scopes,
            granted=_text(state.ledger.granted),
            spent=_text(state.ledger.spent),
            reserved=_text(reserved),
            overspent=_text(state.overspent),
            children={**state.children, **dict(await self._store.children(run_id, CHILDREN_SHOWN))},
            cancel=state.cancel,
            result=result,
            changes=state.code_changes,
            refused=msgspec.json.decode(await self._chunk(run_id, refused))
            if (refused := state.refused_digest)
            else None,
            goes_back_to=None if state.rewind is None else state.rewind.to,
        )

    async def changes(self, run_id: str) -> tuple[str, ...]:
        """Return what differed in the code that went on with a run since its boundary. Raises UnknownRun, Damaged."""
        return (await self._state(run_id))[0].code_changes

    async def open_effects(self, run_id: str | None = None) -> list[OpenEffect]:
        """Return the effects that are not settled, of one run or of all."""
        return await self._store.effects(run_id)

    async def effects(self, run_id: str) -> list[EffectView]:
        """Return every effect of a run from its whole journal, in the order in which they were recorded."""
        genesis, stored, head = await self._store.chain(run_id)
        verify(run_id, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
        seen: dict[tuple[int, int, str], tuple[Effect, list[str]]] = {}
        evidence: dict[str, list[str]] = {}
        state = RunState(run_id)
        for one in stored:
            entry = codec.decode(one.plain)
            visit = state.visit
            state.apply(entry)
            evidence = evidence if state.visit == visit else {}
            _note(entry, evidence)
            effect = state.steps.get(getattr(entry, "step", ""))
            if type(effect) is Effect:
                found = evidence.setdefault(effect.step, [])
                seen[state.visit, state.generation, effect.step] = (effect, found)
        undone = {step: effect.path for (_, _, step), (effect, _) in seen.items() if effect.outcome == "confirmed"}
        for (visit, _, step), (effect, found) in seen.items():
            if effect.outcome == "confirmed" and undoing(visit, step) in undone:
                found.append(f"undone by {undone[undoing(visit, step)]}")
        return [await self._effect(run_id, effect, found) for effect, found in seen.values()]

    async def approvals(self, verdict: str | None = None) -> list[ApprovalRow]:
        """Return approvals, oldest first."""
        return await self._store.approvals("", verdict)

    async def switches(self) -> list[Switch]:
        """Return what is stopped now."""
        return await self._store.switches()

    async def workers(self) -> list[WorkerRow]:
        """Return every worker that was ever enlisted."""
        return await self._store.workers()

    async def verify(self, run_id: str) -> Verified:
        """Check a run's whole chain, every entry and every chunk that its boundaries name."""
        read, count = set[str](), 0
        try:
            genesis, stored, head = await self._store.chain(run_id)
            bodies = ((one.seq, one.body, one.hash) for one in stored)
            count = verify(run_id, genesis, 1, bodies, head.hash)
            state = RunState(run_id)
            for one in stored:
                entry = codec.decode(one.plain)
                state.apply(entry)
                if isinstance(entry, e.BOUNDARIES):
                    await self._read_chunks(run_id, entry.boundary, read)
                elif manifest := getattr(entry, "manifest", ""):
                    await self._chunk(run_id, manifest)
                    read.add(manifest)
            row = await self._store.run(run_id)
            if state.status in {"done", "failed", "cancelled", "killed"} and row.status != state.status:
                why = f"its row says {row.status}, its record says {state.status}"
                return Verified(run_id, count, len(read), why)
        except KeyMissing as error:
            return Verified(run_id, count, 0, None, hidden=error.key_id)
        except Damaged as error:
            return Verified(run_id, count, len(read), str(error), error.seq)
        except MilepostError as error:
            return Verified(run_id, count, len(read), str(error))
        except (KeyError, AssertionError, IndexError) as error:
            return Verified(run_id, count, len(read), f"its entries do not follow from each other ({error!r})")
        return Verified(run_id, count, len(read), None)

    async def _read_chunks(self, run_id: str, boundary: e.Boundary, read: set[str]) -> None:
        wanted = [boundary.about, boundary.manifest, *filter(None, (boundary.state_root, boundary.finished_root))]
        tree = set(wanted[2:])
        while wanted:
            digest = wanted.pop()
            if digest in read:
                continue
            data = await self._chunk(run_id, digest)
            read.add(digest)
            if digest in tree:
                below = chunks.references(data)
                tree.update(below)
                wanted.extend(below)

    async def record(self, run_id: str) -> tuple[RunState, list[e.Entry]]:
        """Return a run as its verified record says it is, and the entries since its boundary. Raises Damaged."""
        tail = await self._store.tail(run_id)
        bodies = ((one.seq, one.body, one.hash) for one in tail.entries)
        verify(run_id, tail.before, tail.entries[0].seq, bodies, tail.head.hash)
        entries: list[e.Entry] = [codec.decode(one.plain) for one in tail.entries]
        return fold(run_id, entries), entries

    async def visit(self, run_id: str, segment: str) -> Visit | None:
        """Return the latest visit of a segment, also where the run has left it or ended; None before the first.

        Reads the whole journal, verified. Raises UnknownRun, Damaged.
        """
        genesis, stored, head = await self._store.chain(run_id)
        verify(run_id, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
        state = RunState(run_id)
        entered: tuple[msgspec.Raw, str | None] | None = None
        steps: dict[str, Effect | Read] = {}
        for one in stored:
            entry = codec.decode(one.plain)
            if isinstance(entry, e.BOUNDARIES) and state.segment == segment:
                steps = _calls(state)
            state.apply(entry)
            if isinstance(entry, e.BOUNDARIES) and entry.boundary.segment == segment:
                entered, steps = (entry.boundary.state, entry.boundary.state_root), {}
        steps = _calls(state) if state.segment == segment else steps
        if entered is None:
            return None
        raw, root = entered
        data = await self._joined(run_id, root) if root is not None else bytes(raw)
        views = [await self._step(run_id, id_, step) for id_, step in steps.items()]
        return Visit(segment, msgspec.json.decode(data), views, state.segment != segment)

    async def _step(self, run_id: str, id_: str, step: Effect | Read) -> StepView:
        result = None if step.result is None else msgspec.json.decode(await self._value(run_id, step.result))
        if isinstance(step, Effect):
            denied = step.outcome == "failed" and step.reason == "denied"
            return StepView(id_, step.path, step.tool, step.outcome, step.why, denied, result)
        outcome = {"returned": "confirmed", "failed": "failed"}.get(step.status, "not_started")
        return StepView(id_, step.path, step.tool, outcome, step.why, step.status == "failed" and bool(step.by), result)

    async def _state(self, run_id: str) -> tuple[RunState, dict[str, list[str]]]:
        """Return a run as its record says it is, and by step what was found out about its effects."""
        state, entries = await self.record(run_id)
        evidence: dict[str, list[str]] = {}
        for entry in entries:
            _note(entry, evidence)
        return state, evidence

    async def _state_bytes(self, run_id: str, state: RunState) -> bytes:
        if state.state_root is None:
            return bytes(state.state) or b"null"
        return await self._joined(run_id, state.state_root)

    async def _joined(self, run_id: str, root: str) -> bytes:
        got: dict[str, bytes] = {}
        wanted = [root]
        while wanted:
            digest = wanted.pop()
            if digest not in got:
                got[digest] = await self._chunk(run_id, digest)
                wanted.extend(chunks.references(got[digest]))
        return chunks.join(root, got.__getitem__)

    async def _value(self, run_id: str, raw: msgspec.Raw) -> bytes:
        data = bytes(raw)
        if not data.startswith(b'{"$ref":"'):
            return data
        return await self._chunk(run_id, data[len(b'{"$ref":"') : -2].decode())

    async def _chunk(self, run_id: str, digest: str) -> bytes:
        data = await self._store.chunk(run_id, digest)
        if digest_of(data) != digest:
            raise Damaged(run_id, f"chunk {digest[:12]} does not match its digest")
        return data

    async def _effect(self, run_id: str, effect: Effect, evidence: list[str]) -> EffectView:
        result = None if effect.result is None else msgspec.json.decode(await self._value(run_id, effect.result))
        started = effect.doubt.attempts[0].started_at if effect.doubt.attempts else None
        return EffectView(
            run_id,
            effect.step,
            effect.path,
            effect.tool,
            effect.effect,
            effect.outcome,
            effect.attempt,
            started,
            effect.why,
            effect.doubt.person,
            effect.key,
            msgspec.json.decode(await self._value(run_id, effect.args)),
            effect.external,
            effect.by,
            evidence,
            result,
        )


def _note(entry: e.Entry, evidence: dict[str, list[str]]) -> None:
    """Add what an entry says about an unknown outcome."""
    if isinstance(entry, e.EffectUnknown):
        text = f"attempt {entry.attempt}: {entry.why}"
    elif isinstance(entry, e.FindingRecorded):
        text = f"{entry.by}: {entry.answer.replace('_', ' ')}" + (f" ({entry.evidence})" if entry.evidence else "")
    elif isinstance(entry, e.AttemptSettled):
        text = f"attempt {entry.attempt}: {entry.reason.replace('_', ' ')}" + (f" ({entry.why})" if entry.why else "")
    elif isinstance(entry, e.Contradicted):
        text = f"contradicted by {entry.by}: {entry.evidence}"
    else:
        return
    evidence.setdefault(entry.step, []).append(text)


def _calls(state: RunState) -> dict[str, Effect | Read]:
    return {id_: step for id_, step in state.steps.items() if isinstance(step, Effect | Read)}


def _pending(state: RunState) -> Iterator[Pending]:
    for step in state.steps.values():
        match step:
            case Effect(outcome="not_started"):
                yield Pending(f"effect {step.path}, not started")
            case Effect(outcome="failed", final=False):
                yield Pending(f"effect {step.path}, to be tried again", step.retry_at)
            case Read(status="retrying"):
                yield Pending(f"read {step.path}, to be tried again", step.retry_at)
            case Sleep(ended=False):
                yield Pending("a sleep", step.until)
            case Receive(taken=False):
                yield Pending(f"signal {step.name!r}", step.until)
            case ChildWait() if step.child not in state.child_results:
                yield Pending(f"child {step.child}")
            case _:
                continue


def _text(amounts: dict[str, Any]) -> dict[str, str]:
    return {unit: f"{amount:f}" for unit, amount in amounts.items()}
