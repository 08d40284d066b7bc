"""Which runs met other code, and which of them an App's code would strand: for listings and for `milepost doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from milepost.cli.check import SAID, Group, examined, grouped, say_group, strands
from milepost.cli.delivering import is_alive
from milepost.cli.opening import now_ms, wait_for
from milepost.cli.printing import heading, plain, say, short
from milepost.errors import MilepostError
from milepost.operations.inspection import Inspector
from milepost.stores.api import Query

if TYPE_CHECKING:
    from milepost.cli.settings import Settings
    from milepost.stores.api import RunRow, Store

OF_CODE = ("incompatible", "migration_failed", "diverged")
NOT_TAKEN_MS = 60_000
CHANGED_READ = 1_000
BOTH_SIDES = "milepost show RUN has both sides; declare or migrate, then milepost resume RUN --why …"
NEEDS_CODE = "start a worker whose App has that workflow; milepost check --app module:app says what code lacks"
Finding = tuple[str, Literal["ok", "note", "wrong"], str, str]
WAITING = {"ready", "running", "parked", "blocked"}
VERBS = "milepost check --app module:app says all of it; then declare, migrate, or let the old code finish them"


def explicit() -> bool:
    """Say whether --app was typed: importing a user's code is nothing that a listing does by itself."""
    return click.get_current_context().get_parameter_source("app") is ParameterSource.COMMANDLINE


def by_code(row: RunRow) -> bool:
    """Say whether a run is blocked since the code changed."""
    return row.status == "blocked" and (row.why or "").partition(":")[0] in OF_CODE


async def changes_of(store: Store, run_id: str) -> tuple[str, ...]:
    """Return what differed when a run last went on; nothing of a damaged record, which is for verify to tell."""
    try:
        return await Inspector(store).changes(run_id)
    except MilepostError:
        return ()


async def changed(store: Store, rows: Iterable[RunRow]) -> dict[str, tuple[str, ...]]:
    """Return, of the runs that have not ended, those which went on under code that differs, and how it differs."""
    found = {row.id: await changes_of(store, row.id) for row in rows if row.status in WAITING}
    return {run_id: changes for run_id, changes in found.items() if changes}


def asked(settings: Settings, rows: Iterable[RunRow]) -> dict[str, Group]:
    """Return what the App's code would do with these runs, where the App was typed out."""
    if not explicit():
        return {}
    ids = {row.id for row in rows}
    groups = grouped(one for one in wait_for(examined(settings.app)) if one.run in ids)
    return {run_id: group for group in groups for run_id in group.runs}


def say_changes(changes: dict[str, tuple[str, ...]]) -> None:
    """Write which runs went on under other code."""
    if changes:
        heading("Went on under code that differs")
        for run_id, differing in changes.items():
            say(f"  {short(run_id)}  {plain('; '.join(differing))}")


def say_stranded(code: dict[str, Group]) -> None:
    """Write which runs the App's code would strand, and what helps."""
    groups = {id(group): group for group in code.values() if strands(group.verdict)}
    if groups:
        heading("Would be stranded by today's code")
        for group in groups.values():
            say_group(group)
        say(f"  {VERBS}")


async def held_up(store: Store) -> list[Finding]:
    """Return what waits for code that nobody runs: blocked by what took it, or due, and taken by nobody."""
    inspector = Inspector(store)
    blocked = [row for row in await inspector.runs(Query(status="blocked", limit=sys.maxsize)) if by_code(row)]
    living = [worker for worker in await store.workers() if is_alive(store, worker)]
    ready = [await inspector.runs(Query(status=status, limit=sys.maxsize)) for status in ("ready", "parked")]
    resting = [row for rows in ready for row in rows if row.owner is None]
    late = now_ms() - NOT_TAKEN_MS
    left = [row for row in resting if living and row.due is not None and row.due < late]
    changed_ = [row for row in resting[:CHANGED_READ] if await changes_of(store, row.id)]
    findings: list[Finding] = []
    if blocked:
        findings.append(("changed code", "note", f"{len(blocked)} blocked by other code: {_ids(blocked)}", BOTH_SIDES))
    if left:
        named = ", ".join(sorted({row.workflow or "(attached)" for row in left}))
        said = f"{len(left)} due, and no running worker takes them ({named}): {_ids(left)}"
        findings.append(("left alone", "note", said, NEEDS_CODE))
    if changed_:
        said = f"{len(changed_)} went on under code that differs: {_ids(changed_)}"
        findings.append(("other code", "note", said, "milepost show RUN says what differs"))
    return findings or [("changed code", "ok", "no run is held up by it", "")]


def code_findings(settings: Settings) -> list[Finding]:
    """Ask the App's code about the runs that wait, where the App was typed out."""
    if not explicit():
        return []
    findings: list[Finding] = []
    for one in grouped(wait_for(examined(settings.app))):
        stranded = strands(one.verdict)
        if stranded or one.verdict == "warns":
            ids = ", ".join(short(run) for run in one.runs[:5]) + (", …" if one.runs[5:] else "")
            said = f"{len(one.runs)} of {one.workflow or '(attached)'} {one.version} {SAID[one.verdict]}: {ids}"
            findings.append(("today's code", "wrong" if stranded else "note", said, "; ".join(one.reasons)))
    return findings or [("today's code", "ok", "it strands no run that waits", "")]


def _ids(rows: list[RunRow]) -> str:
    return ", ".join(short(row.id) for row in rows[:5]) + (", …" if rows[5:] else "")
