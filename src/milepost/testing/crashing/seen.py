"""What one try left: the outside's books and the journals, read side by side."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from milepost.app import open_store
from milepost.core import codec
from milepost.core import entries as e
from milepost.definitions.call import Finding, did_not_happen, happened
from milepost.errors import MilepostError
from milepost.operations.inspection import EffectView, Inspector
from milepost.operations.verbs import Operator
from milepost.stores.api import Query, Store
from milepost.testing.check import Applied, Violation, check
from milepost.testing.crashing.worker import BY, Ended, Place

T = TypeVar("T")
EVERY_RUN = 10_000
Identity = tuple[str, str]


@dataclass(frozen=True)
class Seen:
    """How a run ended, what the outside applied, what the journals tell of it, and what `check` says of both."""

    ended: Ended
    lines: tuple[Applied, ...]
    effects: tuple[EffectView, ...]
    failures: frozenset[tuple[str, str]]
    findings: frozenset[tuple[str, str]]
    violations: tuple[Violation, ...]

    def counts(self, coarse: Collection[str]) -> Counter[Identity]:
        """Count what was applied by tool and arguments; by the tool alone for those that are named."""
        return Counter((line.tool, "" if line.tool in coarse else self._known_by(line)) for line in self.lines)

    def lines_of(self, identity: Identity, coarse: Collection[str]) -> list[Applied]:
        """Return the lines that one count counts."""
        tool, known_by = identity
        return [
            line for line in self.lines if line.tool == tool and (tool in coarse or self._known_by(line) == known_by)
        ]

    def _known_by(self, line: Applied) -> str:
        args = line.args
        if args is None:
            args = next((view.args for view in self.effects if (view.tool, view.key) == (line.tool, line.key)), None)
        return "" if args is None else json.dumps(args, sort_keys=True, default=str)


def look(place: Place, ended: Ended, *, repeats: Collection[str], unseen: Collection[str], plain: bool) -> Seen:
    """Read what a try left. `plain` says that lines with a key are known by it alone, whatever their arguments."""
    lines = tuple(place.outside.applied())
    told = [replace(line, args=None) if plain and line.key else line for line in lines]

    async def read(store: Store) -> Seen:
        effects, failures, findings = [], set(), set()
        inspector = Inspector(store)
        for row in await store.runs(Query(limit=EVERY_RUN)):
            effects += await inspector.effects(row.id)
            for tool, entry in _of_tools(await entries_of(store, row.id)):
                if isinstance(entry, e.EffectFailed):
                    failures.add((tool, entry.reason))
                elif isinstance(entry, e.FindingRecorded):
                    findings.add((tool, entry.answer))
        judged = [line for line in told if line.tool not in unseen]
        violations = await check(store, judged, repeats=repeats, unseen=unseen)
        known = tuple(one for one in violations if not (one.rule == "unrecorded" and one.path in repeats))
        return Seen(ended, lines, tuple(effects), frozenset(failures), frozenset(findings), known)

    try:
        return asked(place, read)
    except MilepostError as error:
        broken = Violation("damaged", "", "", str(error))
        return Seen(ended, lines, (), frozenset(), frozenset(), (broken,))


async def entries_of(store: Store, run_id: str) -> list[e.Entry]:
    """Return a run's entries, oldest first."""
    _, stored, _ = await store.chain(run_id)
    return [codec.decode(one.plain) for one in stored]


def _of_tools(entries: Sequence[e.Entry]) -> list[tuple[str, e.Entry]]:
    """Return the entries that speak of an effect, each with its tool."""
    tools: dict[str, str] = {}
    found = []
    for entry in entries:
        plan = getattr(entry, "plan", None) or entry
        if isinstance(plan, e.EffectPlanned):
            tools[plan.step] = plan.tool
        tool = tools.get(getattr(entry, "step", ""))
        if tool is not None:
            found.append((tool, entry))
    return found


def settle(place: Place, results: dict[str, Any], loose: Collection[str]) -> list[str]:
    """Play the person: settle what waits for one by looking into the outside's books; return the paths.

    `results` are what the effects returned in the undisturbed run, by path: what a person would find there. Of the
    tools in `loose` one line looks like another, so they are counted. What was found more than once is left alone,
    since no honest answer settles it.
    """
    lines = list(place.outside.applied())

    async def resolve(store: Store) -> list[str]:
        async def write(operation: Any) -> Any:
            (answer,) = await store.commit([operation])
            if isinstance(answer, Exception):
                raise answer
            return answer

        operator = Operator(store, write, place.clock.clock.now)
        inspector, settled = Inspector(store), []
        for effect in await store.effects():
            if not effect.person or effect.person.startswith("conflict"):
                continue
            (view,) = [one for one in (await inspector.detail(effect.run_id)).effects if one.step == effect.step]
            same = [line for line in lines if line.tool == view.tool]
            others = [one for one in await inspector.effects(effect.run_id) if one.outcome == "confirmed"]
            known = sum(one.tool == view.tool for one in others)
            mine = same[known:] if view.tool in loose else [line for line in same if is_of(line, view)]
            if len(mine) > 1 or (mine and effect.path not in results):
                continue
            finding: Finding[Any] = happened(results[effect.path]) if mine else did_not_happen()
            await operator.resolve(effect.run_id, effect.path, finding, by=BY, why="looked into the outside's ledger")
            settled.append(effect.path)
        return settled

    return asked(place, resolve)


def is_of(line: Applied, view: EffectView) -> bool:
    """Whether a line is of an effect: by its key, else by its arguments."""
    return line.key == view.key if line.key else line.args == view.args


def asked(place: Place, ask: Callable[[Store], Awaitable[T]]) -> T:
    """Ask the store of a try something, wherever this is called from: also inside an event loop."""

    async def asking() -> T:
        store = open_store(place.url)
        try:
            return await ask(store)
        finally:
            store.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asking())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asking()).result()
