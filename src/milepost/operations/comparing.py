"""Two runs side by side, boundary by boundary, and the first place where they part.

Compared is what a run is made of: the segment that is entered, its state, the steps of the visit (tool, arguments,
outcome, answer), what the visit spent, and in the end the result. Not compared is what differs in any two runs: ids,
keys, moments, recorded times and chance. What a rewind has undone is left out.

A fork has no boundaries before the one that it was made from; it is compared with its origin from there on. Any other
two runs are compared from their beginnings. Steps are matched by their place (branch and index), not by the order in
which they were recorded, which depends on timing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import chunks
from milepost.core import entries as e
from milepost.core.chunks import digest_of
from milepost.core.steps import ChildStart, ChildWait, Effect, Read, Receive, Sleep, Value
from milepost.errors import Damaged
from milepost.operations.history import history_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from milepost.core.history import History, Stage
    from milepost.core.steps import Step
    from milepost.stores.api import Store

LINES_MOST = 20
SHOWN_CHARS = 200
_REFERENCE = b'{"$ref":"'
_about = msgspec.json.Decoder(e.About)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference at a boundary: a sentence, and what stands in either run, as JSON values where there are any."""

    where: str
    said: str
    a: Any = None
    b: Any = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One boundary in both runs, None where a run has none there, and what is different from there to the next."""

    a: str | None
    b: str | None
    state_a: str | None
    state_b: str | None
    differences: list[Difference] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, where their comparison begins, their boundaries, and the first difference in one sentence."""

    a: str
    b: str
    status_a: str
    status_b: str
    begins: str
    boundaries: list[Compared]
    first: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """What is compared of one step. `args` is None where only their digest is recorded."""

    name: str
    what: str
    digest: str = ""
    outcome: str = ""
    args: Any = None
    answer: Any = None


class Side:
    """One of the two runs, read whole and verified."""

    def __init__(self, store: Store, history: History, about: e.About) -> None:
        self.store = store
        self.history = history
        self.about = about
        self.run_id = history.state.run
        self.line: list[Stage] = history.standing()

    def begin_at(self, visit: int) -> None:
        """Leave out what is before a boundary; one that was undone since is still where a fork was made."""
        found = [place for place, stage in enumerate(self.line) if stage.visit == visit]
        self.line = self.line[found[0] :] if found else [stage for stage in self.history.stages if stage.visit == visit]

    async def bytes_of(self, raw: msgspec.Raw | None) -> bytes:
        """Return a value that may stand by reference."""
        data = b"null" if raw is None else bytes(raw)
        return await self._chunk(data[len(_REFERENCE) : -2].decode()) if data.startswith(_REFERENCE) else data

    async def state_of(self, stage: Stage) -> bytes:
        """Return the state of a boundary."""
        root = stage.boundary.state_root
        if root is None:
            return bytes(stage.boundary.state) or b"null"
        got: dict[str, bytes] = {}
        wanted = [root]
        while wanted:
            digest = wanted.pop()
            if digest not in got:
                got[digest] = await self._chunk(digest)
                wanted.extend(chunks.references(got[digest]))
        return chunks.join(root, got.__getitem__)

    async def _chunk(self, digest: str) -> bytes:
        data = await self.store.chunk(self.run_id, digest)
        if digest_of(data) != digest:
            raise Damaged(self.run_id, f"chunk {digest[:12]} does not match its digest")
        return data

    async def told(self, stage: Stage, step: str, record: Step) -> Told:
        """Return what is compared of a step."""
        name = f"{stage.boundary.segment or ''}/{step}"
        match record:
            case Effect(path=path, tool=tool, digest=digest, outcome=outcome):
                args = msgspec.json.decode(await self.bytes_of(record.args))
                answer = record.why if record.result is None else await self._value(record.result)
                return Told(_plain(path), f"a call of {tool}", digest, outcome, args, answer)
            case Read(path=path, tool=tool, digest=digest, status=status):
                answer = record.why if record.result is None else await self._value(record.result)
                return Told(_plain(path), f"a call of {tool}", digest, status, None, answer)
            case Receive(name=signal, taken=taken):
                answer = None if record.value is None else await self._value(record.value)
                return Told(name, f"a wait for signal {signal!r}", "", "received" if taken else "waiting", None, answer)
            case Sleep(ended=ended):
                return Told(name, "a sleep", "", "ended" if ended else "sleeping")
            case ChildStart(workflow=workflow, digest=digest):
                return Told(name, f"a start of {workflow}", digest)
            case ChildWait():
                return Told(name, "a wait for a child")
            case Value(kind=kind):
                return Told(name, f"run.{kind}()")

    async def _value(self, raw: msgspec.Raw) -> Any:
        return msgspec.json.decode(await self.bytes_of(raw))


async def compare(store: Store, run_a: str, run_b: str) -> Comparison:
    """Compare two runs of one store. Raises UnknownRun, Damaged."""
    a, b = await _side(store, run_a), await _side(store, run_b)
    begins = _align(a, b)
    rows = [await _compared(a, b, one, other) for one, other in zip_longest(a.line, b.line)]
    first = next((_sentence(row, row.differences[0]) for row in rows if row.differences), None)
    status = (await store.run(a.run_id)).status, (await store.run(b.run_id)).status
    return Comparison(a.run_id, b.run_id, *status, begins, rows, first)


async def _side(store: Store, prefix: str) -> Side:
    run_id = await store.resolve_id(prefix)
    history = await history_of(store, run_id)
    data = await store.chunk(run_id, history.state.about_digest)
    if digest_of(data) != history.state.about_digest:
        raise Damaged(run_id, "what is true of it does not match its digest")
    return Side(store, history, _about.decode(data))


def _align(a: Side, b: Side) -> str:
    """Make both sides begin at the same place; return which one that is."""
    if b.about.forked_from == a.run_id and b.about.forked_at is not None:
        a.begin_at(b.about.forked_at)
        return f"at boundary {b.history.stages[0].name}, where B was forked from A"
    if a.about.forked_from == b.run_id and a.about.forked_at is not None:
        b.begin_at(a.about.forked_at)
        return f"at boundary {a.history.stages[0].name}, where A was forked from B"
    if a.about.forked_from is not None and a.about.forked_from == b.about.forked_from:
        visit = max(a.history.stages[0].visit, b.history.stages[0].visit)
        for side in (a, b):
            side.begin_at(visit)
        return f"at boundary {visit} of run {a.about.forked_from}, from which both were forked"
    return "at the beginning of both"


async def _compared(a: Side, b: Side, one: Stage | None, other: Stage | None) -> Compared:
    if one is None:
        assert other is not None
        said = f"B comes to boundary {other.name}, A does not"
        state = sha256(await b.state_of(other)).hexdigest()
        return Compared(None, other.name, None, state, [Difference("boundary", said, None, other.name)])
    if other is None:
        said = f"A comes to boundary {one.name}, B does not"
        state = sha256(await a.state_of(one)).hexdigest()
        return Compared(one.name, None, state, None, [Difference("boundary", said, one.name, None)])
    state_a, state_b = await a.state_of(one), await b.state_of(other)
    found: list[Difference] = []
    segments = _bare(one), _bare(other)
    if segments[0] != segments[1]:
        found.append(Difference("segment", f"A comes to {segments[0]}, B to {segments[1]}", *segments))
    elif state_a != state_b:
        found.extend(_unlike("state", msgspec.json.decode(state_a), msgspec.json.decode(state_b)))
    if one.ended and other.ended:
        results = [msgspec.json.decode(await side.bytes_of(side.history.state.result)) for side in (a, b)]
        found.extend(_unlike("result", *results))
    found.extend(await _steps(a, b, one, other))
    spent = _spent(one), _spent(other)
    if spent[0] != spent[1]:
        found.append(Difference("spent", f"A spent {_shown(spent[0])}, B spent {_shown(spent[1])}", *spent))
    return Compared(one.name, other.name, sha256(state_a).hexdigest(), sha256(state_b).hexdigest(), found)


async def _steps(a: Side, b: Side, one: Stage, other: Stage) -> list[Difference]:
    found = []
    for step in dict.fromkeys([*one.steps, *other.steps]):
        mine, theirs = one.steps.get(step), other.steps.get(step)
        if mine is None or theirs is None:
            there, side, stage, record = ("A", a, one, mine) if mine is not None else ("B", b, other, theirs)
            assert record is not None
            told = await side.told(stage, step, record)
            missing = "B" if there == "A" else "A"
            said = f"{told.name}: {there} made {told.what}{_with(told)}, {missing} made none there"
            found.append(Difference(told.name, said, *((told.args, None) if there == "A" else (None, told.args))))
            continue
        found.extend(_step(await a.told(one, step, mine), await b.told(other, step, theirs)))
    return found


def _step(a: Told, b: Told) -> Iterator[Difference]:
    """Yield how one step differs: in what was called, else in the arguments, else in what came of it."""
    if a.what != b.what:
        said = f"{a.name}: A made {a.what}{_with(a)}, B made {b.what}{_with(b)}"
        yield Difference(a.name, said, a.what, b.what)
    elif a.digest != b.digest:
        said = f"{a.name}: A made {a.what}{_with(a)}, B with {_shown(b.args) if b.args is not None else b.digest[:12]}"
        yield Difference(a.name, said, a.args if a.args is not None else a.digest, b.args or b.digest)
    elif a.outcome != b.outcome:
        yield Difference(a.name, f"{a.name}: it is {a.outcome} in A and {b.outcome} in B", a.outcome, b.outcome)
    elif a.answer != b.answer:
        said = f"{a.name}: it answered {_shown(a.answer)} in A and {_shown(b.answer)} in B"
        yield Difference(a.name, said, a.answer, b.answer)


def _unlike(where: str, a: Any, b: Any) -> list[Difference]:
    """Return where two JSON values differ, each place by its path; the rest is counted."""
    found = list(_places(where, a, b))
    if len(found) > LINES_MOST:
        more = Difference(where, f"{where}: {len(found) - LINES_MOST} more places differ")
        return [*found[:LINES_MOST], more]
    return found


def _places(where: str, a: Any, b: Any) -> Iterator[Difference]:
    if isinstance(a, dict) and isinstance(b, dict):
        for name in dict.fromkeys([*a, *b]):
            if name not in a or name not in b:
                there, value = ("A", a[name]) if name in a else ("B", b[name])
                yield Difference(f"{where}.{name}", f"{where}.{name}: only {there} has it, {_shown(value)}")
            else:
                yield from _places(f"{where}.{name}", a[name], b[name])
    elif isinstance(a, list) and isinstance(b, list):
        for place, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from _places(f"{where}[{place}]", one, other)
        if len(a) != len(b):
            yield Difference(where, f"{where}: {len(a)} elements in A, {len(b)} in B", len(a), len(b))
    elif a != b or type(a) is not type(b):
        yield Difference(where, f"{where}: {_shown(a)} in A, {_shown(b)} in B", a, b)


def _sentence(row: Compared, difference: Difference) -> str:
    if row.a is None or row.b is None or difference.where == "segment":
        return f"They part where {difference.said}."
    return f"They part at boundary {row.a}: {difference.said}."


def _bare(stage: Stage) -> str:
    return stage.name.partition("@")[0]


def _plain(path: str) -> str:
    """Return a step's path without the number of its segment's visit, which differs after a rewind."""
    segment, slash, rest = path.partition("/")
    return f"{segment.partition('@')[0]}{slash}{rest}"


def _spent(stage: Stage) -> dict[str, str]:
    """Return what a visit spent, without what was spent before it."""
    before = stage.boundary.spent
    return {
        unit: f"{amount - before.get(unit, 0):f}"
        for unit, amount in stage.spent.items()
        if amount != before.get(unit, 0)
    }


def _with(told: Told) -> str:
    return "" if told.args is None else f" with {_shown(told.args)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
