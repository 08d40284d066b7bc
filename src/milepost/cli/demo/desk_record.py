"""What the desk's own record says, read through the one read API while the worker lives, dies and lives again.

Nothing here judges the demo: duplicates and losses are counted outside (see `tally`). The record tells the killer how
far the work is and whether an effect is in flight, and tells a person what is left to decide.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from milepost.app import open_store
from milepost.operations.inspection import EffectView, Inspector, Line
from milepost.stores.api import Query, RunRow

_MANY = 1_000
_KINDS = {"refund": "refund", "voucher": "voucher", "note_in_crm": "note", "send_mail": "mail"}


@dataclass(frozen=True)
class Held:
    """An effect that waits for a person. `kind` is refund, voucher, note or mail; `why` is the record's reason."""

    ticket: str
    run: str
    path: str
    kind: str
    why: str


@dataclass(frozen=True)
class Record:
    """What the record says once nothing moves any more.

    `unknown` outcomes came up, `reconciled` of them were settled without a person, `held` wait for one. `stuck` names
    the tickets whose runs neither are done nor wait for a person on an effect. `damaged` names the runs that do not
    verify. `done` maps each kind of effect to the tickets of which the record says that it happened.
    """

    unknown: int
    reconciled: int
    held: tuple[Held, ...]
    stuck: tuple[str, ...]
    damaged: tuple[str, ...]
    done: dict[str, frozenset[str]]


@dataclass
class _Followed:
    """One run as far as it was read: where its chain ended, what had begun, and what is in flight, by step."""

    seq: int = 0
    begun: int = 0
    in_flight: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)


class DeskRecord:
    """Follows the store of a desk from outside. Made once the store may be created; every call reads it anew."""

    def __init__(self, store: Path) -> None:
        self._runner = asyncio.Runner()
        self._store = open_store(f"sqlite:///{store.resolve()}", create=True)
        self._inspect = Inspector(self._store)
        self._followed: dict[str, _Followed] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._runner.close()
        self._store.close()

    def begun(self) -> int:
        """How many steps have begun: reads that answered, and effects that are planned or started."""
        self._look()
        return sum(run.begun for run in self._followed.values())

    def in_flight(self) -> frozenset[str]:
        """Every attempt that started, and of which nothing more is recorded, as `tool run entry`."""
        self._look()
        return frozenset(name for run in self._followed.values() for name in run.in_flight.values())

    def read(self) -> Record:
        """The whole record. Call it when the worker has ended."""
        return self._runner.run(self._read())

    def _look(self) -> None:
        self._runner.run(self._follow())

    async def _follow(self) -> None:
        for row in await self._inspect.runs(Query(limit=_MANY)):
            followed = self._followed.setdefault(row.id, _Followed())
            if row.seq > followed.seq:
                for line in (await self._inspect.journal(row.id))[followed.seq :]:
                    _follow_line(row.id, followed, line)

    async def _read(self) -> Record:
        rows = await self._inspect.runs(Query(limit=_MANY))
        held = [held for row in rows for held in await self._held(row)]
        waiting = {one.run for one in held}
        unknown = reconciled = 0
        for row in rows:
            doubts = _doubts(await self._inspect.journal(row.id))
            unknown += len(doubts)
            reconciled += sum(doubts)
        return Record(
            unknown,
            reconciled,
            held=tuple(held),
            stuck=tuple(str(row.key) for row in rows if row.status != "done" and row.id not in waiting),
            damaged=tuple([row.id for row in rows if (await self._inspect.verify(row.id)).damage is not None]),
            done=_happened([(str(row.key), await self._inspect.effects(row.id)) for row in rows]),
        )

    async def _held(self, row: RunRow) -> list[Held]:
        if row.status != "parked":
            return []
        return [
            Held(str(row.key), row.id, effect.path, _KINDS.get(effect.tool, effect.tool), effect.why or "")
            for effect in await self._inspect.open_effects(row.id)
            if effect.person
        ]


def _follow_line(run: str, followed: _Followed, line: Line) -> None:
    step = str(line.fields.get("step", ""))
    plan = line.fields if line.name == "effect_planned" else line.fields.get("plan")
    if plan is not None:
        followed.tools[step] = str(plan["tool"])  # a resend names only the step
    if line.name == "effect_started":
        followed.in_flight[step] = f"{followed.tools[step]} {run} {line.seq}"
    elif line.name in {"effect_confirmed", "effect_failed", "effect_unknown", "attempt_settled"}:
        followed.in_flight.pop(step, None)
    followed.begun += line.name == "read_returned" or plan is not None
    followed.seq = line.seq


def _doubts(lines: Sequence[Line]) -> list[bool]:
    """For each effect of a run that was ever unknown, whether it was settled without a person's word."""
    settled: dict[tuple[int, str], bool] = {}
    by_people: set[tuple[int, str]] = set()
    visit = 0
    for line in lines:
        effect = (visit, str(line.fields.get("step", "")))
        if line.name == "checkpointed":
            visit += 1  # steps are counted anew in each visit of a segment
        elif line.name == "effect_unknown":
            settled[effect] = False
        elif line.name in {"effect_confirmed", "effect_failed"} and effect in settled:
            if str(line.fields.get("by", "")).startswith("person "):
                by_people.add(effect)  # what is sent again on a person's word was still not settled without one
            settled[effect] = effect not in by_people
    return list(settled.values())


def _happened(effects: Sequence[tuple[str, Sequence[EffectView]]]) -> dict[str, frozenset[str]]:
    done: dict[str, set[str]] = {kind: set() for kind in _KINDS.values()}
    for ticket, views in effects:
        for view in views:
            if view.outcome == "confirmed":
                done[_KINDS[view.tool]].add(ticket)
    return {kind: frozenset(tickets) for kind, tickets in done.items()}
